"""A server from Python: in the foreground, or in a thread beside your own code.

Owns nothing but the thread; `Server` does the work.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import trio

from .config import DEFAULT_ENTRYPOINT, ServerConfig
from .entrypoints import make_factory
from .errors import ConfigError
from .server import Server
from .telemetry import log_event

__all__ = ["RunningServer", "running", "serve", "serve_in_foreground", "single_error"]


class RunningServer:
    """A server in a thread of this process."""

    def __init__(self, server: Server, token: trio.lowlevel.TrioToken) -> None:
        self._server = server
        self._token = token

    @property
    def url(self) -> str:
        """The base URL for clients."""
        return self._server.url

    def stop(self) -> None:
        """Begin to end it: sessions at rest are closed, running steps get the drain time."""
        self._token.run_sync_soon(self._server.stop)


@contextmanager
def running(
    entrypoint: str = DEFAULT_ENTRYPOINT,
    env_config: Mapping[str, Any] | None = None,
    *,
    port: int = 0,
    **settings: Any,
) -> Iterator[RunningServer]:
    """Serve an environment in a thread until the context ends.

    Args:
        entrypoint: `module:callable` or `path/to/file.py:callable`.
        env_config: Options of the environment.
        port: 0 takes a free one; see the result's `url`.
        settings: Further fields of `ServerConfig`: `host`, `max_concurrent_envs`, `limits`, …

    Raises:
        ConfigError: As `python -m envhost serve` would say.
    """
    server = _server(entrypoint, env_config, port=port, **settings)
    started = threading.Event()
    outcome: list[BaseException] = []
    token: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        token.append(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            started.set()

    def thread() -> None:
        try:
            trio.run(main)
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            outcome.append(single_error(error))
        finally:
            started.set()

    worker = threading.Thread(target=thread, name="envhost-server", daemon=True)
    worker.start()
    started.wait()
    if outcome:
        raise outcome[0]
    handle = RunningServer(server, token[0])
    try:
        yield handle
    finally:
        handle.stop()
        worker.join()
    if outcome:
        raise outcome[0]


def serve(
    entrypoint: str = DEFAULT_ENTRYPOINT,
    env_config: Mapping[str, Any] | None = None,
    *,
    port: int = 8000,
    **settings: Any,
) -> None:
    """Serve an environment in the foreground until SIGINT or SIGTERM; arguments as for `running`.

    Prints `Serving URL (up to N concurrent sessions)` once clients are served.
    """
    serve_in_foreground(_server(entrypoint, env_config, port=port, **settings))


def serve_in_foreground(server: Server) -> None:
    """Run a server until a signal: the first one drains it, a second one ends it at once."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signals, server, nursery.cancel_scope)
            await nursery.start(server.run)
            # The first line is what scripts wait for; the environment's notes come after it.
            total = server.slots.total
            print(f"Serving {server.url} (up to {total} concurrent sessions)", flush=True)
            for note in server.notes():
                log_event("server.note", text=note)
            await server.finished.wait()
            nursery.cancel_scope.cancel()

    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        raise single_error(group) from None


async def _end_on_signals(server: Server, everything: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if server.draining or not server.started:
                everything.cancel()
                return
            running = server.running_requests()
            if running:
                log_event(
                    "server.waiting",
                    running=running,
                    limit_seconds=server.config.limits.drain_seconds,
                    hint="another signal ends them at once",
                )
            server.stop()


def _server(entrypoint: str, env_config: Mapping[str, Any] | None, **settings: Any) -> Server:
    try:
        config = ServerConfig(entrypoint=entrypoint, env_config=dict(env_config or {}), **settings)
    except TypeError as error:
        raise ConfigError(f"envhost settings: {error}") from None
    return Server(config, make_factory(config))


def single_error(error: BaseException) -> BaseException:
    """Return the error that a group, or a group in a group, holds alone; else what is given."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
