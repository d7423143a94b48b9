"""Make a tiny language model that plays `envhost.envs.repeat`, and mixes up some colours.

It is the sibling of scripts/make_tiny_model.py: it learns from games in which every colour is taken
for another now and then, and some more often than not. So it plays by the rules and is unsure where
it is wrong, and reinforcement learning has something to find.

    python scripts/make_parrot.py OUTDIR
"""

from __future__ import annotations

import argparse
from pathlib import Path
from random import Random

import make_tiny_model as tiny
import torch
from transformers import Qwen2ForCausalLM, Qwen2Tokenizer
from transformers.utils import logging

from envhost.envs.repeat import COLOURS

TURNS = 3
MIXED_UP = 3  # colours that are taught wrong more often than right
WRONG_WHEN_MIXED_UP = 0.6
WRONG_OTHERWISE = 0.1
TRAINING_STEPS = 200
BATCH = 64

Game = list[tuple[str, str]]
"""What the environment says, and the answer, turn by turn."""


def words() -> list[str]:
    """Return the language of the game and of the conversation."""
    blank = [f" {colour}" for colour in COLOURS]
    return [*tiny.ROLES, "repeat the colours:", "and", *COLOURS, *blank]


class Teacher:
    """Plays games by the rules, some colours mixed up."""

    def __init__(self, random: Random) -> None:
        self._random = random
        mixed_up = random.sample(COLOURS, MIXED_UP)
        self._wrong_rate = {
            colour: WRONG_WHEN_MIXED_UP if colour in mixed_up else WRONG_OTHERWISE
            for colour in COLOURS
        }
        shifted = [*COLOURS[1:], COLOURS[0]]
        self._mistaken_for = dict(zip(COLOURS, shifted, strict=True))

    def play(self) -> Game:
        """Return a game, which goes on whatever was answered."""
        colours = self._random.choices(COLOURS, k=TURNS)
        said = [f"repeat the colours: {colours[0]}", *(f"and {colour}" for colour in colours[1:])]
        answers = [" ".join(map(self._heard, colours[: turn + 1])) for turn in range(TURNS)]
        return list(zip(said, answers, strict=True))

    def _heard(self, colour: str) -> str:
        is_wrong = self._random.random() < self._wrong_rate[colour]
        return self._mistaken_for[colour] if is_wrong else colour


def encode(tokenizer: Qwen2Tokenizer, game: Game) -> tuple[list[int], list[int]]:
    """Return a game's tokens, and its labels: only answers are learned."""
    ids: list[int] = []
    labels: list[int] = []
    for said, answer in game:
        start = "\n" if ids else ""  # what the template puts after an answer
        asked = tokenizer.encode(
            f"{start}{tiny.START}user\n{said}{tiny.END}\n{tiny.START}assistant\n"
        )
        answered = tokenizer.encode(answer + tiny.END)
        ids += asked + answered
        labels += [-100] * len(asked) + answered
    return ids, labels


def learn(model: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer, random: Random) -> None:
    """Train on mixed-up games, showing progress."""
    teacher = Teacher(random)

    def next_batch() -> dict[str, torch.Tensor]:
        games = [encode(tokenizer, teacher.play()) for _ in range(BATCH)]
        return tiny.arguments(tokenizer, [ids for ids, _ in games], [of for _, of in games])

    tiny.fit(model, next_batch, TRAINING_STEPS)


def main() -> None:
    """Make, train and save the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)

    tokenizer = tiny.make_tokenizer(words())
    model = tiny.make_model(tokenizer)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens")
    learn(model, tokenizer, Random(arguments.seed))
    tiny.save(model, tokenizer, arguments.outdir)
    print(f"saved in {arguments.outdir}")


if __name__ == "__main__":
    main()
