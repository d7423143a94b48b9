"""The adapter's folders: fresh for each version, gone with the run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rltrain.sampler.adapters import Adapters, round_up_rank


def save(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "weights").write_text("w")


def test_each_version_has_a_fresh_path_and_the_old_one_goes(tmp_path: Path) -> None:
    """Ids count up, paths differ, one is on the disk at a time, none after the end."""
    with Adapters(save, adapter_bytes=1, memory=tmp_path) as adapters:
        versions = [adapters.write() for _ in range(3)]
        assert [version.version for version in versions] == [1, 2, 3]
        assert len({version.path for version in versions}) == 3
        assert [Path(version.path).exists() for version in versions] == [False, False, True]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    """A lock tells them apart: a dead process has none."""
    code = (
        "import os, sys; from pathlib import Path; from rltrain.sampler.adapters import Adapters;"
        "a = Adapters(lambda f: f.mkdir(), adapter_bytes=1, memory=Path(sys.argv[1]));"
        "a.write(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    (left,) = tmp_path.iterdir()

    with Adapters(save, adapter_bytes=1, memory=tmp_path) as living:
        assert not left.exists()
        version = living.write()
        with Adapters(save, adapter_bytes=1, memory=tmp_path):
            assert Path(version.path).exists()


def test_memory_without_room_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's 64 MB of /dev/shm do not stop a large adapter."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(disk))

    with Adapters(save, adapter_bytes=2**60, memory=memory) as adapters:
        assert Path(adapters.write().path).is_relative_to(disk)
    with Adapters(save, adapter_bytes=1, memory=memory) as adapters:
        assert Path(adapters.write().path).is_relative_to(memory)
    with Adapters(save, adapter_bytes=1, memory=tmp_path / "none") as adapters:
        assert Path(adapters.write().path).is_relative_to(disk)


@pytest.mark.parametrize(("rank", "expected"), [(1, 1), (2, 8), (16, 16), (33, 64), (512, 512)])
def test_ranks_are_rounded_up(rank: int, expected: int) -> None:
    """To the next one of vLLM's list."""
    assert round_up_rank(rank) == expected


def test_a_rank_beyond_the_list_is_refused() -> None:
    """With the largest that there is."""
    with pytest.raises(ValueError, match="at most 512, got 513"):
        round_up_rank(513)
