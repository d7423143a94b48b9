"""What is looked at before a model loads: the servers, their capacity, the model's files.

Every refusal says what is missing and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .chat import Chat
from .environments import EnvironmentFacts, ask_facts, server_capacity
from .errors import SetupError
from .manifest import Manifest
from .policy import count_parameters, load_tokenizer

__all__ = ["check_capacity", "check_environment", "check_installation", "check_model"]

_BYTES_PER_WEIGHT = {"nf4": 0.56, "int8": 1.06}
"""With their scales; the embeddings of small models, which stay unquantised, weigh more."""


def check_installation(manifest: Manifest, *, world_size: int) -> None:
    """Refuse what this installation cannot do.

    Args:
        manifest: What is to run.
        world_size: How many processes the launcher started.

    Raises:
        SetupError: vLLM is asked for, or the processes cannot share the batch.
    """
    if manifest.algorithm.use_vllm:
        raise SetupError(
            "algorithm.use_vllm: the vLLM sampler is not there yet: set use_vllm: false to "
            "generate with Transformers"
        )
    if manifest.algorithm.batch_size % world_size:
        raise SetupError(
            f"algorithm.batch_size: expected a multiple of the {world_size} processes, each of "
            f"which plays whole groups; got {manifest.algorithm.batch_size}"
        )


def check_environment(manifest: Manifest, urls: Sequence[str]) -> EnvironmentFacts:
    """Reach the servers, count their sessions, and ask what they serve.

    Raises:
        SetupError: A server is not reached, lets us not in, or allows too few sessions.
    """
    capacities = [server_capacity(manifest.environment, url) for url in urls]
    check_capacity(manifest.algorithm.rollouts, capacities)
    return ask_facts(manifest.environment, urls[0])


def check_model(manifest: Manifest, device: torch.device) -> str:
    """Find the model, its tokenizer and its template; return a line about its size.

    Raises:
        SetupError: One of them is missing.
    """
    name, quantization = manifest.network.pretrained_model_name_or_path, "none"
    Chat(load_tokenizer(name), manifest.environment.chat_template_kwargs)
    count = count_parameters(name)
    if isinstance(manifest.algorithm.quantization, str):
        quantization = manifest.algorithm.quantization
    bytes_per_weight = _BYTES_PER_WEIGHT.get(quantization, 2 if device.type == "cuda" else 4)
    return (
        f"Model: {name}, {count / 1e6:,.1f} million parameters, {quantization}: about "
        f"{count * bytes_per_weight / 2**30:.2f} GiB of weights, and activations beside them"
    )


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
