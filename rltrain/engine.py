"""The optimiser and the ranks: backward, sum, clip, step, in plain torch or with DeepSpeed.

Both engines are AdamW over the adapter's weights and give the same numbers; DeepSpeed shards the
optimiser's state over the ranks (ZeRO 1) and the gradients too (ZeRO 2), and can keep the state in
the CPU's memory. DeepSpeed is given the adapter alone: the base, quantised or not, is the same on
every rank and never changes, so there is nothing to broadcast, cast or shard.

Goal: the sum over ranks, not their mean, since the loss is already divided by all tokens.
Weak point: the state's way in and out of ZeRO's flat partitions leans on DeepSpeed's
`tensor_fragment` functions, which its documentation calls safe and its releases have kept.
"""

from __future__ import annotations

import logging
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from .deepspeed_config import DeepSpeedSettings
from .errors import RunStopped, SetupError
from .manifest import ScheduleConfig
from .ranks import Ranks

__all__ = ["DeepSpeedEngine", "Engine", "check_deepspeed", "learning_rate", "make_engine"]

_STATE_KEYS = ("exp_avg", "exp_avg_sq")


def learning_rate(peak: float, schedule: ScheduleConfig | None, progress: float) -> float:
    """Return the learning rate at a share of the run, between 0 and 1.

    Without a schedule it is constant; with one it rises linearly over the warm-up and falls along
    a half cosine to `min_lr`.
    """
    if schedule is None:
        return peak
    if progress < schedule.warmup_proportion:
        return peak * progress / schedule.warmup_proportion
    rest = (progress - schedule.warmup_proportion) / max(1 - schedule.warmup_proportion, 1e-9)
    cosine = 0.5 * (1 + math.cos(math.pi * min(rest, 1.0)))
    return schedule.min_lr + (peak - schedule.min_lr) * cosine


def make_engine(
    parameters: Sequence[nn.Parameter],
    ranks: Ranks,
    settings: DeepSpeedSettings | None,
    *,
    max_grad_norm: float,
) -> Engine:
    """Return plain torch's engine, or DeepSpeed's where there are settings for it.

    Raises:
        SetupError: DeepSpeed refuses its settings.
    """
    if settings is None:
        return Engine(parameters, ranks, max_grad_norm=max_grad_norm)
    return DeepSpeedEngine(parameters, ranks, settings, max_grad_norm=max_grad_norm)


def check_deepspeed(settings: DeepSpeedSettings | None) -> None:
    """Refuse to use DeepSpeed where there is none; importing it takes seconds, so only look.

    Raises:
        SetupError: It is asked for and not installed.
    """
    if settings is not None and find_spec("deepspeed") is None:
        raise SetupError(
            f"{settings.source}: DeepSpeed is not installed: pip install "
            f"'envhost[train,deepspeed]', or go without it: the numbers are the same"
        )


class Engine:
    """AdamW over the adapter's weights, in plain torch.

    Args:
        parameters: What is trained; the same values on every rank.
        ranks: Whose gradients are summed.
        max_grad_norm: The gradient's Euclidean norm is scaled down to this.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], ranks: Ranks, *, max_grad_norm: float
    ) -> None:
        self._parameters = list(parameters)
        self._ranks = ranks
        self._max_grad_norm = max_grad_norm
        self._optimiser = _adamw(self._parameters)

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add a micro-batch's gradient; every rank calls this equally often.

        Args:
            loss: This rank's part of the loss.
            is_last: No other micro-batch comes before the step.
        """
        torch.autograd.backward(loss)
        if is_last:
            self._ranks.add(_gradients(self._parameters))

    def step(self, lr: float) -> float:
        """Take one optimiser step and forget the gradient; return its norm before clipping.

        Raises:
            RunStopped: The gradient is not finite; no weight has changed.
        """
        norm = self._clip()
        for group in self._optimiser.param_groups:
            group["lr"] = lr
        self._optimiser.step()
        self._optimiser.zero_grad()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state, the same on every rank and for either engine."""
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the state that either engine's `state_dict` gave, and weights set since."""
        self._optimiser.load_state_dict(state)

    def tensors(self) -> list[Tensor]:
        """Return what may be moved to other memory between steps: weights and optimiser state."""
        states = self._optimiser.state.values()
        kept = [value for state in states for value in state.values()]
        return [*self._parameters, *(value for value in kept if isinstance(value, Tensor))]

    def _clip(self) -> float:
        norm = float(nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm))
        if not math.isfinite(norm):
            self._optimiser.zero_grad()
            raise _not_finite(norm)
        return norm


