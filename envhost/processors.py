"""How many processors we may use: the affinity's, or fewer where a control group has a quota.

Owns reading both versions of the kernel's interface; a quota of a group above ours counts too, as
far as we can see it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["usable_processors"]

_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc/self/cgroup")


def usable_processors(*, root: Path = _ROOT, groups: Path = _PROC) -> int:
    """Return how many programs can run at once without one waiting for another, at least 1.

    A quota of 2.5 processors is 2: a third program would slow the other two down.

    Args:
        root: Where the control groups are mounted.
        groups: What the kernel says of our own.
    """
    quotas = (_quota(place) for place in _places(root, groups))
    return max(1, int(min((len(os.sched_getaffinity(0)), *quotas))))


def _places(root: Path, groups: Path) -> Iterator[Path]:
    """Yield our own groups of the CPU controller and those above them, which a mount may hide."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        hierarchy = root / "cpu" if controllers else root
        own = hierarchy / path.lstrip("/")
        yield own
        yield from (place for place in own.parents if place.is_relative_to(hierarchy))


def _quota(place: Path) -> float:
    """Return the processors that a group may use; infinity where nothing bounds it."""
    try:
        if (place / "cpu.max").exists():
            quota, period = (place / "cpu.max").read_text().split()
        else:
            quota = (place / "cpu.cfs_quota_us").read_text()
            period = (place / "cpu.cfs_period_us").read_text()
        return int(quota) / int(period) if int(quota) > 0 else float("inf")
    except (OSError, ValueError):  # no such file, or "max"
        return float("inf")
