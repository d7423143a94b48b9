"""How many processors we may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envhost.processors import usable_processors

MANY = 64


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have many processors."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(MANY)))


def usable(tmp_path: Path, own: str, files: dict[str, str]) -> int:
    """Return how many are usable, given our group and the files of the hierarchy."""
    for name, text in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "own").write_text(own)
    return usable_processors(root=tmp_path / "cgroup", groups=tmp_path / "own")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, MANY),
        ({"a/b/cpu.max": "max 100000\n"}, MANY),
        ({"a/b/cpu.max": "300000 100000\n"}, 3),
        ({"a/b/cpu.max": "250000 100000\n"}, 2),
        ({"a/b/cpu.max": "50000 100000\n"}, 1),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "400000 100000\n"}, 4),
        ({"cpu.max": "200000 50000\n"}, 4),  # a container's own group is the root that it sees
    ],
)
def test_version_2(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    """The lowest quota of our group and those above it, rounded down."""
    assert usable(tmp_path, "0::/a/b\n", files) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", MANY), ("150000", 1), ("800000", 8)])
def test_version_1(tmp_path: Path, quota: str, expected: int) -> None:
    """The same in the older interface, which says -1 for no quota."""
    files = {"cpu/a/cpu.cfs_quota_us": quota, "cpu/a/cpu.cfs_period_us": "100000"}
    assert usable(tmp_path, "4:memory:/x\n1:cpu,cpuacct:/a\n0::/\n", files) == expected


def test_fewer_in_the_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The affinity bounds what a quota allows."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    assert usable(tmp_path, "0::/\n", {"cpu.max": "800000 100000"}) == 1


def test_where_nothing_is_said(tmp_path: Path) -> None:
    """Without control groups the affinity alone counts."""
    assert usable_processors(root=tmp_path, groups=tmp_path / "none") == MANY
