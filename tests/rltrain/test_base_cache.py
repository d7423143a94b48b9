"""The dequantised base on disk: made once, whole or absent, of the trainer's own weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rltrain import base_cache  # noqa: E402
from rltrain.base_cache import default_cache, dequantised_base  # noqa: E402
from rltrain.errors import SetupError  # noqa: E402
from rltrain.manifest import Algorithm, Network  # noqa: E402
from rltrain.policy import load_policy  # noqa: E402

pytestmark = pytest.mark.train

CPU = torch.device("cpu")


def make(model: Path, cache: Path, quantization: Any = "nf4") -> tuple[Path, list[str]]:
    """Return the base's folder and what was said."""
    said: list[str] = []
    folder = dequantised_base(
        Network(pretrained_model_name_or_path=str(model)),
        Algorithm(quantization=quantization),
        device=CPU,
        cache=cache,
        say=said.append,
    )
    return folder, said


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
def test_it_is_the_trainers_base(tiny_model: Path, tmp_path: Path, quantization: str) -> None:
    """Its logits are those of the quantised model to rounding, and not those of the original."""
    folder, _ = make(tiny_model, tmp_path / "cache", quantization)
    ids = torch.arange(5, 25)[None]

    def logits(model: Path, quantization: str) -> torch.Tensor:
        policy = load_policy(
            Network(pretrained_model_name_or_path=str(model)),
            Algorithm(quantization=quantization),
            device=CPU,
        )
        with policy.generating():
            return policy.forward(input_ids=ids, use_cache=False).logits

    shutil.copytree(tiny_model, tmp_path / "base")
    for file in folder.glob("*"):
        shutil.copy(file, tmp_path / "base")  # the tokenizer stays, the weights are replaced
    trained = logits(tiny_model, quantization)
    served = logits(tmp_path / "base", "none")
    original = logits(tiny_model, "none")

    rounding = 1e-4 if quantization == "nf4" else 0.2  # int8 rounds activations too
    assert (trained - served).abs().max() < rounding
    if quantization == "nf4":
        assert (trained - original).abs().max() > 0.1
    assert "quantization_config" not in json.loads((folder / "config.json").read_text())


def test_it_is_made_once_for_each_setting(tiny_model: Path, tmp_path: Path) -> None:
    """The same settings find it; other ones, and a model that changed, have their own folder."""
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    first, said = make(model, tmp_path / "cache")
    again, said_again = make(model, tmp_path / "cache")
    double, _ = make(
        model, tmp_path / "cache", {"load_in_4bit": True, "bnb_4bit_use_double_quant": True}
    )
    os.utime(model / "model.safetensors", ns=(1, 1))
    changed, _ = make(model, tmp_path / "cache")

    assert first == again
    assert len({first, double, changed}) == 3
    assert said[0].startswith("Base: writing the dequantised model")
    assert "GiB" in said[0]
    assert str(first) in said[0]
    assert said_again == []


def test_another_version_of_a_library_makes_another(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounding may change with it."""
    first, _ = make(tiny_model, tmp_path)
    monkeypatch.setattr(base_cache, "version", lambda library: f"{library} of tomorrow")

    assert make(tiny_model, tmp_path)[0] != first


def test_a_full_disk_is_refused_with_the_numbers(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is loaded."""
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))

    with pytest.raises(SetupError, match=r"--cache-dir .*: .* needed .*, .* free: make room"):
        make(tiny_model, tmp_path / "cache")


def test_a_place_that_cannot_be_written_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    """By name, in one line."""
    (tmp_path / "file").write_text("")

    with pytest.raises(SetupError, match=r"--cache-dir .*file: cannot be written"):
        make(tiny_model, tmp_path / "file")


WRITER = """
import sys, time
from pathlib import Path
import torch
from rltrain import base_cache
from rltrain.manifest import Algorithm, Network
save = base_cache.save_dequantised
def slowly(*positional, folder, **named):
    save(*positional, folder=folder, **named)
    print("written", flush=True)
    sys.stdin.readline()
base_cache.save_dequantised = slowly
folder = base_cache.dequantised_base(
    Network(pretrained_model_name_or_path=sys.argv[1]), Algorithm(quantization="nf4"),
    device=torch.device("cpu"), cache=Path(sys.argv[2]), say=lambda line: None)
print(folder.name, flush=True)
"""


def start_writer(model: Path, cache: Path) -> subprocess.Popen[str]:
    """Start a process that stops when the weights are written and waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, model, cache],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


@pytest.mark.slow
def test_a_kill_leaves_nothing_that_looks_whole(tiny_model: Path, tmp_path: Path) -> None:
    """After SIGKILL in the middle the base is made anew, and the broken one is gone."""
    process = start_writer(tiny_model, tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert len(list(tmp_path.glob(".partial-*"))) == 1

    folder, said = make(tiny_model, tmp_path)

    assert "writing" in said[0]
    assert (folder / "model.safetensors").exists()
    assert list(tmp_path.glob(".partial-*")) == []


@pytest.mark.slow
def test_two_runs_write_it_once(tiny_model: Path, tmp_path: Path) -> None:
    """The second one says that it waits, and finds what the first one wrote."""
    process = start_writer(tiny_model, tmp_path)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        assert process.stdin is not None
        process.stdin.write("go on\n")
        process.stdin.flush()

    folder = dequantised_base(
        Network(pretrained_model_name_or_path=str(tiny_model)),
        Algorithm(quantization="nf4"),
        device=CPU,
        cache=tmp_path,
        say=say,
    )

    assert said == ["Base: another process is writing the dequantised model: waiting for it"]
    assert process.communicate()[0].strip() == folder.name


def test_the_default_place_follows_the_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_CACHE_HOME, else ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/rltrain")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "rltrain"
