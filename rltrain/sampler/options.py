"""The manifest's `vllm_config` to an engine's options, and an engine's lack of memory to words.

Pure: what vLLM knows comes in as arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any

from attrs import frozen

from ..errors import SetupError
from ..manifest import Algorithm
from .adapters import round_up_rank

__all__ = ["CacheNeed", "EngineOptions", "cache_error", "engine_options"]

_OURS = ("sleep_mode", "sleep_mode_level")

_SET_BY_RLTRAIN: Mapping[str, str] = {
    "model": "network.pretrained_model_name_or_path",
    "max_model_len": "network.max_context_length",
    "seed": "algorithm.seed",
    "enable_sleep_mode": "vllm_config.sleep_mode",
    "tensor_parallel_size": "one engine a process; launch more processes",
    "pipeline_parallel_size": "one engine a process; launch more processes",
    "data_parallel_size": "one engine a process; launch more processes",
    "enable_lora": "network.lora_config",
    "max_loras": "one adapter is trained",
    "max_cpu_loras": "one adapter is trained",
    "logprobs_mode": "the behaviour policy's logprobs",
    "skip_tokenizer_init": "text becomes tokens in rltrain",
    "generation_config": "algorithm.temperature and its neighbours",
    "disable_log_stats": "metrics.jsonl",
    "use_tqdm_on_load": "a run's own lines",
}
"""Options of the engine that a manifest cannot give, and what decides them."""

_UTILIZATION_ALONE = 0.7
_UTILIZATION_SHARED = 0.4
_CPU_CACHE_BYTES = 2**30
_GIB = 2**30


@frozen(kw_only=True)
class EngineOptions:
    """What to build an engine with.

    Args:
        arguments: vLLM's EngineArgs, less the model.
        sleep_level: As `Turns` has it.
        notes: Lines for the user.
    """

    arguments: Mapping[str, Any]
    sleep_level: int | None
    notes: tuple[str, ...] = ()

    @property
    def is_own_quantization(self) -> bool:
        """Whether the manifest wants vLLM to quantise by itself."""
        return bool(self.arguments.get("quantization"))


def engine_options(
    algorithm: Algorithm,
    *,
    lora_r: int,
    device: str,
    dtype: str,
    known: Collection[str],
    can_sleep: bool,
) -> EngineOptions:
    """Return the options of the engine that a manifest asks for.

    Args:
        algorithm: With its `vllm_config`.
        lora_r: The adapter's rank.
        device: `cpu` or `cuda`.
        dtype: The trainer's, as `float32`.
        known: The options that vLLM has.
        can_sleep: Whether it can sleep on this platform.

    Raises:
        SetupError: An option is unknown or not the manifest's to give.
    """
    given = dict(algorithm.vllm_config)
    _check_names(given, known)
    notes: list[str] = []
    level = _sleep_level(given, device, notes, can_sleep=can_sleep)
    for name in _OURS:
        given.pop(name, None)
    _check_rank(given, lora_r)
    if given.get("quantization"):
        notes.append(
            f"vllm_config.quantization: vLLM quantises by itself ({given['quantization']}), not as "
            f"the trainer does: the policies differ, training.max_policy_gap may stop the run"
        )
    if given.get("dtype", dtype) not in {dtype, "auto"}:
        notes.append(
            f"vllm_config.dtype: {given['dtype']} rounds otherwise than the trainer's {dtype}"
        )
    if device == "cpu" and given.pop("gpu_memory_utilization", None) is not None:
        notes.append(
            "vllm_config.gpu_memory_utilization: means nothing on a CPU, where "
            "kv_cache_memory_bytes (1 GiB) is the cache's size"
        )
    arguments = {
        "dtype": dtype,
        "max_num_seqs": min(256, algorithm.rollouts),
        **_memory_defaults(device, level),
        **given,
        "max_lora_rank": round_up_rank(int(given.get("max_lora_rank", lora_r))),
        "seed": algorithm.seed,
        "enable_lora": True,
        "max_loras": 1,
        "max_cpu_loras": 1,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
    }
    if device == "cpu":
        # A prompt in chunks rewinds its request's random numbers, which a CPU's cannot: it raises.
        arguments["enable_chunked_prefill"] = False
    if level is not None:
        arguments["enable_sleep_mode"] = True
    return EngineOptions(arguments=arguments, sleep_level=level, notes=tuple(notes))


def _memory_defaults(device: str, level: int | None) -> dict[str, Any]:
    if device == "cpu":
        return {"kv_cache_memory_bytes": _CPU_CACHE_BYTES, "enforce_eager": True}
    is_alone = level in {1, 2}
    return {"gpu_memory_utilization": _UTILIZATION_ALONE if is_alone else _UTILIZATION_SHARED}


def _check_names(given: Mapping[str, Any], known: Collection[str]) -> None:
    for name in given:
        if name in _SET_BY_RLTRAIN:
            raise SetupError(
                f"algorithm.vllm_config.{name}: not the manifest's to give: {_SET_BY_RLTRAIN[name]}"
            )
        if name in known or name in _OURS:
            continue
        near = difflib.get_close_matches(name, [*_OURS, *known], n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "vLLM has no such engine argument"
        raise SetupError(f"algorithm.vllm_config.{name}: unknown key; {hint}")


def _sleep_level(
    given: Mapping[str, Any], device: str, notes: list[str], *, can_sleep: bool
) -> int | None:
    wanted, level = given.get("sleep_mode", True), given.get("sleep_mode_level", 1)
    if not isinstance(wanted, bool):
        raise SetupError(
            f"algorithm.vllm_config.sleep_mode: expected true or false, got {wanted!r}"
        )
    if level not in (0, 1, 2) or isinstance(level, bool):
        raise SetupError(
            f"algorithm.vllm_config.sleep_mode_level: expected 0 (give up the key-value cache "
            f"alone), 1 (weights to host memory) or 2 (weights read again), got {level!r}"
        )
    if not wanted:
        return None
    if not can_sleep:
        if "sleep_mode" in given:
            notes.append(
                f"vllm_config.sleep_mode: vLLM cannot sleep on {device}: trainer and sampler stay "
                f"in memory side by side"
            )
        return None
    return int(level)


def _check_rank(given: Mapping[str, Any], lora_r: int) -> None:
    rank = given.get("max_lora_rank", lora_r)
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < lora_r:
        raise SetupError(
            f"algorithm.vllm_config.max_lora_rank: expected at least network.lora_config.lora_r "
            f"({lora_r}), got {rank!r}"
        )
    try:
        round_up_rank(rank)
    except ValueError as error:
        raise SetupError(f"network.lora_config.lora_r: {error} with use_vllm") from None


@frozen(kw_only=True)
class CacheNeed:
    """The key-value cache of one whole context, by the model's shape."""

    layers: int
    key_value_heads: int
    head_size: int
    bytes_per_value: int
    context_length: int

    @property
    def total_bytes(self) -> int:
        """Keys and values of every layer for every position."""
        per_token = 2 * self.layers * self.key_value_heads * self.head_size * self.bytes_per_value
        return per_token * self.context_length


