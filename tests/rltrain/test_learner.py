"""Updates: what the numbers add up to, and what must not change them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from attrs import evolve  # noqa: E402
from learner_rows import ROWS, make_row  # noqa: E402

from rltrain import learner as learner_module  # noqa: E402
from rltrain.batch import TrainingRow  # noqa: E402
from rltrain.engine import Engine, learning_rate  # noqa: E402
from rltrain.errors import RunStopped  # noqa: E402
from rltrain.learner import Learner, Update, training_rows  # noqa: E402
from rltrain.manifest import Algorithm, Network, ScheduleConfig  # noqa: E402
from rltrain.policy import Policy, load_policy  # noqa: E402
from rltrain.ranks import Ranks  # noqa: E402
from rltrain.rollout import Completion, Episode, Group, Rollout, Transcript  # noqa: E402

pytestmark = pytest.mark.train

ALGORITHM = Algorithm(lr=1e-2, max_grad_norm=1e9, quantization="nf4")


def update(
    folder: Path, rows: list[TrainingRow], algorithm: Algorithm = ALGORITHM
) -> tuple[Update | None, Any, Policy]:
    """Load the policy afresh, take one training step; return its figures and the new weights."""
    policy = load_policy(
        Network(pretrained_model_name_or_path=str(folder)), algorithm, device=torch.device("cpu")
    )
    engine = Engine(policy.parameters(), Ranks(), max_grad_norm=algorithm.max_grad_norm)
    result = Learner(policy, engine, algorithm, Ranks()).update(rows, step=3, lr=algorithm.lr)
    weights = torch.cat([weight.detach().flatten() for weight in policy.parameters()])
    return result, weights, policy


def figures(result: Update | None) -> list[float]:
    assert result is not None
    return [
        result.loss,
        result.grad_norm,
        result.entropy,
        result.ratio.absolute,
        result.ratio.kl,
        result.ratio.capped,
        result.ratio.effective_sample_size,
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"micro_batch_size_per_gpu": 1},
        {"micro_batch_size_per_gpu": 5},
        {"gradient_checkpointing": False},
        {"packing": True},
        {"packing": True, "micro_batch_size_per_gpu": 5},
        {"packing": True, "gradient_checkpointing": False},
    ],
    ids=str,
)
def test_how_a_batch_is_cut_changes_nothing(tiny_model: Path, change: dict[str, Any]) -> None:
    """Micro-batches of any size, packing and recomputation give the same figures to 1e-5."""
    expected, weights, _ = update(tiny_model, ROWS)

    result, changed, _ = update(tiny_model, ROWS, evolve(ALGORITHM, **change))

    assert figures(result) == pytest.approx(figures(expected), rel=1e-5)
    # Adam's first step is lr · sign(gradient): rounding of a gradient near 0 may turn it around.
    assert (changed - weights).abs().gt(1e-4).float().mean() < 1e-3


def test_a_token_budget_changes_nothing(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty padded tokens a micro-batch instead of all."""
    expected, _, _ = update(tiny_model, ROWS)
    monkeypatch.setattr(learner_module, "MICRO_BATCH_TOKENS", 30)

    result, _, _ = update(tiny_model, ROWS)

    assert figures(result) == pytest.approx(figures(expected), rel=1e-5)


def test_row_order_changes_nothing(tiny_model: Path) -> None:
    """The rows reversed give the same figures to 1e-5."""
    expected, _, _ = update(tiny_model, ROWS)

    result, _, _ = update(tiny_model, ROWS[::-1])

    assert figures(result) == pytest.approx(figures(expected), rel=1e-5)


