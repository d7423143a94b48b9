"""Rows to tensors: the shift, the padding, and how a step is cut."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rltrain.batch import TrainingRow, make_batch, micro_batches, mini_batches  # noqa: E402
from rltrain.rollout import Completion, Transcript  # noqa: E402

pytestmark = pytest.mark.train


def row(prompt: list[int], sampled: list[int], advantage: float = 1.0) -> TrainingRow:
    """Return a row whose behaviour logprobs are minus the sampled tokens."""
    completion = Completion(
        key=0, token_ids=sampled, behaviour_logprobs=[-float(t) for t in sampled], finish="stop"
    )
    return TrainingRow(Transcript().given(prompt).sampled(completion), advantage)


def test_everything_stands_where_its_token_is_predicted() -> None:
    """Entry t belongs to token t + 1, in targets, mask and logprobs alike."""
    batch = make_batch([row([5, 6], [7, 8], 0.5), row([5], [9], -1.0)], pad_id=0)

    assert batch.input_ids.tolist() == [[5, 6, 7, 8], [5, 9, 0, 0]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3], [0, 1, 0, 0]]
    assert batch.targets.tolist() == [[6, 7, 8], [9, 0, 0]]
    assert batch.action_mask.tolist() == [[False, True, True], [True, False, False]]
    assert batch.behaviour_logprobs.tolist() == [[0, -7, -8], [-9, 0, 0]]
    assert batch.action_mask.logical_not().logical_or(batch.advantages != 0).all()
    assert [
        set(a[m].tolist()) for a, m in zip(batch.advantages, batch.action_mask, strict=True)
    ] == [
        {0.5},
        {-1.0},
    ]


def test_packed_rows_stand_one_after_the_other() -> None:
    """No padding; positions begin again; the border predicts nothing that counts."""
    batch = make_batch([row([5, 6], [7, 8], 0.5), row([5], [9], -1.0)], pad_id=0, packed=True)

    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 5, 9]]
    assert batch.attention_mask is None
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1]]
    assert batch.targets.tolist() == [[6, 7, 8, 5, 9]]
    assert batch.action_mask.tolist() == [[False, True, True, False, True]]
    assert batch.behaviour_logprobs.tolist() == [[0, -7, -8, 0, -9]]
    assert batch.advantages.tolist() == [[0.5, 0.5, 0.5, -1.0, -1.0]]


def test_a_sampled_end_is_trained_on_although_it_is_the_padding_token() -> None:
    """EOS = PAD: the sampled one counts, the padding does not."""
    batch = make_batch([row([5], [7, 2]), row([5], [2])], pad_id=2)

    assert batch.targets.tolist() == [[7, 2], [2, 2]]
    assert batch.action_mask.tolist() == [[True, True], [True, False]]
    assert batch.attention_mask.tolist() == [[1, 1, 1], [1, 1, 0]]


def test_mini_batches_are_equal_parts_in_a_seeded_order() -> None:
    """Ten rows at four a step make three parts of 3, 3 and 4; the seed decides the order."""
    rows = [row([i], [i]) for i in range(10)]

    parts = mini_batches(rows, size=4, seed=1)

    assert [len(part) for part in parts] == [3, 3, 4]
    assert sorted(r.transcript.token_ids for part in parts for r in part) == sorted(
        r.transcript.token_ids for r in rows
    )
    assert parts == mini_batches(rows, size=4, seed=1)
    assert parts != mini_batches(rows, size=4, seed=2)
    assert [len(part) for part in mini_batches(rows, size=None, seed=1)] == [10]


def test_micro_batches_keep_to_the_token_budget() -> None:
    """Padded tokens stay within the budget; a longer single row stands alone."""
    rows = [row([1] * n, [2]) for n in (1, 1, 3, 3, 11)]

    parts = list(micro_batches(rows, max_rows=None, max_tokens=8))

    assert [[len(r.transcript.token_ids) for r in part] for part in parts] == [
        [12],
        [4, 4],
        [2, 2],
    ]
    assert [len(part) for part in micro_batches(rows, max_rows=1, max_tokens=99)] == [1] * 5


def test_packed_micro_batches_count_no_padding() -> None:
    """Rows of 12, 4, 4, 2 and 2 tokens fill twelve tokens twice; padded they do not."""
    rows = [row([1] * n, [2]) for n in (1, 1, 3, 3, 11)]

    def sizes(*, packed: bool) -> list[int]:
        return [len(p) for p in micro_batches(rows, max_rows=None, max_tokens=12, packed=packed)]

    assert sizes(packed=True) == [1, 4]
    assert sizes(packed=False) == [1, 3, 1]
