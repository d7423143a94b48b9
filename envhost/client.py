"""The synchronous client: environments on another machine from an ordinary program.

However many sessions there are, they cost one thread (`trio_thread`); it works from a script, a
notebook with a running asyncio loop, and after a fork.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import trio
from attrs import frozen

from .errors import ConfigError, EnvhostError, ServerBusy, SessionLost
from .remote import Remote, RemoteSession, retried, server_facts
from .trio_thread import trio_thread
from .wire.messages import ObservationReply

__all__ = ["EnvClient", "EnvPool", "Result", "capacity"]

Step = tuple[str, float | None, bool, bool, dict[str, Any]]


def capacity(
    url: str, *, token: str | None = None, ca_file: str | None = None
) -> tuple[int | None, int | None]:
    """Return how many sessions a server holds at most and holds now; None where it does not tell.

    Raises:
        SessionLost, AuthenticationFailed, ConfigError: The server cannot be used; see the message.
    """
    facts = server_facts(Remote.parse(url, token=token, ca_file=ca_file))
    return facts.get("max_concurrent_envs"), facts.get("active_sessions")


class EnvClient:
    """One session with an environment server.

    Args:
        url: The server's base URL, `http://host:port`.
        token: Bearer token; else the URL's userinfo, else the variable ENVHOST_TOKEN.
        ca_file: PEM file of a private authority, for https.
        request_timeout_seconds: Bound of each call; 0 or None is none. A call that runs out drops
            the session, since a late reply must never answer the next request.
        action_field: Name of the action's text field.
        retry_seconds: How long a reset keeps trying while the server is full or away.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        request_timeout_seconds: float | None = 300.0,
        action_field: str = "message",
        retry_seconds: float = 10.0,
    ) -> None:
        self._remote = Remote.parse(url, token=token, ca_file=ca_file)
        self._timeout_seconds = request_timeout_seconds or 0.0
        self._retry_seconds = retry_seconds
        self._action_field = action_field
        self._thread = trio_thread()
        self._session = self._new_session()

    def _new_session(self) -> RemoteSession:
        return RemoteSession(
            self._remote,
            self._thread.nursery,
            request_timeout_seconds=self._timeout_seconds,
            retry_seconds=self._retry_seconds,
            action_field=self._action_field,
        )

    def _after_fork(self) -> None:
        thread = trio_thread()
        if thread is not self._thread:  # the parent keeps its session, the child gets its own
            self._thread = thread
            self._session = self._new_session()

    def reset(self, seed: int | None = None, **options: Any) -> tuple[str, dict[str, Any]]:
        """Begin an episode; return the prompt and the reset's metadata.

        The raw observation is in the metadata under `"observation"`.

        Raises:
            ServerBusy, SessionLost, RequestTimedOut, EnvironmentFailed, AuthenticationFailed.
        """
        self._after_fork()
        reply = self._thread.call(self._session.reset, _options(seed, options))
        return _text(reply), _info(reply)

    def step(self, text: str) -> Step:
        """Answer; return observation, reward (None: not scored), terminated, truncated, info.

        Raises:
            SessionLost, RequestTimedOut, EnvironmentFailed: The episode is over; reset.
        """
        self._after_fork()
        return _step(self._thread.call(self._session.step, text))

    def state(self) -> dict[str, Any]:
        """Return the environment's state."""
        self._after_fork()
        return self._thread.call(self._session.state)

    def close(self) -> None:
        """End the session; never raises, may be called again."""
        self._after_fork()
        self._thread.call(self._session.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _options(seed: int | None, options: dict[str, Any]) -> dict[str, Any]:
    return options if seed is None else {"seed": seed, **options}


def _text(reply: ObservationReply) -> str:
    observation = reply.observation
    for key in ("prompt", "observation", "message", "text", "value"):
        if isinstance(observation.get(key), str):
            return str(observation[key])
    return ""


def _info(reply: ObservationReply) -> dict[str, Any]:
    return {**reply.metadata, "observation": dict(reply.observation)}


def _step(reply: ObservationReply) -> Step:
    truncated = reply.done and bool(reply.observation.get("truncated"))
    reward = None if reply.reward is None else float(reply.reward)
    return _text(reply), reward, reply.done and not truncated, truncated, _info(reply)


@frozen(kw_only=True)
class Result:
    """What one submission brought; `error` set means that the slot failed, and nothing else."""

    slot: int
    kind: Literal["reset", "step"]
    prompt_or_observation: str = ""
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any]
    error: EnvhostError | None = None


