"""`pip install .` in a fresh virtual environment gives a light server that works."""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from server_process import serve

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "transformers", "numpy", "datasets", "vllm")


@pytest.mark.slow
def test_a_plain_install_serves_without_torch(tmp_path: Path) -> None:
    """The base dependencies suffice to judge a program, and none of them is heavy."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "constraints-cpu.txt"):
        shutil.copy(ROOT / name, source)
    for name in ("envhost", "rltrain"):
        shutil.copytree(ROOT / name, source / name)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", "-c", "constraints-cpu.txt", "."]
    subprocess.run(install, check=True, cwd=source)
    subprocess.run([python, "-m", "pip", "check"], check=True)
    listing = [python, "-m", "pip", "list", "--format", "freeze"]
    shown = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    installed = {line.partition("==")[0].lower() for line in shown.splitlines()}
    assert "envhost" in installed
    assert installed.isdisjoint(HEAVY)
    with serve(tmp_path, python=python, cwd=tmp_path) as server:
        probe = [python, "-m", "envhost", "probe", server.url, "--answer", "-"]
        answer = "```python\nprint(1)\n```"
        said = subprocess.run(
            probe, check=True, capture_output=True, text=True, input=answer, cwd=tmp_path
        )
        assert "verdict" in said.stdout
        with urllib.request.urlopen(server.url, timeout=30) as page:
            assert b"<title>envhost</title>" in page.read()
        assert server.stop() == 0
