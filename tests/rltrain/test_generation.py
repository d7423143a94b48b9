"""Whole runs that sample with vLLM: real servers, a real engine, a tiny model."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

torch = pytest.importorskip("torch")

from rltrain import generation  # noqa: E402
from rltrain.errors import RunStopped, SetupError  # noqa: E402
from rltrain.launch import Launch  # noqa: E402
from rltrain.manifest_file import read_manifest  # noqa: E402
from rltrain.metrics import read_records  # noqa: E402
from rltrain.sampler.vllm import is_installed  # noqa: E402

pytestmark = [
    pytest.mark.train,
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed(), reason="vLLM is not installed"),
]


@pytest.fixture
def write(tmp_path: Path, broad_model: Path, words_entrypoint: str) -> Callable[..., Path]:
    """Return a function that writes a manifest of three steps of 4 × 4, with changes."""

    def write(**sections: dict[str, Any]) -> Path:
        content: dict[str, dict[str, Any]] = {
            "algorithm": {
                "name": "CISPO",
                "batch_size": 4,
                "group_size": 4,
                "lr": 1e-2,
                "max_grad_norm": 1.0,
                "max_output_tokens": 6,
                "quantization": "nf4",
                "use_vllm": True,
            },
            "environment": {
                "entrypoint": words_entrypoint,
                "env_config": {"any_word": True},
                "max_turns": 1,
            },
            "training": {"max_steps": 48, "eval_loop": "all"},
            "network": {"pretrained_model_name_or_path": str(broad_model)},
        }
        for name, changes in sections.items():
            content[name].update(changes)
        path = tmp_path / "manifest.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return write


@pytest.fixture
def run(tmp_path: Path, write: Callable[..., Path]) -> Callable[..., Path]:
    """Return a function that trains in this process; its changes are as `write`'s."""

    def run(folder: str = "run", **sections: dict[str, Any]) -> Path:
        path = write(**sections)
        values, _ = read_manifest(path)
        Launch(
            manifest=values,
            source=path,
            folder=tmp_path / folder,
            device=torch.device("cpu"),
            cache=tmp_path / "cache",
        ).run()
        return tmp_path / folder

    return run


def test_a_run_samples_the_policy_that_it_trains(
    run: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Over an nf4 base with two turns: the gap is rounding at each step; the base is made once."""
    two_turns = {"max_turns": 2, "env_config": {"turns": 2, "any_word": True}}
    first = run(
        "first",
        algorithm={"vllm_config": {"sleep_mode": True, "gpu_memory_utilization": 0.7}},
        environment=two_turns,
        training={"max_steps": 96},
    )
    said = capsys.readouterr().out
    run("second", training={"max_steps": 16})
    said_again = capsys.readouterr().out

    metrics = read_records(first / "metrics.jsonl")
    gaps = [record["policy_gap"] for record in metrics if record["optimiser_steps"]]
    assert len(metrics) == 3
    assert gaps
    assert max(gaps) < 1e-5
    for record in metrics:
        assert list(record["memory_bytes"]) == [
            *("train_end", "generate_begin", "generate_end", "train_begin")
        ]
        assert record["sync_seconds"] > 0
    assert len(read_records(first / "evaluations.jsonl")) == 2
    assert "writing the dequantised model" in said
    assert said.count("policy gap on the first batch: ") == 1
    assert said.count("vLLM cannot sleep on cpu") == 1
    assert "dequantised" not in said_again


def test_a_base_that_is_not_the_trainers_stops_the_run(
    run: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, broad_model: Path
) -> None:
    """With the original weights below the adapter, the first batch that trains shows the gap."""
    monkeypatch.setattr(generation, "dequantised_base", lambda *_, **__: broad_model)

    with pytest.raises(RunStopped, match=r"not the same policy: mean .* is 0\.\d+ a token"):
        run()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"kv_cache_memory_bytes": 65536},
            r"No available memory for the cache blocks: one sequence of 512 tokens needs .* GiB",
        ),
        ({"max_num_seq": 8}, r"vllm_config\.max_num_seq: unknown key; did you mean max_num_seqs\?"),
    ],
)
def test_what_vllm_cannot_do_is_said_before_training(
    run: Callable[..., Path], config: dict[str, Any], words: str
) -> None:
    """Too little memory for the cache of one sequence, and a slip of the pen."""
    with pytest.raises(SetupError, match=words):
        run(algorithm={"vllm_config": config, "quantization": "none"})


def test_each_rank_has_an_engine_of_its_own(write: Callable[..., Path], tmp_path: Path) -> None:
    """Two processes with ZeRO 1, a vLLM each over one base: the gap is rounding, all end well."""
    result = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
            *("-m", "rltrain", write(algorithm={"deepspeed": 1}), "--device", "cpu"),
            *("--output", tmp_path / "run", "--cache-dir", tmp_path / "cache"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout
    assert "Traceback" not in result.stdout
    assert "Ranks: 2 | DeepSpeed: ZeRO 1" in result.stdout
    metrics = read_records(tmp_path / "run" / "metrics.jsonl")
    gaps = [record["policy_gap"] for record in metrics if record["optimiser_steps"]]
    assert len(metrics) == 3
    assert gaps
    assert max(gaps) < 1e-5
