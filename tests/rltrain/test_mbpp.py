"""A public data set served as it is, and a step of training on it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import pytest
import yaml
from server_process import ServerProcess

from rltrain.metrics import read_records

pytest.importorskip("torch")

MBPP = Path(__file__).parents[3] / "shared" / "data" / "mbpp.jsonl"
ROWS = 4

pytestmark = [
    pytest.mark.train,
    pytest.mark.slow,
    pytest.mark.skipif(not MBPP.exists(), reason=f"no data set at {MBPP}"),
]


def answers() -> list[str]:
    """Return a right answer to each of the first problems."""
    with MBPP.open() as lines:
        rows = [json.loads(line) for line in islice(lines, ROWS)]
    return [f"```python\n{json.loads(row['solutions'])[0]}\n```\n" for row in rows]


def test_a_step_on_mbpp(
    start_server: Callable[..., ServerProcess],
    model_of: Callable[[Sequence[str]], Path],
    tmp_path: Path,
) -> None:
    """A model that answers one problem or another is right now and then, and is trained on it.

    Each of its words is a whole answer, so that a model of random weights has one.
    """
    env_config = {"dataset": str(MBPP), "max_rows": ROWS, "evaluation_fraction": 0}
    server = start_server("--max-concurrent-envs", "17", "--env-config", json.dumps(env_config))
    manifest = {
        "algorithm": {
            "name": "CISPO",
            "batch_size": 2,
            "group_size": 8,
            "lr": 1e-2,
            "max_output_tokens": 2,
            "quantization": "none",
        },
        "environment": {"env_url": server.url, "max_turns": 1, "max_reward": 1.0},
        "training": {"max_steps": 16},
        "network": {
            "pretrained_model_name_or_path": str(model_of(answers())),
        },
    }
    path, folder = tmp_path / "manifest.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(manifest))

    subprocess.run(
        [sys.executable, "-m", "rltrain", path, "--output", folder], check=True, timeout=300
    )

    (step,) = read_records(folder / "metrics.jsonl")
    assert f"{MBPP}: {ROWS} training and 0 held-out rows, 12 tests" in server.log()
    assert sum(step["verdicts"].values()) == 16
    assert 0 < step["verdicts"]["AC"] < 16
    assert step["optimiser_steps"] > 0
