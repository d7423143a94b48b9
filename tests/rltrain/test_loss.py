"""The losses against the hand-computed cases and against plain Python loops."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rltrain.loss import cispo, grpo, kl_penalty, make_loss, ratio_stats  # noqa: E402

pytestmark = pytest.mark.train

CASES: dict[str, Any] = json.loads((Path(__file__).parent / "cispo-cases.json").read_text())


def tensors(cases: dict[str, Any] = CASES) -> tuple[Any, Any, Any, Any]:
    """Return policy (with gradient), behaviour, mask and advantages of the cases, float64."""
    policy = torch.tensor(cases["pi"], dtype=torch.float64).log().requires_grad_()
    behaviour = torch.tensor(cases["mu"], dtype=torch.float64).log()
    mask = torch.tensor(cases["mask"], dtype=torch.bool)
    advantages = torch.tensor(cases["advantages"], dtype=torch.float64)[:, None].expand_as(policy)
    return policy, behaviour, mask, advantages


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: f"cap {case['cap']}")
def test_cispo_hits_the_hand_computed_cases(case: dict[str, Any]) -> None:
    """Loss and gradient are those computed by hand, to 1e-9."""
    policy, behaviour, mask, advantages = tensors()

    loss = cispo(policy, behaviour, mask, advantages, CASES["N"], cap=case["cap"])
    loss.backward()

    assert loss.item() == pytest.approx(case["loss"], abs=1e-9)
    expected = torch.tensor(case["grad"], dtype=torch.float64)
    assert torch.allclose(policy.grad, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES["must_differ"], ids=lambda case: case["name"])
def test_cispo_is_not_its_neighbours(case: dict[str, Any]) -> None:
    """PPO's clip, a weight with a gradient and a lower bound would give other gradients."""
    policy, behaviour, mask, advantages = tensors()
    cap = 6.0 if "cap 6" in case["name"] else 5.0

    cispo(policy, behaviour, mask, advantages, CASES["N"], cap=cap).backward()

    other = torch.tensor(case["grad"], dtype=torch.float64)
    assert not torch.allclose(policy.grad, other, rtol=0, atol=1e-3)


@pytest.mark.parametrize("case", CASES["logits"], ids=lambda case: f"T {case['temperature']}")
def test_the_gradient_reaches_the_logits_through_the_temperature(case: dict[str, Any]) -> None:
    """At temperature T the gradient of the logits is that of the scaled softmax, over T."""
    temperature = case["temperature"]
    probabilities = torch.tensor(case["p"], dtype=torch.float64)
    logits = (probabilities.log() * temperature).requires_grad_()
    policy = (logits / temperature).log_softmax(-1)[case["chosen"]].reshape(1, 1)
    behaviour = policy.detach() - math.log(case["weight"])
    advantages = torch.full_like(policy, case["advantage"])

    cispo(policy, behaviour, torch.tensor([[True]]), advantages, case["N"], cap=5.0).backward()

    expected = torch.tensor(case["grad"], dtype=torch.float64)
    assert torch.allclose(logits.grad, expected, rtol=0, atol=1e-12)


