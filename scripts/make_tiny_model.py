"""Make a tiny language model that half knows how to solve `bundled:lists`.

It is a Qwen2 of less than half a million parameters whose vocabulary is the words of the problems
and the pieces of their programs. It learns on the training rows only, from answers in which steps
are mixed up with others: every step now and then, some steps more often than not. So it writes
programs that run, is right about a third of the time when sampled, and is unsure where it is wrong:
reinforcement learning has something to find.

    python scripts/make_tiny_model.py OUTDIR
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

# Threads that wait without spinning: many times faster where others use the processors too.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import make_lists
import torch
from make_lists import LAST_STEPS, PRINT, READ_LINE, READ_SENTENCE, STEPS, Step, Steps
from tokenizers import AddedToken
from tokenizers.pre_tokenizers import ByteLevel
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer
from transformers.utils import logging

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ROLES = ("system\n", "user\n", "assistant\n")
BYTES = 256  # their tokens follow the padding token
FENCE, FENCE_END = "```python\n", "```"
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TRAINING_STEPS = 250
BATCH = 64
LEARNING_RATE = 2e-3
MIXED_UP_SHARE = 0.33  # of the steps are taught wrong more often than right
WRONG_WHEN_MIXED_UP = 0.6
WRONG_OTHERWISE = 0.1


def words_and_pieces() -> list[str]:
    """Return the language of the problems, of their programs and of the conversation."""
    every_step = (*STEPS, *LAST_STEPS)
    spoken = {f" {word}" for step in every_step for word in step.sentence.split()}
    written = {part for step in every_step for part in (*step.frame, step.piece)}
    return [*ROLES, FENCE, FENCE_END, READ_SENTENCE, READ_LINE, *sorted(spoken | written)]


def make_tokenizer(words: Sequence[str] = ()) -> Qwen2Tokenizer:
    """Return a tokenizer whose decoding of a text's tokens is the text, blanks and all.

    It is Qwen2's own kind, since that is what transformers loads for a Qwen2 whatever was saved:
    the bytes, so that any text has tokens, and every word as an added token.

    Args:
        words: What has a token of its own; by default the language of `bundled:lists`.
    """
    alphabet = [PAD, *sorted(ByteLevel.alphabet())]
    tokenizer = Qwen2Tokenizer(
        vocab={token: i for i, token in enumerate(alphabet)},
        merges=[],
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
        padding_side="left",
    )
    words = words or words_and_pieces()
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in words])
    return tokenizer


def make_model(tokenizer: Qwen2Tokenizer) -> Qwen2ForCausalLM:
    """Return the untrained model."""
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            initializer_range=0.05,
            tie_word_embeddings=False,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )


def training_problems(data: Path) -> list[dict[str, Any]]:
    """Return the training rows of the data set, and no other."""
    rows = map(json.loads, data.read_text(encoding="utf-8").splitlines())
    return [row for row in rows if row["split"] == "train"]


def answer(steps: Steps) -> str:
    """Return what the assistant says: the program in a fenced block."""
    return f"{FENCE}{make_lists.program(steps)}{FENCE_END}"


class Teacher:
    """Answers to training problems, some of their steps mixed up with others of the same kind."""

    def __init__(self, random: Random) -> None:
        self._random = random
        every_step = (*STEPS, *LAST_STEPS)
        mixed_up = random.sample(every_step, round(MIXED_UP_SHARE * len(every_step)))
        self._wrong_rate = {
            step: WRONG_WHEN_MIXED_UP if step in mixed_up else WRONG_OTHERWISE
            for step in every_step
        }
        self._mistaken_for = {step: self._another(step) for step in every_step}

    def _another(self, step: Step) -> Step:
        kind = LAST_STEPS if step.frame is PRINT else STEPS
        return self._random.choice(
            [other for other in kind if other.frame is step.frame and other is not step]
        )

    def answer(self, steps: Steps) -> str:
        """Return an answer, right or wrong."""
        return answer(
            tuple(
                self._mistaken_for[step] if self._random.random() < self._wrong_rate[step] else step
                for step in steps
            )
        )


def prompt_ids(tokenizer: Qwen2Tokenizer, problem: str) -> list[int]:
    """Return the tokens of a conversation in which the assistant is about to answer."""
    messages = [{"role": "user", "content": problem}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer.encode(text)
    return ids


def padded(rows: Sequence[list[int]], filler: int) -> torch.Tensor:
    """Return the rows as one tensor [rows, longest], filled up on the left."""
    width = max(map(len, rows))
    return torch.tensor([[filler] * (width - len(row)) + row for row in rows])


def batch(tokenizer: Qwen2Tokenizer, pairs: Iterable[tuple[str, str]]) -> dict[str, torch.Tensor]:
    """Return the model's arguments for (problem, answer) pairs; only answers are learned."""
    ids, labels = [], []
    for problem, reply in pairs:
        asked, said = prompt_ids(tokenizer, problem), tokenizer.encode(reply + END)
        ids.append(asked + said)
        labels.append([-100] * len(asked) + said)
    return arguments(tokenizer, ids, labels)


