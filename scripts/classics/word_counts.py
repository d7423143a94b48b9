"""Words of a text by frequency; the text may be empty."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong

_SYLLABLES = ("ba", "be", "ko", "li", "mu", "na", "or", "ta", "un", "wi")


def _text(rng: Random, words: int, vocabulary: int) -> str:
    known = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(vocabulary)]
    text = ""
    for _ in range(words):
        word = known[min(int(rng.expovariate(3) * vocabulary), vocabulary - 1)]
        word = rng.choice((word, word, word.capitalize(), word.upper()))
        text += word + rng.choice((" ", " ", " ", ", ", "; ", ".\n", "-", " 7 ", "!\n\n"))
    return text + "\n"


def _inputs(rng: Random) -> Iterator[str]:
    yield ""
    yield "\n"
    yield "a\n"
    yield "1, 2, 3!\n"
    yield "don't DON'T Don\n"
    yield "b a c\nC B A\n"
    for words, vocabulary in ((20, 5), (200, 30), (1000, 200), (2000, 40), (5000, 2000)):
        yield _text(rng, words, vocabulary)


CLASSIC = Classic(
    problem_id="word-counts",
    statement="""
        Count the words of a text. A word is a longest possible run of the letters a to z and A to
        Z; everything else separates words. Capital letters count as small ones.

        Input: a text of up to 200000 ASCII characters in any number of lines, even none.
        Output: one line for each different word: the word in small letters and how often it occurs;
        the most frequent first, and equally frequent ones in alphabetical order. If there is no
        word, print nothing.
    """,
    example="""
        The cat saw the dog.
        A dog!
    """,
    inputs=_inputs,
    solutions=(
        """
        import re
        import sys
        from collections import Counter

        counts = Counter(re.findall("[a-z]+", sys.stdin.read().lower()))
        for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            print(word, count)
        """,
        """
        import sys

        counts = {}
        word = ""
        for line in sys.stdin:
            for character in line + " ":
                if "a" <= character.lower() <= "z":
                    word += character.lower()
                elif word:
                    counts[word] = counts.get(word, 0) + 1
                    word = ""
        ranked = sorted(counts)
        ranked.sort(key=counts.get, reverse=True)
        sys.stdout.writelines(f"{word} {counts[word]}\\n" for word in ranked)
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            import sys
            from collections import Counter

            counts = Counter(sys.stdin.read().lower().split())
            for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
                print(word, count)
            """,
        ),
        Wrong(
            "WA",
            """
            import re
            import sys
            from collections import Counter

            counts = Counter(re.findall("[a-z]+", sys.stdin.read().lower()))
            for word, count in counts.most_common():
                print(word, count)
            """,
        ),
        Wrong(
            "RE",
            """
            import re
            from collections import Counter

            counts = Counter()
            line = input()
            while True:
                counts.update(re.findall("[a-z]+", line.lower()))
                try:
                    line = input()
                except EOFError:
                    break
            for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
                print(word, count)
            """,
        ),
    ),
)
