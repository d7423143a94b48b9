"""Memory cgroups: a bound on all the memory of a cell, where the machine lets us set one.

Owns making, reading and removing a control group for each run, in version 1 and 2 of the kernel's
interface. RLIMIT_AS bounds one process and neither tmpfs nor shared memory; a group bounds the
cell. The program's process joins it by writing to a descriptor that we opened, before the program
is begun, so that the cell's own uid needs no right to the groups.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["MemoryGroup", "MemoryGroups", "find_memory_groups"]

_ROOT = Path("/sys/fs/cgroup")
_NAME = "envhost-"
_PROBE_BYTES = 64 * 1024 * 1024
_PROBE_SECONDS = 5.0


class MemoryGroup:
    """The group of one run; `procs_fd` is where a process writes 0 to join."""

    def __init__(self, place: Path, *, is_v2: bool) -> None:
        self._place = place
        self._is_v2 = is_v2
        self._is_peak_ours = True
        self._limit_bytes = -1
        self.procs_fd = -1

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
        (self._place / name).write_text(str(value))

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
        try:
            return (self._place / name).read_text()
        except OSError:
            return ""


class MemoryGroups:
    """Makes groups below a directory of the cgroup file system."""

    def __init__(self, parent: Path, *, is_v2: bool) -> None:
        self._parent = parent
        self._is_v2 = is_v2
        self._made = 0
        self._leaving: list[Path] = []

    @contextmanager
    def group(self, limit_bytes: int) -> Iterator[MemoryGroup]:
        """Make a group with a bound, and remove it when its processes have gone.

        Raises:
            OSError: It cannot be made.
        """
        self.remove_left()
        self._made += 1
        place = self._parent / f"{_NAME}{os.getpid()}-{self._made}"
        place.mkdir()
        try:
            group = MemoryGroup(place, is_v2=self._is_v2)
            group.limit(limit_bytes)
            group.procs_fd = os.open(place / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            try:
                yield group
            finally:
                os.close(group.procs_fd)
        finally:
            self._leaving.append(place)
            self.remove_left()

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
        for place in self._parent.glob(f"{_NAME}*"):
            pid = place.name.removeprefix(_NAME).partition("-")[0]
            if pid.isdecimal() and not Path("/proc", pid).exists():
                with suppress(OSError):
                    place.rmdir()

    def can_join(self, user: int | None) -> bool:
        """Whether a process of another user joins a group through our descriptor."""
        try:
            with self.group(_PROBE_BYTES) as group:
                subprocess.run(
                    ["/bin/sh", "-c", "echo 0"],
                    check=True,
                    stdin=subprocess.DEVNULL,
                    stdout=group.procs_fd,
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
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        groups = _usable(path, is_v2=not controllers)
        if groups is not None and groups.can_join(user):
            groups.remove_abandoned()
            return groups
    return None


def _usable(path: str, *, is_v2: bool) -> MemoryGroups | None:
    hierarchy = _ROOT if is_v2 else _ROOT / "memory"
    # In a container the path may be the host's, and its own group the hierarchy's root.
    for place in (hierarchy / path.lstrip("/"), hierarchy):
        if not os.access(place / "cgroup.procs", os.W_OK):
            continue
        if not is_v2 or _passes_memory_on(place):
            return MemoryGroups(place, is_v2=is_v2)
    return None


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
