"""Memory cgroups, in both versions of the kernel's interface.

A machine has one of the two for memory; the other is shown here by its files alone.
"""

from __future__ import annotations

import os
import subprocess
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


def test_cpu_time_in_both_versions(tmp_path: Path) -> None:
    """Version 2 counts microseconds beside the memory, version 1 nanoseconds in another group."""
    second = files(tmp_path / "v2", cpu_stat="usage_usec 1500000\nuser_usec 1000000\n")
    assert MemoryGroup(second, is_v2=True).cpu_seconds == 1.5
    first = files(tmp_path / "memory")
    counting = files(tmp_path / "cpuacct", cpuacct_usage="2500000000\n")
    assert MemoryGroup(first, is_v2=False, cpu_place=counting).cpu_seconds == 2.5
    assert MemoryGroup(first, is_v2=False).cpu_seconds == 0.0  # nobody counts


def version_2() -> Path | None:
    """Return a directory of version 2 where groups can be made, whatever they may bound."""
    for place in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (place / "cgroup.controllers").exists() and os.access(place, os.W_OK):
            return place
    return None


def test_version_2_for_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real group of version 2 is made, joined by another user, counts, and goes.

    Where version 1 has the memory controller, as here, nothing but the bound itself is left out.
    """
    place = version_2()
    if place is None or os.geteuid() != 0:
        pytest.skip("no version 2 here, or no right to it")
    if "memory" not in (place / "cgroup.subtree_control").read_text().split():
        monkeypatch.setattr(MemoryGroup, "limit", lambda *_: None)
    groups = MemoryGroups(place, is_v2=True)
    assert groups.can_join(65534)
    while not groups.remove_left():
        pass  # the one that has just ended is still in it
    with groups.group(1 << 30) as group:
        (own,) = place.glob(f"envhost-{os.getpid()}-*")
        burn = "read x; i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; read x"
        process = subprocess.Popen(
            ["sh", "-c", f"echo 0; echo in >&2; {burn}"],
            stdin=subprocess.PIPE, stdout=group.procs_fd, stderr=subprocess.PIPE,
            user=65534, group=65534, extra_groups=(),
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stderr is not None
        assert process.stderr.readline() == b"in\n"
        assert (own / "cgroup.procs").read_text().split() == [str(process.pid)]
        before = group.cpu_seconds
        process.stdin.write(b"\n\n")
        process.communicate()
        assert group.cpu_seconds > before
        assert not group.has_run_out
    while not groups.remove_left():
        pass
    assert not own.exists()
