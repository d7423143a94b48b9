"""The data set benchmark measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_a_small_set_is_made_served_and_weighed(tmp_path: Path) -> None:
    """Every figure is there; a server of a mapped set holds more than one of bundled problems."""
    output = tmp_path / "bench.json"
    argv = [sys.executable, ROOT / "scripts" / "bench_datasets.py", "--rows", "40"]
    argv += ["--megabytes", "2", "--resets", "5", "--json", output]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)

    results = json.loads(output.read_text())

    assert list(results) == ["bundled", "first load", "later load"]
    for result in results.values():
        assert 0 < result["anonymous_mb_loaded"] < result["resident_mb_loaded"]
        assert 0 < result["reset_p50_ms"] <= result["reset_p99_ms"]
        assert 0 < result["step_p50_ms"] <= result["step_max_ms"]
        assert result["start_seconds"] > 0
    assert results["later load"]["resident_mb_loaded"] > results["bundled"]["resident_mb_loaded"]
