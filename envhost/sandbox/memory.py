"""Memory cgroups: a bound on all the memory of a cell, where the machine lets us set one.

Owns making, reading and removing a control group for each run, in version 1 and 2 of the kernel's
interface. RLIMIT_AS bounds one process and neither tmpfs nor shared memory; a group bounds the
cell. The program's process joins it by writing to a descriptor that we opened, before the program
is begun, so that the cell's own uid needs no right to the groups.

A group also counts the CPU time of all that was in it, children that nobody waited for among them,
which /proc forgets. Version 1 does so in a hierarchy apart, in which a second group is then made.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

__all__ = ["MemoryGroup", "MemoryGroups", "find_memory_groups"]

_ROOT = Path("/sys/fs/cgroup")
_NAME = "envhost-"
_PROBE_BYTES = 64 * 1024 * 1024
_PROBE_SECONDS = 5.0
_numbers = itertools.count(1)  # of the process: several makers may work in one place


class MemoryGroup:
    """The group of one run; `procs_fd` is where a process writes 0 to join, or all of `procs_fds`.

    `cpu_place` is the group that counts CPU time in version 1, where there is one.
    """

    def __init__(self, place: Path, *, is_v2: bool, cpu_place: Path | None = None) -> None:
        self._place = place
        self._is_v2 = is_v2
        self._cpu_file = str(place / "cpu.stat")
        if not is_v2:
            self._cpu_file = str((cpu_place or place) / "cpuacct.usage")
        self._is_peak_ours = True
        self._limit_bytes = -1
        self.procs_fds: tuple[int, ...] = ()

    @property
    def procs_fd(self) -> int:
        """The descriptor of the group that bounds memory."""
        return self.procs_fds[0]

    @property
    def cpu_seconds(self) -> float:
        """The CPU time of all that has been in the group; 0 where it is not counted."""
        words = self._read(self._cpu_file).split()
        if not words:
            return 0.0
        return int(words[1]) / 1e6 if self._is_v2 else int(words[0]) / 1e9

    def limit(self, limit_bytes: int) -> None:
        """Set the bound, without swap on top of it."""
        if limit_bytes == self._limit_bytes:
            return
        self._limit_bytes = limit_bytes
        if self._is_v2:
            self._write("memory.max", limit_bytes)
            with suppress(OSError):
                self._write("memory.swap.max", 0)
        else:
            # The bound with swap is never the lower: it goes up first, and down last.
            with suppress(OSError):
                self._write("memory.memsw.limit_in_bytes", limit_bytes)
            self._write("memory.limit_in_bytes", limit_bytes)
            with suppress(OSError):
                self._write("memory.memsw.limit_in_bytes", limit_bytes)

    def _write(self, name: str, value: int) -> None:
        with open(os.path.join(self._place, name), "wb", buffering=0) as file:  # noqa: PTH118, PTH123
            file.write(str(value).encode())

    @property
    def has_run_out(self) -> bool:
        """Whether the kernel killed a process of the group for its memory."""
        text = self._read("memory.events" if self._is_v2 else "memory.oom_control")
        return any(
            name == "oom_kill" and value != "0"
            for name, _, value in (line.partition(" ") for line in text.splitlines())
        )

    @property
    def peak_bytes(self) -> int:
        """The most memory that the group has held; 0 where the kernel does not say."""
        if not self._is_peak_ours:
            return 0
        return int(self._read("memory.peak" if self._is_v2 else "memory.max_usage_in_bytes") or 0)

    def forget_peak(self) -> None:
        """Let the peak be that from now on; version 2 then does not say it any more."""
        self._is_peak_ours = not self._is_v2
        if self._is_peak_ours:
            self._write("memory.max_usage_in_bytes", 0)

    @property
    def used_bytes(self) -> int:
        """The memory that the group holds now."""
        return int(self._read("memory.current" if self._is_v2 else "memory.usage_in_bytes") or 0)

    def _read(self, name: str) -> str:
        """Return a file's text, empty where there is none; an absolute name is another group's."""
        try:
            # No Path and no text layer: this is read several times for a test.
            with open(os.path.join(self._place, name), "rb", buffering=0) as file:  # noqa: PTH118, PTH123
                return file.read().decode()
        except OSError:
            return ""


class MemoryGroups:
    """Makes groups below a directory of the cgroup file system, and below one for CPU time."""

    def __init__(self, parent: Path, *, is_v2: bool, cpu_parent: Path | None = None) -> None:
        self._parents = (parent,) if cpu_parent is None else (parent, cpu_parent)
        self._is_v2 = is_v2
        self._leaving: list[Path] = []

    @contextmanager
    def group(self, limit_bytes: int) -> Iterator[MemoryGroup]:
        """Make a group with a bound, and remove it when its processes have gone.

        Raises:
            OSError: It cannot be made.
        """
        self.remove_left()
        name = f"{_NAME}{os.getpid()}-{next(_numbers)}"
        with ExitStack() as stack:
            stack.callback(self.remove_left)
            places, fds = [], []
            for parent in self._parents:
                place = parent / name
                place.mkdir()
                stack.callback(self._leaving.append, place)
                fds.append(os.open(place / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
                stack.callback(os.close, fds[-1])
                places.append(place)
            group = MemoryGroup(places[0], is_v2=self._is_v2, cpu_place=places[-1])
            group.limit(limit_bytes)
            group.procs_fds = tuple(fds)
            yield group

    def remove_left(self) -> bool:
        """Remove the groups of ended runs; return whether none is left.

        A killed process stays in its group for some milliseconds more, and the group with it.
        """
        left = []
        for place in self._leaving:
            try:
                place.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                left.append(place)
        self._leaving = left
        return not left

    def remove_abandoned(self) -> None:
        """Remove the groups of servers that were killed."""
        for place in [place for parent in self._parents for place in parent.glob(f"{_NAME}*")]:
            pid = place.name.removeprefix(_NAME).partition("-")[0]
            if pid.isdecimal() and not Path("/proc", pid).exists():
                with suppress(OSError):
                    place.rmdir()

    def can_join(self, user: int | None) -> bool:
        """Whether a process of another user joins a group through our descriptor."""
        try:
            with self.group(_PROBE_BYTES) as group:
                for procs_fd in group.procs_fds:
                    subprocess.run(
                        ["/bin/sh", "-c", "echo 0"],
                        check=True,
                        stdin=subprocess.DEVNULL,
                        stdout=procs_fd,
                        stderr=subprocess.DEVNULL,
                        timeout=_PROBE_SECONDS,
                        user=user,
                        group=user,
                        extra_groups=None if user is None else (),
                    )
        except (OSError, subprocess.SubprocessError):
            return False
        return True


def find_memory_groups(user: int | None) -> MemoryGroups | None:
    """Return where groups for cells of `user` can be made; None where there is no right to."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in lines:
        if controllers and "memory" not in controllers.split(","):
            continue
        is_v2 = not controllers
        for place in _writable(_ROOT if is_v2 else _ROOT / "memory", path):
            if is_v2 and not _passes_memory_on(place):
                continue
            counting = () if is_v2 else _counting_places(lines)
            for cpu_place in (*counting, None):
                groups = MemoryGroups(place, is_v2=is_v2, cpu_parent=cpu_place)
                if groups.can_join(user):
                    groups.remove_abandoned()
                    return groups
    return None


