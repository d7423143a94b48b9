"""The losses: pure functions of logprobs, mask and advantages.

All take per-token tensors of one shape (any: rows × positions, packed, one position alone) and a
`token_count` fixed before the batch was split, so that the micro-batches' losses add up to the
batch's. `policy` is π, the current policy with its gradient; `behaviour` is μ, what the sampler
returned. Masked-out positions reach neither the loss nor the gradient, whatever stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from attrs import astuple, frozen
from torch import Tensor

__all__ = ["Loss", "RatioStats", "cispo", "grpo", "kl_penalty", "make_loss", "ratio_stats"]

Loss = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""(policy, behaviour, mask, advantages, token_count) → the loss, a scalar."""


def _log_ratio(policy: Tensor, behaviour: Tensor, mask: Tensor) -> Tensor:
    """Return log π − log μ, exactly 0 with a gradient of 0 where masked out."""
    return torch.where(mask, policy - behaviour, torch.zeros_like(policy))


def cispo(
    policy: Tensor,
    behaviour: Tensor,
    mask: Tensor,
    advantages: Tensor,
    token_count: int,
    *,
    cap: float,
) -> Tensor:
    """Return −(1/N) Σ sg(min(π/μ, cap)) · A · log π (MiniMax-M1, arXiv 2506.13585).

    The weight is a constant to the gradient and has no lower bound, so that every sampled token
    keeps its gradient, however rare the policy has come to find it.
    """
    weight = _log_ratio(policy, behaviour, mask).detach().exp().clamp(max=cap)
    logprobs = torch.where(mask, policy, torch.zeros_like(policy))
    return -(weight * advantages * logprobs).sum() / token_count


def grpo(
    policy: Tensor,
    behaviour: Tensor,
    mask: Tensor,
    advantages: Tensor,
    token_count: int,
    *,
    clip_range: float,
) -> Tensor:
    """Return −(1/N) Σ min(r·A, clip(r, 1−ε, 1+ε)·A) (GRPO, arXiv 2402.03300, token mean)."""
    ratio = _log_ratio(policy, behaviour, mask).exp()
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    return -torch.where(mask, surrogate, torch.zeros_like(surrogate)).sum() / token_count


def kl_penalty(policy: Tensor, reference: Tensor, mask: Tensor, token_count: int) -> Tensor:
    """Return (1/N) Σ (e^d − 1 − d) with d = log π_ref − log π: never negative, 0 where equal."""
    difference = _log_ratio(reference, policy, mask)
    return (difference.exp() - 1 - difference).sum() / token_count


def make_loss(name: str, *, importance_cap: float, clip_range: float) -> Loss:
    """Return the loss that a manifest's `algorithm.name` names."""
    if name == "CISPO":

        def loss(p: Tensor, b: Tensor, m: Tensor, a: Tensor, n: int) -> Tensor:
            return cispo(p, b, m, a, n, cap=importance_cap)

    else:
        assert name == "GRPO"

        def loss(p: Tensor, b: Tensor, m: Tensor, a: Tensor, n: int) -> Tensor:
            return grpo(p, b, m, a, n, clip_range=clip_range)

    return loss


@frozen(eq=False)
class RatioStats:
    """Sums over sampled tokens that tell how far π is from μ; they add up over micro-batches.

    With d = log π − log μ and r = e^d: Σ|d|, Σ(r − 1 − d) (the k3 estimate of KL(μ‖π)), how many
    r are above the cap, Σr and Σr² (effective sample size = (Σr)² / (N · Σr²)).
    """

    tokens: int
    absolute: float
    kl: float
    capped: float
    ratio: float
    ratio_squared: float

    @property
    def effective_sample_size(self) -> float:
        """(Σr)² / (N · Σr²): 1 where all ratios are equal, 1/N where one outweighs all others."""
        return self.ratio**2 / (self.tokens * self.ratio_squared)

    @classmethod
    def zero(cls) -> RatioStats:
        """Return the sums over no token."""
        return cls(0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def sums(self) -> tuple[float, ...]:
        """Return the sums as plain numbers, for a sum over ranks."""
        return astuple(self)

    @classmethod
    def of(cls, sums: Sequence[float]) -> RatioStats:
        """Return what `sums` gave, or the sum of several of them."""
        tokens, *rest = sums
        return cls(int(tokens), *rest)

    def __add__(self, other: RatioStats) -> RatioStats:
        return RatioStats.of([a + b for a, b in zip(self.sums(), other.sums(), strict=True)])


@torch.no_grad()
def ratio_stats(policy: Tensor, behaviour: Tensor, mask: Tensor, *, cap: float) -> RatioStats:
    """Return the sums over the tokens that the mask keeps."""
    difference = (policy - behaviour)[mask].double()  # [sampled tokens]
    ratio = difference.exp()  # [sampled tokens]
    sums = torch.stack(
        [
            difference.abs().sum(),
            (ratio - 1 - difference).sum(),
            (ratio > cap).sum(),
            ratio.sum(),
            ratio.square().sum(),
        ]
    )  # [5]
    return RatioStats(difference.numel(), *sums.tolist())
