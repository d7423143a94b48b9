"""The training benchmark measures what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")

pytestmark = pytest.mark.train

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench_train.py"


@pytest.mark.slow
def test_the_phases_and_the_loop_make_up_a_step(
    tmp_path: Path, tiny_model: Path, words_entrypoint: str
) -> None:
    """Three measured steps: all seconds are accounted for, and tokens were made and trained."""
    manifest = tmp_path / "manifest.yaml"
    content = {
        "algorithm": {"batch_size": 4, "group_size": 4, "lr": 1e-3, "max_output_tokens": 6},
        "environment": {
            "entrypoint": words_entrypoint,
            "env_config": {"any_word": True},
            "max_turns": 1,
        },
        "training": {"max_steps": 16, "eval_loop": 1},
        "network": {"pretrained_model_name_or_path": str(tiny_model)},
    }
    manifest.write_text(yaml.safe_dump(content))
    output = tmp_path / "figures.json"

    done = subprocess.run(
        [sys.executable, BENCH, manifest, "--steps", "3", "--json", output],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "loop beside the phases" in done.stdout
    figures = json.loads(output.read_text())["rltrain"]
    parts = [figures[f"{name}_seconds"] for name in ("generate", "train")]
    assert all(part > 0 for part in parts)
    assert sum(parts) < figures["step_seconds"] * 1.5  # medians of different steps
    assert 0 < figures["loop_share"] < 1
    assert figures["generated_tokens_per_second"] > 0
    assert figures["trained_tokens_per_second"] > 0
