"""`vllm_config` to an engine's options, and a lack of memory to words; without vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from rltrain.errors import SetupError
from rltrain.manifest import Algorithm
from rltrain.sampler.options import CacheNeed, EngineOptions, cache_error, engine_options

KNOWN = frozenset(
    {"model", "dtype", "gpu_memory_utilization", "max_num_seqs", "enforce_eager", "quantization",
     "max_lora_rank", "kv_cache_memory_bytes", "block_size", "tensor_parallel_size"}
)  # fmt: skip


def options(device: str = "cuda", *, lora_r: int = 8, **config: Any) -> EngineOptions:
    is_gpu = device == "cuda"
    return engine_options(
        Algorithm(batch_size=2, group_size=4, vllm_config=config),
        lora_r=lora_r,
        device=device,
        dtype="bfloat16" if is_gpu else "float32",
        known=KNOWN,
        can_sleep=is_gpu,
    )


def test_the_tutorials_options_arrive() -> None:
    """Share of memory, sequences, sleep; the logprobs are the processed ones, the rank a known."""
    result = options(gpu_memory_utilization=0.7, max_num_seqs=8, sleep_mode=True, lora_r=12)

    assert result.sleep_level == 1
    assert result.notes == ()
    expected = {
        "gpu_memory_utilization": 0.7,
        "max_num_seqs": 8,
        "enable_sleep_mode": True,
        "dtype": "bfloat16",
        "max_lora_rank": 16,
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
    }
    assert expected.items() <= result.arguments.items()
    assert "sleep_mode" not in result.arguments


@pytest.mark.parametrize(
    ("config", "level", "share"),
    [
        ({}, 1, 0.7),
        ({"sleep_mode": False}, None, 0.4),
        ({"sleep_mode_level": 0}, 0, 0.4),
        ({"sleep_mode_level": 2}, 2, 0.7),
    ],
)
def test_who_shares_the_gpu_gets_less_of_it(
    config: dict[str, Any], level: int | None, share: float
) -> None:
    """Where the trainer stays beside the engine, the engine takes 0.4 by default, else 0.7."""
    result = options(**config)

    assert result.sleep_level == level
    assert result.arguments["gpu_memory_utilization"] == share
    assert ("enable_sleep_mode" in result.arguments) == (level is not None)


def test_a_cpu_does_not_sleep_and_says_so_once() -> None:
    """One line each for what the manifest asks in vain; without the wish no line."""
    result = options("cpu", sleep_mode=True, gpu_memory_utilization=0.7)

    assert result.sleep_level is None
    assert [note.partition(":")[0] for note in result.notes] == [
        "vllm_config.sleep_mode",
        "vllm_config.gpu_memory_utilization",
    ]
    assert "enable_sleep_mode" not in result.arguments
    assert result.arguments["kv_cache_memory_bytes"] == 2**30
    assert options("cpu").notes == ()


def test_an_own_quantization_is_honoured_with_a_warning() -> None:
    """The engine quantises the original model by itself; the gap is named."""
    result = options(quantization="bitsandbytes")

    assert result.is_own_quantization
    assert result.arguments["quantization"] == "bitsandbytes"
    assert "training.max_policy_gap may stop the run" in result.notes[0]
    assert not options().is_own_quantization


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"gpu_memory_utilisation": 0.7}, "unknown key; did you mean gpu_memory_utilization?"),
        ({"qqq": 1}, "unknown key; vLLM has no such engine argument"),
        ({"sleepmode": True}, "did you mean sleep_mode?"),
        ({"model": "x"}, "network.pretrained_model_name_or_path"),
        ({"tensor_parallel_size": 2}, "one engine a process"),
        ({"sleep_mode": "yes"}, "expected true or false, got 'yes'"),
        ({"sleep_mode_level": 3}, "expected 0 .* 1 .* or 2 .*got 3"),
        ({"max_lora_rank": 4}, r"at least network.lora_config.lora_r \(8\), got 4"),
        ({"lora_r": 513}, "at most 512, got 513"),
    ],
)
def test_what_a_manifest_cannot_ask_is_refused(config: dict[str, Any], words: str) -> None:
    """Before any model loads, by name, with what to do."""
    with pytest.raises(SetupError, match=words):
        options(**config)


NEED = CacheNeed(
    layers=28, key_value_heads=2, head_size=128, bytes_per_value=2, context_length=32768
)


def test_one_sequence_is_counted_by_hand() -> None:
    """Keys and values, 28 layers, 2 heads of 128, two bytes, 32,768 positions: 0.875 GiB."""
    assert NEED.total_bytes == 2 * 28 * 2 * 128 * 2 * 32768 == 0.875 * 2**30


def explained(message: str, *, free: float, **arguments: Any) -> str:
    error = cache_error(
        message,
        find_need=lambda: NEED,
        arguments=arguments,
        free_bytes=int(free * 2**30),
        total_bytes=8 * 2**30,
    )
    return str(error)


def test_too_little_memory_is_explained_with_the_numbers() -> None:
    """Free, asked for, needed for one sequence, and which way to turn the knob."""
    message = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    low = explained(message, free=7, gpu_memory_utilization=0.25)
    assert "one sequence of 32768 tokens needs 0.875 GiB" in low
    assert "gpu_memory_utilization 0.25 allows vLLM 2 GiB" in low
    assert "of 8 GiB; free were 7 GiB" in low
    assert "Either raise it, or lower network.max_context_length (now 32768)" in low

    high = explained(
        "Free memory on device (3/8 GiB) is less than desired GPU memory utilization (0.9)",
        free=3,
        gpu_memory_utilization=0.9,
    )
    assert "Either lower it below what is free" in high

    fixed = explained(
        "To serve at least one request …, KV cache is needed", free=7, kv_cache_memory_bytes=2**20
    )
    assert "kv_cache_memory_bytes gives the cache 0.000977 GiB" in fixed
    assert f"raise it to {NEED.total_bytes} at least" in fixed


def test_other_errors_are_left_alone() -> None:
    """Only memory is explained so."""
    assert explained("unknown architecture", free=1) == "None"
