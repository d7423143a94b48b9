"""Transcripts to tensors: rows, mini-batches, micro-batches. The only place that shifts tokens.

Everything in a `Batch` but `input_ids` and `attention_mask` stands at the position of the token
that is *predicted*: entry t belongs to token t + 1, so rows have one entry less than tokens.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import torch
from attrs import frozen
from torch import Tensor

from .rollout import Transcript

__all__ = ["Batch", "TrainingRow", "make_batch", "micro_batches", "mini_batches"]


@frozen
class TrainingRow:
    """One scored rollout with the advantage of all its sampled tokens."""

    transcript: Transcript
    advantage: float


@frozen(kw_only=True, eq=False)
class Batch:
    """Right-padded rows: [rows, length], or [rows, length − 1] for what is predicted."""

    input_ids: Tensor
    attention_mask: Tensor
    targets: Tensor
    action_mask: Tensor
    behaviour_logprobs: Tensor
    advantages: Tensor

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        return Batch(
            input_ids=self.input_ids.to(device),
            attention_mask=self.attention_mask.to(device),
            targets=self.targets.to(device),
            action_mask=self.action_mask.to(device),
            behaviour_logprobs=self.behaviour_logprobs.to(device),
            advantages=self.advantages.to(device),
        )


def make_batch(rows: Sequence[TrainingRow], *, pad_id: int) -> Batch:
    """Return rows as tensors, padded at the right; EOS may well be the padding token."""
    lengths = [len(row.transcript.token_ids) for row in rows]
    longest = max(lengths)

    def padded(values: Sequence[float], fill: float) -> list[float]:
        return [*values, *([fill] * (longest - len(values)))]

    transcripts = [row.transcript for row in rows]
    input_ids = torch.tensor([padded(t.token_ids, pad_id) for t in transcripts])  # [rows, length]
    actions = torch.tensor([padded(t.action_mask, False) for t in transcripts])  # [rows, length]
    behaviour = torch.tensor(
        [padded(t.behaviour_logprobs, 0.0) for t in transcripts], dtype=torch.float32
    )  # [rows, length]
    advantages = torch.tensor([row.advantage for row in rows], dtype=torch.float32)  # [rows]
    attention = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]  # [rows, length]
    return Batch(
        input_ids=input_ids,
        attention_mask=attention.long(),
        targets=input_ids[:, 1:],
        action_mask=actions[:, 1:].bool(),
        behaviour_logprobs=behaviour[:, 1:],
        advantages=advantages[:, None].expand(-1, longest - 1),
    )


def mini_batches(
    rows: Sequence[TrainingRow], *, size: int | None, seed: int
) -> list[list[TrainingRow]]:
    """Return the rows in a seeded order, cut into parts of nearly equal size, `size` at most.

    Equal parts, since a last part of a few rows would make an optimiser step as long as the others
    out of noise. None keeps them together.
    """
    order = list(rows)
    random.Random(seed).shuffle(order)
    parts = 1 if size is None else -(-len(order) // size)
    bounds = [len(order) * part // parts for part in range(parts + 1)]
    return [order[start:end] for start, end in itertools.pairwise(bounds)]


def micro_batches(
    rows: Sequence[TrainingRow], *, max_rows: int | None, max_tokens: int
) -> Iterator[list[TrainingRow]]:
    """Give out rows in parts that fit in memory, the longest first, like with like.

    Args:
        rows: The rows of one optimiser step.
        max_rows: Rows of a part at most; None leaves it to `max_tokens`.
        max_tokens: Tokens of a part at most, padding included; a single longer row stands alone.
    """
    by_length = sorted(rows, key=lambda row: -len(row.transcript.token_ids))
    start = 0
    while start < len(by_length):
        longest = len(by_length[start].transcript.token_ids)
        size = max(1, max_tokens // longest)
        size = size if max_rows is None else min(size, max_rows)
        yield by_length[start : start + size]
        start += size