def cache_error(
    message: str,
    *,
    find_need: Callable[[], CacheNeed],
    arguments: Mapping[str, Any],
    free_bytes: int,
    total_bytes: int,
) -> SetupError | None:
    """Return words for an engine's error about memory; None where it is about something else.

    Args:
        message: What vLLM said.
        find_need: Gives the cache of one context.
        arguments: What the engine was to be built with.
        free_bytes: Device memory that was free before it was built.
        total_bytes: What the device has.
    """
    signs = ("No available memory for the cache", "KV cache is needed", "memory utilization")
    if not any(sign in " ".join(message.split()) for sign in signs):
        return None
    need = find_need()
    fixed = arguments.get("kv_cache_memory_bytes")
    if fixed:
        asked = f"vllm_config.kv_cache_memory_bytes gives the cache {_gib(fixed)}"
        knob = f"raise it to {need.total_bytes} at least"
    else:
        share = arguments.get("gpu_memory_utilization", _UTILIZATION_ALONE)
        asked = (
            f"vllm_config.gpu_memory_utilization {share} allows vLLM {_gib(share * total_bytes)}, "
            f"weights and activations included, of {_gib(total_bytes)}; free were "
            f"{_gib(free_bytes)}"
        )
        knob = (
            "raise it"
            if share * total_bytes <= free_bytes
            else "lower it below what is free, or free memory (other processes on this GPU?)"
        )
    return SetupError(
        f"vLLM: No available memory for the cache blocks: one sequence of {need.context_length} "
        f"tokens needs {_gib(need.total_bytes)} of cache; {asked}. Either {knob}, or lower "
        f"network.max_context_length (now {need.context_length}); sleep_mode: true gives vLLM the "
        f"trainer's memory, quantization: none and a smaller model leave more"
    )


def _gib(count: float) -> str:
    return f"{count / _GIB:.3g} GiB"
