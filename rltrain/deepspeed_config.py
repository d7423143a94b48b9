"""What DeepSpeed is told: a stage, or a file of its own, made to agree with the manifest.

Owns the rules between DeepSpeed's keys and the manifest's. Pure; DeepSpeed itself is `engine`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from .errors import SetupError
from .manifest import Algorithm

__all__ = ["DeepSpeedSettings", "deepspeed_settings"]

_STAGES = (0, 1, 2, 3)

_LAUNCHER_SWITCH = "ACCELERATE_USE_DEEPSPEED"

_RULED_OUT = {
    "optimizer": "the optimiser is AdamW with algorithm.lr",
    "scheduler": "the schedule is algorithm.cosine_lr_schedule_config",
    "gradient_accumulation_steps": (
        "how many micro-batches an optimiser step has follows from algorithm.mini_batch_size and "
        "algorithm.micro_batch_size_per_gpu"
    ),
}
"""Keys of DeepSpeed that say again what the manifest says, and the manifest's words for them."""


@frozen(kw_only=True)
class DeepSpeedSettings:
    """How DeepSpeed is used.

    Args:
        stage: ZeRO's stage.
        source: Where that was said, for messages.
        options: DeepSpeed's other keys, in its own form.
    """

    stage: int
    source: str
    options: Mapping[str, Any]


def deepspeed_settings(
    algorithm: Algorithm, variables: Mapping[str, str]
) -> DeepSpeedSettings | None:
    """Return what the manifest says about DeepSpeed, else what the launcher does; None: nothing.

    Args:
        algorithm: `deepspeed` is a stage or the path of DeepSpeed's own JSON file.
        variables: The environment, where `accelerate launch` and `deepspeed` leave their wishes.

    Raises:
        SetupError: The file cannot be read, or contradicts the manifest; every key is named.
    """
    wish = algorithm.deepspeed
    if isinstance(wish, int):
        return _of_stage(wish, "algorithm.deepspeed")
    if isinstance(wish, str):
        return _of_file(Path(wish), "algorithm.deepspeed", algorithm)
    if variables.get(_LAUNCHER_SWITCH, "").lower() == "true":
        return _of_accelerate(variables, algorithm)
    if "CROSS_SIZE" in variables and "LOCAL_SIZE" in variables:
        return _of_stage(0, "the deepspeed launcher")
    return None


def _of_stage(stage: int, source: str) -> DeepSpeedSettings:
    if stage not in _STAGES:
        raise SetupError(f"{source}: expected a ZeRO stage, 0 to 3, or a file, got {stage}")
    if stage == 3:
        raise SetupError(
            f"{source}: ZeRO stage 3 shards the base model, so that no rank can sample without "
            f"the others, and each samples its own rollouts: use stage 0, 1 or 2, which shard "
            f"all that is trained, and quantization: nf4 for a smaller base"
        )
    return DeepSpeedSettings(
        stage=stage, source=source, options={"zero_optimization": {"stage": stage}}
    )


def _of_accelerate(variables: Mapping[str, str], algorithm: Algorithm) -> DeepSpeedSettings:
    """Read what `accelerate launch` took from its own config file."""
    source = "accelerate's config"
    path = variables.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "")
    if path and path.lower() != "none":
        return _of_file(Path(path), source, algorithm)
    settings = _of_stage(int(variables.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "0")), source)
    device = variables.get("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none")
    zero: dict[str, Any] = {"stage": settings.stage}
    if device != "none" and settings.stage > 0:
        zero["offload_optimizer"] = {"device": device}
    return DeepSpeedSettings(
        stage=settings.stage, source=source, options={"zero_optimization": zero}
    )


def _of_file(path: Path, source: str, algorithm: Algorithm) -> DeepSpeedSettings:
    try:
        content = json.loads(path.read_text())
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise SetupError(f"{source}: {path}: expected DeepSpeed's JSON: {error}") from None
    if not isinstance(content, dict):
        raise SetupError(f"{source}: {path}: expected a JSON object")
    source = f"{source}: {path}"
    faults = list(_contradictions(content, algorithm))
    if faults:
        raise SetupError("\n".join([f"{source} contradicts the manifest:", *faults]))
    zero = content.get("zero_optimization", {})
    settings = _of_stage(zero.get("stage", 0) if isinstance(zero, dict) else -1, source)
    dropped = {*_RULED_OUT, *_numbers(algorithm), "bf16"}
    options = {key: value for key, value in content.items() if key not in dropped}
    return DeepSpeedSettings(stage=settings.stage, source=source, options=options)


def _numbers(algorithm: Algorithm) -> dict[str, tuple[str, float | None]]:
    """Return DeepSpeed's numbers that the manifest decides: its name for each, and its value."""
    return {
        "train_micro_batch_size_per_gpu": (
            "algorithm.micro_batch_size_per_gpu",
            algorithm.micro_batch_size_per_gpu,
        ),
        "train_batch_size": ("algorithm.mini_batch_size", algorithm.mini_batch_size),
        "gradient_clipping": ("algorithm.max_grad_norm", algorithm.max_grad_norm),
    }


def _contradictions(content: Mapping[str, Any], algorithm: Algorithm) -> Iterator[str]:
    """Give out a line for each key that says something else than the manifest."""
    for key, (name, value) in _numbers(algorithm).items():
        theirs = content.get(key, "auto")
        if theirs not in ("auto", value):
            ours = "not set" if value is None else f"{value:g}"
            yield f'  {key}: {theirs}, but {name}: {ours}; make them equal, or write "auto"'
    for key, words in _RULED_OUT.items():
        if content.get(key, "auto") != "auto":
            yield f'  {key}: {words}; leave it out, or write "auto"'
    fp16 = content.get("fp16", {})
    if isinstance(fp16, dict) and fp16.get("enabled", False) is True:
        yield (
            "  fp16.enabled: true, but the base is bf16 on a GPU and fp32 on a CPU, the adapter "
            "fp32; leave it out"
        )
