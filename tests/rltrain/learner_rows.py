"""Ragged rows with invented behaviour logprobs."""

from __future__ import annotations

import random

from rltrain.batch import TrainingRow
from rltrain.rollout import Completion, Transcript


def make_row(seed: int, advantage: float) -> TrainingRow:
    """Return a ragged row with invented behaviour logprobs."""
    generator = random.Random(seed)
    sampled = [generator.randrange(3, 60) for _ in range(generator.randint(1, 9))]
    completion = Completion(
        key=0,
        token_ids=sampled,
        behaviour_logprobs=[generator.uniform(-6, -3) for _ in sampled],
        finish="stop",
    )
    prompt = [generator.randrange(3, 60) for _ in range(generator.randint(1, 6))]
    return TrainingRow(Transcript().given(prompt).sampled(completion), advantage)


ROWS = [make_row(seed, 1.0 if seed % 2 else -0.5) for seed in range(12)]
