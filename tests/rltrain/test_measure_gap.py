"""The script that measures the policy gap: its three cases come out as they should."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import measure_gap

from rltrain.sampler.vllm import is_installed

pytestmark = [
    pytest.mark.train,
    pytest.mark.slow,
    pytest.mark.skipif(not is_installed(), reason="vLLM is not installed"),
]


def test_only_the_original_base_is_another_policy(
    broad_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside an nf4 trainer it is off by far more than rounding; the other two are not."""
    options = ["--device", "cpu", "--completions", "8", "--cache-dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["measure_gap.py", str(broad_model), *options])

    measure_gap.main()

    output = capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if "e-" in line]
    assert [row[:2] for row in rows] == [
        ["nf4", "original"],
        ["nf4", "dequantised"],
        ["none", "original"],
    ]
    original, dequantised, plain = (float(row[2]) for row in rows)
    assert original > 1e-2
    assert max(dequantised, plain) < 1e-5