class _Slot:
    """One session of a pool and the calls that wait for it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.scope = trio.CancelScope()
        self.calls: deque[tuple[Literal["reset", "step"], Any]] = deque()
        self.is_running = False
        self.session: RemoteSession | None = None


class EnvPool:
    """Many sessions at once, over one or several servers, in one thread.

    A slot's calls run in the order submitted; slots run side by side. A slot that fails gives a
    `Result` with `error` set and hits no other; its next reset opens a new session, on whichever
    server then has the fewest of this pool's.

    Args:
        urls: One base URL or several.
        size: Number of slots.
        token: As for `EnvClient`, like the others.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        size: int,
        *,
        token: str | None = None,
        ca_file: str | None = None,
        request_timeout_seconds: float | None = 300.0,
        action_field: str = "message",
        retry_seconds: float = 10.0,
    ) -> None:
        names = [urls] if isinstance(urls, str) else list(urls)
        if not names:
            raise ConfigError("EnvPool: expected at least one URL")
        if size < 1:
            raise ConfigError(f"EnvPool: expected a size of at least 1, got {size}")
        self._remotes = [Remote.parse(url, token=token, ca_file=ca_file) for url in names]
        self._timeout_seconds = request_timeout_seconds or 0.0
        self._retry_seconds = retry_seconds
        self._action_field = action_field
        self._size = size
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        self._thread = trio_thread()
        self._slots = [_Slot(index) for index in range(self._size)]
        self._arrived: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self._pending = 0

    @property
    def pending(self) -> int:
        """How many submissions have not been given out as results."""
        return self._pending

    def submit_reset(self, slot: int, *, seed: int | None = None, **options: Any) -> None:
        """Ask a slot to begin an episode; return at once."""
        self._submit(slot, "reset", _options(seed, options))

    def submit(self, slot: int, text: str) -> None:
        """Send a slot's answer; return at once."""
        self._submit(slot, "step", text)

    def poll(self, timeout: float | None = 0.0) -> list[Result]:
        """Return what has arrived; wait up to `timeout` seconds (None: for ever) for the first."""
        results: list[Result] = []
        try:
            if self._pending:
                results.append(self._arrived.get(timeout != 0, timeout or None))
            while True:
                results.append(self._arrived.get_nowait())
        except queue.Empty:
            pass
        self._pending -= len(results)
        return results

    def results(self) -> Iterator[Result]:
        """Give out results as they arrive, until all that was submitted is there."""
        while self._pending:
            yield from self.poll(timeout=None)

    def close(self) -> None:
        """End all sessions; submissions still running are given up. May be called again."""
        self._is_closed = True
        self._pending = 0
        if self._thread is trio_thread():  # in a forked child the sessions are the parent's
            self._thread.call(self._close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _submit(self, index: int, kind: Literal["reset", "step"], argument: Any) -> None:
        if self._is_closed:
            raise ConfigError("EnvPool: it is closed")
        if self._thread is not trio_thread():  # the parent keeps its sessions, as `EnvClient`'s
            self._begin()
        slot = self._slots[index]
        self._pending += 1
        self._thread.soon(self._enqueue, slot, kind, argument)

    # -- in the Trio thread -------------------------------------------------------------------

    def _enqueue(self, slot: _Slot, kind: Literal["reset", "step"], argument: Any) -> None:
        slot.calls.append((kind, argument))
        if not slot.is_running:
            slot.is_running = True
            self._thread.nursery.start_soon(self._run, slot)

    async def _run(self, slot: _Slot) -> None:
        with trio.CancelScope() as slot.scope:
            while slot.calls:
                self._arrived.put(await self._call(slot, *slot.calls.popleft()))
        slot.is_running = False

    async def _call(self, slot: _Slot, kind: Literal["reset", "step"], argument: Any) -> Result:
        try:
            call = self._reset if kind == "reset" else self._step
            return self._result(slot, kind, await call(slot, argument))
        except EnvhostError as error:
            return Result(slot=slot.index, kind=kind, info={}, error=error)
        except Exception as error:  # noqa: BLE001 - a bug of ours must not end the other slots
            lost = SessionLost(f"slot {slot.index}: internal error: {error!r}")
            return Result(slot=slot.index, kind=kind, info={}, error=lost)

    def _result(
        self, slot: _Slot, kind: Literal["reset", "step"], reply: ObservationReply
    ) -> Result:
        text, reward, terminated, truncated, info = _step(reply)
        return Result(
            slot=slot.index,
            kind=kind,
            prompt_or_observation=text,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            info=info,
        )

    async def _step(self, slot: _Slot, text: str) -> ObservationReply:
        if slot.session is None:
            raise SessionLost(f"slot {slot.index}: no session is open: reset first")
        return await slot.session.step(text)

    async def _reset(self, slot: _Slot, options: dict[str, Any]) -> ObservationReply:
        return await retried(partial(self._reset_anywhere, slot, options), self._retry_seconds)

    async def _reset_anywhere(self, slot: _Slot, options: dict[str, Any]) -> ObservationReply:
        """Reset a slot's session, or a new one on the servers in turn, the least loaded first."""
        failure: EnvhostError | None = None
        if slot.session is not None and slot.session.is_open:
            try:
                return await slot.session.reset(options)
            except (ServerBusy, SessionLost) as error:
                failure = error
        for remote in self._by_load(slot):
            slot.session = RemoteSession(
                remote,
                self._thread.nursery,
                request_timeout_seconds=self._timeout_seconds,
                retry_seconds=0.0,
                action_field=self._action_field,
            )
            try:
                return await slot.session.reset(options)
            except (ServerBusy, SessionLost) as error:
                failure = error
        assert failure is not None
        raise failure

    def _by_load(self, slot: _Slot) -> list[Remote]:
        load = dict.fromkeys(range(len(self._remotes)), 0)
        for other in self._slots:
            if other is not slot and other.session is not None:
                load[self._remotes.index(other.session.remote)] += 1
        return [self._remotes[index] for index in sorted(load, key=lambda i: load[i])]

    async def _close(self) -> None:
        async with trio.open_nursery() as nursery:
            for slot in self._slots:
                slot.calls.clear()
                slot.scope.cancel()
                if slot.session is not None:
                    nursery.start_soon(slot.session.close)
