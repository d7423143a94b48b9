"""Transcripts to tensors: rows, mini-batches, micro-batches. The only place that shifts tokens.

Everything in a `Batch` but `input_ids` and `attention_mask` stands at the position of the token
that is *predicted*: entry t belongs to token t + 1, so rows have one entry less than tokens.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence

import torch
from attrs import frozen
from torch import Tensor

from .rollout import Transcript

__all__ = [
    "MICRO_BATCH_TOKENS",
    "PACKED_TOKENS",
    "Batch",
    "TrainingRow",
    "make_batch",
    "micro_batches",
    "mini_batches",
]

MICRO_BATCH_TOKENS = 16384
"""Tokens of a backward pass at most, padding included, unless the manifest counts rows."""

PACKED_TOKENS = 4096
"""The same without padding: less, since attention over a packed row masks tokens × tokens."""


@frozen
class TrainingRow:
    """One scored rollout with the advantage of all its sampled tokens."""

    transcript: Transcript
    advantage: float


@frozen(kw_only=True, eq=False)
class Batch:
    """Rows: [rows, length], or [rows, length − 1] for what is predicted.

    Right-padded, or packed: one after the other in a single row. Then `attention_mask` is None, and
    positions that begin again at 0 tell attention where a row ends.
    """

    input_ids: Tensor
    attention_mask: Tensor | None
    position_ids: Tensor
    targets: Tensor
    action_mask: Tensor
    behaviour_logprobs: Tensor
    advantages: Tensor

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        return Batch(
            input_ids=self.input_ids.to(device),
            attention_mask=None if self.attention_mask is None else self.attention_mask.to(device),
            position_ids=self.position_ids.to(device),
            targets=self.targets.to(device),
            action_mask=self.action_mask.to(device),
            behaviour_logprobs=self.behaviour_logprobs.to(device),
            advantages=self.advantages.to(device),
        )


def make_batch(rows: Sequence[TrainingRow], *, pad_id: int, packed: bool = False) -> Batch:
    """Return rows as tensors: padded at the right, or packed into one.

    EOS may well be the padding token. A row's first token is never sampled, so that what a packed
    row's last token would predict of the next one is masked out.
    """
    transcripts = [row.transcript for row in rows]
    lengths = [len(t.token_ids) for t in transcripts]

    def laid_out(values: Iterable[Sequence[float]], fill: float) -> Tensor:
        if packed:
            return torch.tensor([[value for part in values for value in part]])
        longest = max(lengths)
        return torch.tensor([[*part, *([fill] * (longest - len(part)))] for part in values])

    input_ids = laid_out([t.token_ids for t in transcripts], pad_id)  # [rows, length]
    actions = laid_out([t.action_mask for t in transcripts], False)  # [rows, length]
    behaviour = laid_out([t.behaviour_logprobs for t in transcripts], 0.0)  # [rows, length]
    advantages = laid_out(
        [[row.advantage] * length for row, length in zip(rows, lengths, strict=True)], 0.0
    )  # [rows, length]
    is_token = laid_out([[1] * length for length in lengths], 0)  # [rows, length]
    return Batch(
        input_ids=input_ids,
        attention_mask=None if packed else is_token,
        position_ids=laid_out([range(length) for length in lengths], 0),
        targets=input_ids[:, 1:],
        action_mask=actions[:, 1:].bool(),
        behaviour_logprobs=behaviour[:, 1:].float(),
        advantages=advantages[:, 1:].float(),
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
    rows: Sequence[TrainingRow],
    *,
    max_rows: int | None,
    max_tokens: int,
    packed: bool = False,
    ranks: int = 1,
) -> Iterator[list[TrainingRow]]:
    """Give out rows in parts that fit in memory, the longest first, like with like.

    Each part is for all ranks: dealt out one row at a time, `part[rank::ranks]`, their shares are
    alike in length, and each rank has as many parts as the others.

    Args:
        rows: The rows of one optimiser step.
        max_rows: Rows of a rank's share at most; None leaves it to `max_tokens`.
        max_tokens: Tokens of a share at most, padding included; a single longer row stands alone.
        packed: There is no padding to include.
        ranks: How many processes share a part.
    """
    part: list[TrainingRow] = []
    tokens = [0] * ranks
    for row in sorted(rows, key=lambda row: -len(row.transcript.token_ids)):
        share = len(part) % ranks
        # The first row of a share is its longest: every other is padded to it.
        longest = row if packed or len(part) < ranks else part[share]
        length = len(longest.transcript.token_ids)
        is_full = max_rows is not None and len(part) == max_rows * ranks
        if tokens[share] and (is_full or tokens[share] + length > max_tokens):
            yield part
            part, tokens, share, length = [], [0] * ranks, 0, len(row.transcript.token_ids)
        part.append(row)
        tokens[share] += length
    if part:
        yield part
