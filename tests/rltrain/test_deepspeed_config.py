"""DeepSpeed's settings: where they come from, and that they cannot contradict the manifest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rltrain.deepspeed_config import deepspeed_settings
from rltrain.errors import SetupError
from rltrain.manifest import Algorithm


def test_without_a_wish_there_is_no_deepspeed() -> None:
    """Neither the manifest nor a launcher asks: plain torch."""
    assert deepspeed_settings(Algorithm(), {"RANK": "0", "WORLD_SIZE": "2"}) is None


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_stage_is_enough(stage: int) -> None:
    """`deepspeed: 2` is ZeRO 2 and nothing else."""
    settings = deepspeed_settings(Algorithm(deepspeed=stage), {})

    assert settings is not None
    assert settings.stage == stage
    assert settings.options == {"zero_optimization": {"stage": stage}}


@pytest.mark.parametrize(
    ("stage", "words"), [(3, "ZeRO stage 3 shards the base model"), (4, "expected a ZeRO stage")]
)
def test_a_stage_that_does_not_work_is_refused(stage: int, words: str) -> None:
    """Stage 3 with its reason, numbers that are no stage with what was expected."""
    with pytest.raises(SetupError, match=rf"algorithm\.deepspeed: {words}"):
        deepspeed_settings(Algorithm(deepspeed=stage), {})


def write(path: Path, content: dict[str, Any]) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def test_a_file_that_agrees_is_taken_over(tmp_path: Path) -> None:
    """Equal values and "auto" are no contradiction; what is DeepSpeed's own goes through."""
    zero = {"stage": 2, "overlap_comm": False, "offload_optimizer": {"device": "cpu"}}
    path = write(
        tmp_path / "ds.json",
        {
            "train_micro_batch_size_per_gpu": 4,
            "train_batch_size": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": 0.1,
            "bf16": {"enabled": True},
            "zero_optimization": zero,
            "wall_clock_breakdown": True,
        },
    )

    settings = deepspeed_settings(Algorithm(deepspeed=path, micro_batch_size_per_gpu=4), {})

    assert settings is not None
    assert settings.stage == 2
    assert settings.options == {"zero_optimization": zero, "wall_clock_breakdown": True}


def test_a_file_that_contradicts_is_refused_with_both_names(tmp_path: Path) -> None:
    """Every key is named, with the manifest's own for it."""
    path = write(
        tmp_path / "ds.json",
        {
            "train_micro_batch_size_per_gpu": 8,
            "train_batch_size": 64,
            "gradient_accumulation_steps": 4,
            "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW"},
            "scheduler": {"type": "WarmupLR"},
            "fp16": {"enabled": True},
        },
    )

    with pytest.raises(SetupError) as caught:
        deepspeed_settings(Algorithm(deepspeed=path, mini_batch_size=32), {})

    first, *lines = str(caught.value).splitlines()
    assert first == f"algorithm.deepspeed: {path} contradicts the manifest:"
    assert [line.split()[0] for line in lines] == [
        "train_micro_batch_size_per_gpu:",
        "train_batch_size:",
        "gradient_clipping:",
        "optimizer:",
        "scheduler:",
        "gradient_accumulation_steps:",
        "fp16.enabled:",
    ]
    assert "algorithm.micro_batch_size_per_gpu: not set" in lines[0]
    assert "64, but algorithm.mini_batch_size: 32" in lines[1]
    assert "1.0, but algorithm.max_grad_norm: 0.1" in lines[2]


@pytest.mark.parametrize("text", ["{", "[1]"])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    """Broken JSON, a list, no file: each in words."""
    path = tmp_path / "ds.json"
    path.write_text(text)

    with pytest.raises(SetupError, match=r"ds\.json: expected"):
        deepspeed_settings(Algorithm(deepspeed=str(path)), {})
    with pytest.raises(SetupError, match=r"none\.json: expected DeepSpeed's JSON"):
        deepspeed_settings(Algorithm(deepspeed=str(tmp_path / "none.json")), {})


def test_launchers_can_ask(tmp_path: Path) -> None:
    """Accelerate's stage and offload or its file; the deepspeed launcher alone is stage 0."""
    accelerate = {
        "ACCELERATE_USE_DEEPSPEED": "true",
        "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2",
        "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "cpu",
        "ACCELERATE_DEEPSPEED_CONFIG_FILE": "none",
    }
    path = write(tmp_path / "ds.json", {"zero_optimization": {"stage": 1}})

    inline = deepspeed_settings(Algorithm(), accelerate)
    file = deepspeed_settings(Algorithm(), {**accelerate, "ACCELERATE_DEEPSPEED_CONFIG_FILE": path})
    own = deepspeed_settings(Algorithm(), {"CROSS_SIZE": "1", "LOCAL_SIZE": "2"})
    manifests = deepspeed_settings(Algorithm(deepspeed=1), accelerate)

    assert inline is not None
    assert inline.options["zero_optimization"] == {
        "stage": 2,
        "offload_optimizer": {"device": "cpu"},
    }
    assert file is not None
    assert own is not None
    assert manifests is not None
    assert (file.stage, own.stage, manifests.stage) == (1, 0, 1)