def test_on_policy_the_gradient_is_reinforce() -> None:
    """Where π = μ every token's gradient is −A/N."""
    policy, _, mask, advantages = tensors()

    cispo(policy, policy.detach().clone(), mask, advantages, 4, cap=5.0).backward()

    expected = torch.where(mask, -advantages / 4, 0.0)
    assert torch.allclose(policy.grad, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["CISPO", "GRPO"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_masked_position_reaches_neither_loss_nor_gradient(name: str, poison: float) -> None:
    """A NaN or infinite behaviour logprob at a masked position changes nothing."""
    loss_function = make_loss(name, importance_cap=5.0, clip_range=0.2)
    policy, behaviour, mask, advantages = tensors()
    clean = loss_function(policy, behaviour, mask, advantages, 4)
    clean.backward()
    gradient = policy.grad.clone()
    policy.grad = None

    poisoned = loss_function(policy, behaviour.masked_fill(~mask, poison), mask, advantages, 4)
    poisoned.backward()

    assert poisoned.item() == clean.item()
    assert torch.equal(policy.grad, gradient)


def plain_cispo(
    rows: list[list[tuple[float, float, float]]], count: int, cap: float
) -> tuple[float, list[float]]:
    """CISPO in plain Python: rows of (log π, log μ, A); the loss and each token's gradient."""
    loss, gradients = 0.0, []
    for row in rows:
        for policy, behaviour, advantage in row:
            weight = min(math.exp(policy - behaviour), cap)
            loss -= weight * advantage * policy / count
            gradients.append(-weight * advantage / count)
    return loss, gradients


def plain_grpo(
    rows: list[list[tuple[float, float, float]]], count: int, clip: float
) -> tuple[float, list[float]]:
    """GRPO in plain Python: the clipped side has no gradient where it is the smaller."""
    loss, gradients = 0.0, []
    for row in rows:
        for policy, behaviour, advantage in row:
            ratio = math.exp(policy - behaviour)
            bounded = max(1 - clip, min(ratio, 1 + clip))
            loss -= min(ratio * advantage, bounded * advantage) / count
            is_clipped = bounded * advantage < ratio * advantage
            gradients.append(0.0 if is_clipped else -ratio * advantage / count)
    return loss, gradients


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("loss_function", "plain"),
    [
        (lambda *a: cispo(*a, cap=3.0), lambda r, n: plain_cispo(r, n, 3.0)),
        (lambda *a: grpo(*a, clip_range=0.2), lambda r, n: plain_grpo(r, n, 0.2)),
    ],
    ids=["CISPO", "GRPO"],
)
def test_losses_agree_with_plain_loops_on_ragged_batches(
    seed: int, loss_function: Callable[..., Any], plain: Callable[..., tuple[float, list[float]]]
) -> None:
    """Loss and gradients equal those of plain loops over ragged rows, to 1e-9 in float64."""
    generator = random.Random(seed)
    rows = [
        [
            (generator.uniform(-4, 0), generator.uniform(-4, 0), advantage)
            for _ in range(generator.randint(1, 7))
        ]
        for advantage in (generator.uniform(-2, 2) for _ in range(6))
    ]
    count = sum(map(len, rows))
    longest = max(map(len, rows))
    padded = [row + [(math.nan, math.nan, 1.0)] * (longest - len(row)) for row in rows]
    values = torch.tensor(padded, dtype=torch.float64)
    mask = torch.tensor([[i < len(row) for i in range(longest)] for row in rows])
    policy = values[..., 0].nan_to_num(-1.0).requires_grad_()

    loss = loss_function(policy, values[..., 1], mask, values[..., 2], count)
    loss.backward()

    expected_loss, expected_gradients = plain(rows, count)
    assert loss.item() == pytest.approx(expected_loss, abs=1e-9)
    assert policy.grad[mask].tolist() == pytest.approx(expected_gradients, abs=1e-9)
    assert not policy.grad[~mask].any()


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_micro_batches_of_one_row_add_up(order: list[int]) -> None:
    """Two micro-batches of one row each, N passed in, give the same loss and gradient."""
    policy, behaviour, mask, advantages = tensors()
    whole = cispo(policy, behaviour, mask, advantages, 4, cap=5.0)
    whole.backward()
    gradient = policy.grad.clone()
    policy.grad = None

    losses = []
    for row in order:
        part = slice(row, row + 1)
        loss = cispo(policy[part], behaviour[part], mask[part], advantages[part], 4, cap=5.0)
        loss.backward()
        losses.append(loss.item())

    assert sum(losses) == pytest.approx(whole.item(), abs=1e-12)
    assert torch.allclose(policy.grad, gradient, rtol=0, atol=1e-12)


def test_packed_tokens_give_the_same_loss() -> None:
    """One flat row of all kept tokens has the padded batch's loss."""
    policy, behaviour, mask, advantages = tensors()
    padded = cispo(policy, behaviour, mask, advantages, 4, cap=5.0)

    packed = cispo(
        policy[mask], behaviour[mask], torch.ones(4, dtype=torch.bool), advantages[mask], 4, cap=5.0
    )

    assert packed.item() == pytest.approx(padded.item(), abs=1e-12)


def test_kl_penalty_is_zero_where_equal_and_positive_elsewhere() -> None:
    """The k3 estimate against its formula, and its gradient pulls towards the reference."""
    policy = torch.tensor([[-1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)
    mask = torch.ones(1, 2, dtype=torch.bool)

    penalty = kl_penalty(policy, reference, mask, 2)
    penalty.backward()

    assert penalty.item() == pytest.approx((math.e - 2) / 2)
    assert policy.grad[0].tolist() == pytest.approx([0.0, (1 - math.e) / 2])


def test_ratio_stats_against_hand_computed_sums() -> None:
    """Gap, KL, capped share and effective sample size of four tokens."""
    policy, behaviour, mask, _ = tensors()
    ratios = [1.0, 9.0, 0.5, 6.0]

    stats = ratio_stats(policy.detach(), behaviour, mask, cap=5.0)

    assert stats.tokens == 4
    assert stats.absolute == pytest.approx(sum(abs(math.log(r)) for r in ratios))
    assert stats.kl == pytest.approx(sum(r - 1 - math.log(r) for r in ratios))
    assert stats.capped == 2
    assert stats.effective_sample_size == pytest.approx(
        sum(ratios) ** 2 / (4 * sum(r * r for r in ratios))
    )
