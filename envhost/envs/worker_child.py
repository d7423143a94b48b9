"""The template process and its workers: what runs on the far side of `template`'s sockets.

`template` starts it with one end of a socket of packets and its settings as standard input. It
imports the entrypoint's module, says how that went, and from then on only forks: each request
carries one end of a stream socket, and the fork becomes the worker that serves one session on it.

Goals. The template has one thread and holds no session's state, so that a fork is safe, cheap and
shares what was imported. It is every orphan's parent: what a dead worker leaves is killed before
its end is told. When the server goes, its socket closes, and everything here goes with it, a worker
in an endless loop too.

Messages of a worker are a length of four bytes and JSON; nothing is ever unpickled.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import json
import os
import random
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from ..environment import load_callable
from ..errors import ConfigError, EpisodeError, NotScored, ProtocolError
from ..wire.codec import dump_json, parse_json
from .adapters import Adapter, adapt, load_shared, run_plainly

__all__ = ["main"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_PACKET_BYTES = 1 << 16
_NICE = 10
_LENGTH = struct.Struct("!I")
_SAID_BYTES = 20_000
_SETTLING_SECONDS = 3.0
_POLL_SECONDS = 0.01

Make = Callable[..., Any]


def main(control_fd: int) -> None:
    """Be the template: import, report, and fork a worker for each request."""
    control = socket.socket(fileno=control_fd)
    settings = json.loads(sys.stdin.buffer.read())
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.nice(_NICE)
    try:
        make = _load(settings["entrypoint"], settings["options"])
    except ConfigError as error:
        _tell(control, failed=str(error))
        return
    except BaseException as error:  # noqa: BLE001 - what an import raises is told
        _tell(control, failed=f"{type(error).__name__}: {error}", traceback=_traceback(error))
        return
    threads = _lasting_threads()
    if threads > 1:
        _tell(
            control,
            failed=f"entrypoint {settings['entrypoint']}: importing it started {threads - 1} "
            "threads, and a process with threads cannot be forked safely; start them in reset, or "
            'serve it with "run_in": "thread"',
        )
        return
    gc.collect()
    gc.freeze()
    _tell(control, ready=True)
    _Template(control, make, settings).run()


def _load(entrypoint: str, options: Mapping[str, Any]) -> Make:
    """Import the entrypoint, and let it load what its sessions share."""
    make = load_callable(entrypoint)
    try:
        inspect.signature(make).bind(**options)
    except ValueError:
        pass  # it has no signature: building the environment will tell
    except TypeError as error:
        raise ConfigError(f"entrypoint {entrypoint}: --env-config does not fit: {error}") from None
    load_shared(make, options)
    return make


class _Template:
    def __init__(self, control: socket.socket, make: Make, settings: Mapping[str, Any]) -> None:
        self._control = control
        self._make = make
        self._settings = settings
        self._workers: dict[int, tuple[str, int]] = {}  # pidfd: (name, pid)

    def run(self) -> None:
        """Fork until the server goes; then kill all there is."""
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd != self._control.fileno():
                    poller.unregister(fd)
                    self._bury(fd)
                    continue
                packet, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, 2)
                if not packet:
                    self._end()
                poller.register(self._fork(packet.decode(), fds), select.POLLIN)

    def _fork(self, name: str, fds: list[int]) -> int:
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            self._be_worker(parent, fds)
        pidfd = os.pidfd_open(pid)
        self._workers[pidfd] = (name, pid)
        packet = json.dumps({"forked": name}).encode()
        socket.send_fds(self._control, [packet], [pidfd])
        for fd in fds:
            os.close(fd)
        return pidfd

    def _be_worker(self, parent: int, fds: list[int]) -> NoReturn:
        status = 1
        try:
            self._control.close()
            for pidfd in self._workers:
                os.close(pidfd)
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            if os.getppid() != parent:
                os._exit(1)
            os.setsid()
            if len(fds) > 1:
                os.write(fds[1], b"0")  # joins the memory group
                os.close(fds[1])
            _limit_memory(self._settings["memory_limit_bytes"])
            _own_randomness()
            serve(socket.socket(fileno=fds[0]), self._make, self._settings["options"])
            status = 0
        except BaseException:  # noqa: BLE001 - a fork must never go on as the template
            traceback.print_exc()
        finally:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)

    def _bury(self, pidfd: int) -> None:
        """Reap a worker, kill what it left, and tell its end."""
        name, pid = self._workers.pop(pidfd)
        os.close(pidfd)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # before it is reaped, so that it is its group for sure
        _, status = os.waitpid(pid, 0)
        self._kill_strays()
        _tell(self._control, ended=name, status=os.waitstatus_to_exitcode(status))

    def _kill_strays(self) -> None:
        """Kill and reap the orphans of dead workers: all our children that are no workers."""
        own = {pid for _, pid in self._workers.values()}
        while strays := set(_children()) - own:
            for pid in strays:
                os.kill(pid, signal.SIGKILL)
            for pid in strays:
                os.waitpid(pid, 0)

    def _end(self) -> NoReturn:
        self._workers.clear()
        self._kill_strays()
        os._exit(0)


def serve(link: socket.socket, make: Make, options: Mapping[str, Any]) -> None:
    """Serve one session on a socket: build the environment, then answer until it closes."""
    try:
        environment = make(**options)
        adapter = adapt(environment)
    except BaseException as error:
        _send(link, _failure(error))
        if not isinstance(error, Exception):
            raise
        return
    _send(link, {"value": adapter.about()})
    answers = _answer_all(link, adapter)
    if adapter.is_async:
        import asyncio

        asyncio.run(answers)
    else:
        run_plainly(answers)


async def _answer_all(link: socket.socket, adapter: Adapter) -> None:
    async with adapter.opened():
        while (frame := _receive(link)) is not None:
            name, argument = frame
            call: Callable[[Any], Awaitable[Any]] = getattr(adapter, name)
            try:
                reply = {"value": await call(argument)}
                encoded = dump_json(reply)
            except BaseException as error:  # noqa: BLE001 - an environment's call
                encoded = dump_json(_failure(error))
            _send_bytes(link, encoded)
            if name == "close":
                return


def _failure(error: BaseException) -> dict[str, Any]:
    """Return an error as JSON; those of our own tree are known by name on the other side."""
    if isinstance(error, ProtocolError):
        return {
            "error": "ProtocolError",
            "code": error.code,
            "message": error.message,
            "errors": error.errors,
        }
    if isinstance(error, EpisodeError | NotScored | ConfigError):
        facts = {"metadata": error.metadata} if isinstance(error, NotScored) else {}
        kind = next(k for k in (EpisodeError, NotScored, ConfigError) if isinstance(error, k))
        return {"error": kind.__name__, "message": str(error), **facts}
    return {
        "error": "",
        "kind": type(error).__name__,
        "message": str(error),
        "traceback": _traceback(error),
    }


def _receive(link: socket.socket) -> list[Any] | None:
    head = _exactly(link, _LENGTH.size)
    if head is None:
        return None
    body = _exactly(link, _LENGTH.unpack(head)[0])
    request: list[Any] | None = None if body is None else parse_json(body.decode())
    return request


def _exactly(link: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        chunk = link.recv(min(size - len(received), 1 << 20))
        if not chunk:
            return None
        received += chunk
    return bytes(received)


def _send(link: socket.socket, message: Any) -> None:
    _send_bytes(link, dump_json(message))


def _send_bytes(link: socket.socket, body: bytes) -> None:
    link.sendall(_LENGTH.pack(len(body)) + body)


def _tell(control: socket.socket, **message: Any) -> None:
    with suppress(OSError):  # the server has gone
        control.send(json.dumps(message)[:_PACKET_BYTES].encode())


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-_SAID_BYTES:]


def _limit_memory(limit_bytes: int) -> None:
    """Bound what the worker adds to the memory that it was forked with."""
    if not limit_bytes:
        return
    status = Path("/proc/self/status").read_text()
    held = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData"))
    limit = held * 1024 + limit_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def _own_randomness() -> None:
    """Let no two workers draw the same numbers unless they are seeded."""
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


def _lasting_threads() -> int:
    """Return how many threads there are, once those that are about to end have ended."""
    deadline = time.monotonic() + _SETTLING_SECONDS
    while (count := len(os.listdir("/proc/self/task"))) > 1:  # noqa: PTH208
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL_SECONDS)
    return count


def _children() -> list[int]:
    pid = os.getpid()
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return list(map(int, text.split()))


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
