"""Which sampler a run has, and what it takes to build it: options, base, memory, turns.

Owns the order in which trainer and vLLM come to be: the trainer is loaded first and gone to the
host's memory when the engine measures what is free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from attrs import frozen

from .base_cache import dequantised_base
from .engine import Engine
from .manifest import Manifest
from .models import compute_dtype
from .parking import Parking
from .policy import Policy
from .sampler import Sampler
from .sampler.adapters import Adapters
from .sampler.hf import TransformersSampler
from .sampler.options import EngineOptions, engine_options
from .sampler.turns import Turns
from .sampler.vllm import VllmEngine, VllmSampler, can_sleep, engine_argument_names

__all__ = ["VllmPlan", "generation", "plan_vllm", "vllm_options"]


@frozen(kw_only=True)
class VllmPlan:
    """What vLLM is to load, and how.

    Args:
        base: A folder or hub id.
        options: The engine's.
    """

    base: str
    options: EngineOptions


def vllm_options(manifest: Manifest, device: torch.device) -> EngineOptions | None:
    """Return what the manifest asks of vLLM; None without vLLM.

    Raises:
        SetupError: An option is wrong.
    """
    if not manifest.algorithm.use_vllm:
        return None
    return engine_options(
        manifest.algorithm,
        lora_r=manifest.network.lora_config.lora_r,
        device=device.type,
        dtype=str(compute_dtype(device)).removeprefix("torch."),
        known=engine_argument_names(),
        can_sleep=can_sleep(),
    )


def plan_vllm(
    manifest: Manifest, device: torch.device, *, cache: Path, say: Callable[[str], None]
) -> VllmPlan | None:
    """Check what the manifest asks of vLLM and make its base ready; None without vLLM.

    Raises:
        SetupError: An option is wrong, or the base cannot be made.
    """
    algorithm, network = manifest.algorithm, manifest.network
    options = vllm_options(manifest, device)
    if options is None:
        return None
    for note in options.notes:
        say(f"note: algorithm.{note}")
    base = network.pretrained_model_name_or_path
    if algorithm.quantization != "none" and not options.is_own_quantization:
        base = str(dequantised_base(network, algorithm, device=device, cache=cache, say=say))
    return VllmPlan(base=base, options=options)


@contextmanager
def generation(policy: Policy, engine: Engine, plan: VllmPlan | None) -> Iterator[Sampler]:
    """Give the run's sampler, and take it down again.

    Raises:
        SetupError: vLLM's memory does not do.
    """
    if plan is None:
        yield TransformersSampler(policy)
        return
    device, level = policy.device, plan.options.sleep_level
    trainer = Parking(policy.frozen_tensors(), engine.tensors, device=device)
    if level in {1, 2}:
        trainer.leave()
    served = VllmEngine(plan.base, plan.options.arguments, context_length=policy.context_length)
    try:
        turns = Turns(served, trainer, level=level, memory_bytes=lambda: _used_bytes(device))
        turns.train()
        adapter_bytes = sum(weight.nbytes for weight in policy.parameters())
        with Adapters(policy.save_adapter, adapter_bytes=adapter_bytes) as adapters:
            yield VllmSampler(served, policy, adapters, turns)
    finally:
        served.close()


def _used_bytes(device: torch.device) -> int:
    """Return the memory in use: the whole device's, or of a CPU this process's."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return total - free
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