def test_the_loss_is_that_of_plain_python(tiny_model: Path) -> None:
    """The update's loss equals loops over the policy's own logits, to 1e-5."""
    result, _, _ = update(tiny_model, ROWS)
    _, _, policy = update(tiny_model, [])

    loss, tokens = 0.0, sum(row.transcript.sampled_tokens for row in ROWS)
    for row in ROWS:
        ids = row.transcript.token_ids
        with torch.no_grad():
            logits = policy.forward(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        logprobs = logits.double().log_softmax(-1)
        for place, (token, is_action, behaviour) in enumerate(
            zip(ids, row.transcript.action_mask, row.transcript.behaviour_logprobs, strict=True)
        ):
            if is_action:
                own = float(logprobs[place - 1, token])
                loss -= min(math.exp(own - behaviour), 5.0) * row.advantage * own / tokens

    assert result is not None
    assert result.loss == pytest.approx(loss, rel=1e-5)
    assert result.trained_tokens == tokens


def test_mini_batches_and_epochs_are_optimiser_steps(tiny_model: Path) -> None:
    """Twelve rows at five a step, twice over: six optimiser steps; the first is the fresh one."""
    result, _, _ = update(tiny_model, ROWS, evolve(ALGORITHM, mini_batch_size=5, update_epochs=2))

    assert result is not None
    assert result.optimiser_steps == 6
    assert result.trained_tokens == 2 * sum(row.transcript.sampled_tokens for row in ROWS)
    assert result.fresh.tokens < result.ratio.tokens


def test_an_update_moves_the_adapter_and_raises_what_was_good(tiny_model: Path) -> None:
    """After a step the rows with positive advantage are likelier, those with negative less."""
    good, bad = [make_row(1, 1.0)], [make_row(2, -1.0)]
    _, before, _ = update(tiny_model, [])
    result, after, policy = update(tiny_model, good + bad)

    _, _, untouched = update(tiny_model, [])
    assert result is not None
    assert not torch.equal(before, after)
    for rows, sign in ((good, 1), (bad, -1)):
        change = logprob(policy, rows) - logprob(untouched, rows)
        assert change * sign > 0


def logprob(policy: Policy, rows: list[TrainingRow]) -> float:
    from rltrain.batch import make_batch

    with torch.no_grad():
        batch = make_batch(rows, pad_id=policy.pad_id)
        return float(policy.token_logprobs(batch, temperature=1.0).logprobs.sum())


def test_without_signal_there_is_no_update(tiny_model: Path) -> None:
    """No rows, no optimiser step, no change."""
    result, _, _ = update(tiny_model, [])

    assert result is None


def test_a_kl_penalty_holds_the_policy_to_its_base(tiny_model: Path) -> None:
    """With a large beta and no advantage the gradient points back to the base model."""
    rows = [evolve(row, advantage=0.0) for row in ROWS]
    algorithm = evolve(ALGORITHM, beta=1.0)
    result, _, policy = update(tiny_model, rows, algorithm)

    assert result is not None
    assert result.loss == pytest.approx(0.0, abs=1e-9)  # a fresh adapter is the base
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    engine = Engine(policy.parameters(), Ranks(), max_grad_norm=1.0)
    learner = Learner(policy, engine, algorithm, Ranks())
    losses = [learner.update(rows, step=0, lr=1e-3) for _ in range(5)]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert 0 < losses[-1].loss < losses[0].loss


def test_a_gradient_that_is_not_finite_stops_before_the_weights(tiny_model: Path) -> None:
    """A NaN stops the run; the weights are those before."""
    policy = load_policy(
        Network(pretrained_model_name_or_path=str(tiny_model)),
        ALGORITHM,
        device=torch.device("cpu"),
    )
    before = [weight.detach().clone() for weight in policy.parameters()]
    engine = Engine(policy.parameters(), Ranks(), max_grad_norm=1.0)
    rows = [evolve(ROWS[0], advantage=math.nan)]

    with pytest.raises(RunStopped, match="nan"):
        Learner(policy, engine, ALGORITHM, Ranks()).update(rows, step=0, lr=1e-2)

    assert all(torch.equal(old, new) for old, new in zip(before, policy.parameters(), strict=True))


def rollout(group: int, reward: float | None, sampled: int = 2) -> Rollout:
    completion = Completion(
        key=0, token_ids=[7] * sampled, behaviour_logprobs=[-1.0] * sampled, finish="stop"
    )
    return Rollout(
        episode=Episode(group=group, seed=0, sample_seed=0),
        prompt="",
        transcript=Transcript().given([1]).sampled(completion),
        turns=(),
        reward=reward,
    )


def test_rows_are_the_scored_rollouts_of_groups_with_signal() -> None:
    """Unscored members and flat groups give no row; the others their advantage."""
    groups = [
        Group(0, (rollout(0, 1.0), rollout(0, 3.0), rollout(0, 2.0), rollout(0, None))),
        Group(1, (rollout(1, 1.0), rollout(1, 1.0))),
    ]

    rows = training_rows(groups, norm="mean_only")

    assert [row.advantage for row in rows] == [-1.0, 1.0, 0.0]


def test_the_schedule_warms_up_and_falls_along_a_cosine() -> None:
    """Hand-computed: half the peak at half the warm-up, the peak, the middle, the end."""
    schedule = ScheduleConfig(warmup_proportion=0.2, min_lr=1e-5)

    assert learning_rate(1e-3, None, 0.7) == 1e-3
    assert learning_rate(1e-3, schedule, 0.1) == pytest.approx(5e-4)
    assert learning_rate(1e-3, schedule, 0.2) == pytest.approx(1e-3)
    assert learning_rate(1e-3, schedule, 0.6) == pytest.approx((1e-3 + 1e-5) / 2)
    assert learning_rate(1e-3, schedule, 1.0) == pytest.approx(1e-5)
