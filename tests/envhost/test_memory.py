"""Memory cgroups, in both versions of the kernel's interface.

A machine has one of the two for memory; the other is shown here by its files alone.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envhost.sandbox import memory
from envhost.sandbox.memory import MemoryGroup, MemoryGroups


def files(place: Path, **contents: str) -> Path:
    """Write the kernel's files of a group; underscores stand for points."""
    place.mkdir(exist_ok=True)
    for name, content in contents.items():
        place.joinpath(name.replace("_", ".", 1)).write_text(content)
    return place


def test_version_2_is_limited_and_read(tmp_path: Path) -> None:
    """The bound is memory.max without swap; kills and the peak are what the kernel says."""
    group = MemoryGroup(files(tmp_path, memory_events="low 0\noom 1\noom_kill 0\n"), is_v2=True)
    group.limit(1000)
    assert (tmp_path / "memory.max").read_text() == "1000"
    assert (tmp_path / "memory.swap.max").read_text() == "0"
    assert not group.has_run_out
    assert group.peak_bytes == 0  # an older kernel does not say
    files(tmp_path, memory_events="oom 1\noom_kill 2\n", memory_peak="4096\n")
    assert group.has_run_out
    assert group.peak_bytes == 4096


def test_version_1_is_limited_and_read(tmp_path: Path) -> None:
    """The bound is the limit with and without swap; kills and the peak are what the kernel says."""
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"
    group = MemoryGroup(files(tmp_path, memory_oom_control=control), is_v2=False)
    group.limit(1000)
    assert (tmp_path / "memory.limit_in_bytes").read_text() == "1000"
    assert (tmp_path / "memory.memsw.limit_in_bytes").read_text() == "1000"
    assert not group.has_run_out
    files(tmp_path, memory_oom_control="oom_kill 1\n", memory_max_usage_in_bytes="512\n")
    assert group.has_run_out
    assert group.peak_bytes == 512


def test_version_2_passes_memory_on_from_a_group_of_its_own(tmp_path: Path) -> None:
    """A server that is alone in its group moves into one below, and lets the others have memory."""
    place = files(
        tmp_path / "service",
        cgroup_controllers="cpu memory pids\n",
        cgroup_subtree_control="\n",
        cgroup_procs=f"{os.getpid()}\n",
    )
    assert memory._passes_memory_on(place)
    assert (place / "cgroup.subtree_control").read_text() == "+memory"
    assert (place / f"envhost-{os.getpid()}-server" / "cgroup.procs").read_text() == "0"


def test_version_2_leaves_others_where_they_are(tmp_path: Path) -> None:
    """A server moves nobody, and makes no group where memory is not the group's to give."""
    shared = files(
        tmp_path / "shared",
        cgroup_controllers="memory\n",
        cgroup_subtree_control="\n",
        cgroup_procs=f"1\n{os.getpid()}\n",
    )
    memory._passes_memory_on(shared)
    assert not list(shared.glob("*-server"))
    without = files(tmp_path / "without", cgroup_controllers="cpu\n")
    assert not memory._passes_memory_on(without)
    given = files(
        tmp_path / "given", cgroup_controllers="memory\n", cgroup_subtree_control="memory\n"
    )
    assert memory._passes_memory_on(given)
    assert not list(given.glob("*-server"))


def test_a_group_that_cannot_be_made(tmp_path: Path) -> None:
    """Where no group can be made, nothing is joined and nothing is left."""
    groups = MemoryGroups(tmp_path, is_v2=True)
    with pytest.raises(OSError, match=r"cgroup\.procs"), groups.group(1000):
        pass
    assert not groups.can_join(None)


def test_groups_of_killed_servers_are_removed(tmp_path: Path) -> None:
    """What a dead server left empty goes; what a living one has stays."""
    dead = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(dead, 0)
    for name in (f"envhost-{dead}-1", f"envhost-{os.getpid()}-1", "other"):
        (tmp_path / name).mkdir()
    MemoryGroups(tmp_path, is_v2=True).remove_abandoned()
    assert {path.name for path in tmp_path.iterdir()} == {f"envhost-{os.getpid()}-1", "other"}