def _writable(hierarchy: Path, path: str) -> Iterator[Path]:
    """Yield where groups could be made: in our own, or in what a container shows as its root."""
    for place in (hierarchy / path.lstrip("/"), hierarchy):
        if os.access(place / "cgroup.procs", os.W_OK):
            yield place


def _counting_places(lines: list[list[str]]) -> Iterator[Path]:
    """Yield where version 1 counts CPU time."""
    for _, controllers, path in lines:
        if "cpuacct" in controllers.split(","):
            yield from _writable(_ROOT / "cpuacct", path)


def _passes_memory_on(place: Path) -> bool:
    """Let the groups below bound memory; only a group without processes of its own may.

    A server that is alone in its group, as under systemd's `Delegate=yes` or in a container, moves
    into a group beside those of its cells.
    """
    try:
        if "memory" not in (place / "cgroup.controllers").read_text().split():
            return False
        switch = place / "cgroup.subtree_control"
        if "memory" in switch.read_text().split():
            return True
        if (place / "cgroup.procs").read_text().split() == [str(os.getpid())]:
            own = place / f"{_NAME}{os.getpid()}-server"
            own.mkdir(exist_ok=True)
            (own / "cgroup.procs").write_text("0")
        switch.write_text("+memory")
    except OSError:
        return False
    return True
