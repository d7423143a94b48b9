"""As root: an interpreter that the cells' own uid can reach, wherever it lies.

Cells run as uid 65534, which cannot look into a home such as /root. The interpreter's prefix is
then bound to a place that it can reach, in a mount namespace of the server's own, which nobody else
sees and which ends with the server.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ConfigError

__all__ = ["staged_prefix"]

_CLONE_NEWNS = 0x20000
_MS_BIND = 0x1000
_MS_REC_SLAVE = 0x4000 | 0x80000  # later mounts of the machine still arrive here
_MNT_DETACH = 2
_NAME = "envhost-python-"


@contextmanager
def staged_prefix(prefix: str, uid: int | None) -> Iterator[str]:
    """Give a path of the prefix that `uid` can reach; the prefix itself where it can.

    Must be entered in the thread that starts the cells.

    Raises:
        ConfigError: It cannot be reached, and cannot be bound elsewhere.
    """
    if uid is None or _is_reachable(prefix, uid):
        yield prefix
        return
    libc = ctypes.CDLL(None, use_errno=True)
    # Not a TemporaryDirectory: that deletes what it holds, at exit too, and while the mount stands
    # it holds the interpreter itself. An empty directory is all that may be removed here.
    public = Path("/run" if _is_reachable("/run", uid) else "/tmp")
    _remove_abandoned(public)
    place = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-", dir=public))
    try:
        place.chmod(0o755)
        try:
            _call(libc.unshare(_CLONE_NEWNS))
            _call(libc.mount(b"none", b"/", None, _MS_REC_SLAVE, None))
            _call(libc.mount(os.fsencode(prefix), os.fsencode(place), None, _MS_BIND, None))
        except OSError as error:
            raise ConfigError(
                f"programs run as uid {uid}, which cannot reach the interpreter in {prefix}, and "
                f"it cannot be bound elsewhere: {error}; set the option python to one that every "
                "user can run, such as /usr/bin/python3"
            ) from None
        yield str(place)
    finally:
        libc.umount2(os.fsencode(place), _MNT_DETACH)
        with suppress(OSError):
            place.rmdir()


def _remove_abandoned(public: Path) -> None:
    """Remove the empty directories of servers that were killed; their mounts went with them."""
    for place in public.glob(f"{_NAME}*"):
        pid = place.name.removeprefix(_NAME).partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            with suppress(OSError):
                place.rmdir()


def _is_reachable(path: str, uid: int) -> bool:
    """Whether another user can enter every directory on the way."""
    for directory in [Path(path), *Path(path).parents]:
        status = directory.stat()
        if not (status.st_mode & 0o001 or (status.st_uid == uid and status.st_mode & 0o100)):
            return False
    return True


def _call(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