class DeepSpeedEngine(Engine):
    """AdamW over the adapter's weights, run by DeepSpeed.

    Args:
        parameters: What is trained; the same values on every rank.
        ranks: Whose gradients are summed.
        settings: ZeRO's stage and DeepSpeed's own keys.
        max_grad_norm: The gradient's Euclidean norm is scaled down to this.

    Raises:
        SetupError: DeepSpeed refuses the settings.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        ranks: Ranks,
        settings: DeepSpeedSettings,
        *,
        max_grad_norm: float,
    ) -> None:
        super().__init__(parameters, ranks, max_grad_norm=max_grad_norm)
        self._is_sharded = settings.stage > 0
        self._engine = _initialised(
            self._parameters,
            self._optimiser,
            {
                **settings.options,
                "train_micro_batch_size_per_gpu": 1,  # micro-batches are cut by the learner
                "gradient_accumulation_steps": 1,
                # Stage 0 leaves clipping to us: it would take a step along a gradient of NaN.
                "gradient_clipping": max_grad_norm if self._is_sharded else 0.0,
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,  # which would be compiled at the start
                "steps_per_print": 2**31,
            },
            settings.source,
        )

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add a micro-batch's gradient; every rank calls this equally often."""
        self._engine.set_gradient_accumulation_boundary(is_boundary=is_last)
        # DeepSpeed takes the mean over the ranks; theirs have to be summed.
        self._engine.backward(loss * self._ranks.world_size, scale_wrt_gas=False)

    def step(self, lr: float) -> float:
        """Take one optimiser step and forget the gradient; return its norm before clipping."""
        norm = 0.0 if self._is_sharded else self._clip()
        for group in self._engine.optimizer.param_groups:
            group["lr"] = lr
        with _quiet():
            self._engine.step()
        if self._is_sharded:
            norm = float(self._engine.get_global_grad_norm())
            if self._engine.optimizer.overflow or not math.isfinite(norm):
                raise _not_finite(norm)
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state as plain torch's engine has it; collective."""
        if not self._is_sharded:
            return super().state_dict()
        from deepspeed.utils import safe_get_full_optimizer_state

        flat = self._flat
        steps = self._sharded_state.get(flat, {}).get("step")
        states: dict[int, dict[str, Tensor]] = {}
        if steps is not None:
            for index, weight in enumerate(self._parameters):
                states[index] = {"step": steps.detach().clone()}
                for key in _STATE_KEYS:
                    states[index][key] = safe_get_full_optimizer_state(weight, key)
        template = _adamw(self._parameters).state_dict()
        template["param_groups"][0]["lr"] = self._engine.optimizer.param_groups[0]["lr"]
        return {**template, "state": states}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the state that either engine's `state_dict` gave, and weights set since."""
        if not self._is_sharded:
            super().load_state_dict(state)
            return
        from deepspeed.utils import (
            lazy_init_hp_params_optimizer_state,
            safe_set_full_fp32_param,
            safe_set_full_optimizer_state,
        )

        plain = _adamw(self._parameters)  # checks that the state fits, as plain torch does
        plain.load_state_dict(state)
        for weight in self._parameters:
            safe_set_full_fp32_param(weight, weight.detach().float())
        if not plain.state:
            return
        flat = self._flat
        first = plain.state[self._parameters[0]]
        self._sharded_state[flat] = {
            "step": first["step"].clone(),
            **{key: torch.zeros_like(flat) for key in _STATE_KEYS},
        }
        lazy_init_hp_params_optimizer_state(self._parameters, flat, self._sharded_state)
        for weight in self._parameters:
            for key in _STATE_KEYS:
                safe_set_full_optimizer_state(weight, plain.state[weight][key], key)

    def tensors(self) -> list[Tensor]:
        """Return what may be moved; nothing of what ZeRO has laid out, which is small."""
        return [] if self._is_sharded else super().tensors()

    @property
    def _flat(self) -> Tensor:
        """This rank's share of all weights, in one piece."""
        flat: Tensor = self._optimiser.param_groups[0]["params"][0]
        return flat

    @property
    def _sharded_state(self) -> Any:
        return self._optimiser.state


def _adamw(parameters: Sequence[nn.Parameter]) -> torch.optim.AdamW:
    return torch.optim.AdamW(parameters, lr=0.0, weight_decay=0.0)


def _gradients(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the gradients; a weight that had none gets zeros, for the sum over ranks."""
    for weight in parameters:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    return [weight.grad for weight in parameters if weight.grad is not None]


def _not_finite(norm: float) -> RunStopped:
    return RunStopped(f"the gradient's norm is {norm}: no weight was changed")


def _initialised(
    parameters: Sequence[nn.Parameter],
    optimiser: torch.optim.Optimizer,
    config: dict[str, Any],
    source: str,
) -> Any:
    """Start DeepSpeed over the adapter's weights, without a launcher and without a compiler."""
    device = parameters[0].device
    os.environ.setdefault("DS_ACCELERATOR", device.type)
    with _quiet():
        import deepspeed
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    if device.type == "cpu":
        # An all-reduce for inference, built with g++ at the first start: 25 to 40 s for nothing.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    _join_alone()
    try:
        with _quiet():
            engine, *_ = deepspeed.initialize(
                model=_Adapter(parameters), optimizer=optimiser, config=config
            )
    except (ValueError, TypeError, AssertionError) as error:
        raise SetupError(f"{source}: DeepSpeed says: {error}") from error
    return engine


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what DeepSpeed's calls warn of from the user: names that torch is about to change."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _join_alone() -> None:
    """Make the world of one process that DeepSpeed wants, where no launcher made one."""
    import torch.distributed as dist

    if dist.is_initialized():
        return
    # Without these DeepSpeed looks for MPI.
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1")):
        os.environ.setdefault(name, value)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]  # no __all__
    dist.init_process_group(backend, store=store, rank=0, world_size=1)


class _Adapter(nn.Module):
    """The trained weights as a module of their own: all of the model that DeepSpeed sees."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(parameters)