def arguments(
    tokenizer: Qwen2Tokenizer, ids: Sequence[list[int]], labels: Sequence[list[int]]
) -> dict[str, torch.Tensor]:
    """Return the model's arguments for rows of tokens and their labels."""
    input_ids = padded(ids, tokenizer.pad_token_id)  # [rows, longest]
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != tokenizer.pad_token_id).long(),
        "labels": padded(labels, -100),
    }


def learn(
    model: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer, problems: list[str], random: Random
) -> None:
    """Train on mixed-up answers, showing progress."""
    teacher = Teacher(random)

    def next_batch() -> dict[str, torch.Tensor]:
        asked = random.choices(problems, k=BATCH)
        pairs = [(problem, teacher.answer(make_lists.steps_of(problem))) for problem in asked]
        return batch(tokenizer, pairs)

    fit(model, next_batch, TRAINING_STEPS)


def fit(
    model: Qwen2ForCausalLM, next_batch: Callable[[], dict[str, torch.Tensor]], steps: int
) -> None:
    """Train a model on batches that carry labels, showing progress."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, steps)
    started = time.monotonic()
    model.train()
    for step in range(1, steps + 1):
        loss = model(**next_batch()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 50 == 0:
            seconds = time.monotonic() - started
            print(f"step {step}/{steps} loss {loss.item():.3f} {seconds:.0f} s", flush=True)
    model.eval()


def passes(completion: str, tests: dict[str, list[str]]) -> bool:
    """Whether a completion's program passes the tests.

    It runs in this process: it must consist of our pieces alone, and none of them reaches beyond
    lists of integers.
    """
    program = completion.removeprefix(FENCE).removesuffix(FENCE_END)
    for given, expected in zip(tests["inputs"], tests["outputs"], strict=True):
        printed: list[str] = []
        scope = {
            "input": lambda given=given: given.rstrip("\n"),
            "print": lambda *values, printed=printed: printed.append(make_lists.show(*values)),
        }
        try:
            exec(program, scope)
        except Exception:  # noqa: BLE001 (whatever a wrong program raises)
            return False
        if "".join(printed) != expected:
            return False
    return True


@torch.no_grad()
def solve_rate(
    model: Qwen2ForCausalLM,
    tokenizer: Qwen2Tokenizer,
    rows: list[dict[str, Any]],
    **how: Any,
) -> float:
    """Return the share of the rows that the model solves, one answer each."""
    asked = padded(
        [prompt_ids(tokenizer, row["problem"]) for row in rows], tokenizer.pad_token_id
    )  # [rows, longest prompt]
    answered = model.generate(
        asked, attention_mask=(asked != tokenizer.pad_token_id).long(), max_new_tokens=40, **how
    )
    answered = answered[:, asked.shape[1] :]  # [rows, longest answer]
    is_ours = ((answered == tokenizer.pad_token_id) | (answered > BYTES)).all(dim=1)  # [rows]
    completions = tokenizer.batch_decode(answered, skip_special_tokens=True)
    solved = [
        ours and passes(completion, json.loads(row["tests"]))
        for ours, completion, row in zip(is_ours.tolist(), completions, rows, strict=True)
    ]
    return sum(solved) / len(solved)


def save(model: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer, folder: Path) -> None:
    """Write a folder that `from_pretrained` reads."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Make, train, measure and save the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("outdir", type=Path)
    parser.add_argument("--data", type=Path, default=make_lists.DEFAULT_OUTPUT)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(arguments.seed)

    rows = training_problems(arguments.data)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    print(f"{model.num_parameters():,} parameters, {len(tokenizer)} tokens, {len(rows)} problems")
    learn(model, tokenizer, [row["problem"] for row in rows], Random(arguments.seed))
    sampled = solve_rate(model, tokenizer, rows, do_sample=True, temperature=1.0, top_k=0)
    greedy = solve_rate(model, tokenizer, rows, do_sample=False)
    print(f"solves {sampled:.0%} of the training rows when sampled, {greedy:.0%} greedily")
    save(model, tokenizer, arguments.outdir)
    print(f"saved in {arguments.outdir}")


if __name__ == "__main__":
    main()
