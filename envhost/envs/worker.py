"""Environments that run in a process of their own, one a session, forked from a warm template.

Owns the session's side of a worker: its requests, its death on every cancellation, and the factory
that keeps the template. What a worker sends is JSON from a stranger: it is checked here.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from typing import Any

import trio

from ..background import background
from ..environment import Description, Observation, StepResult, Traits
from ..errors import ConfigError, EpisodeError, NotScored, ProtocolError
from ..sandbox.cells import memory_groups
from ..sandbox.memory import MemoryGroup, MemoryGroups
from ..telemetry import log_event
from ..wire.codec import dump_json, parse_json
from .reports import SeedReport, reset_metadata
from .template import Fork, Template, Wanted, open_template

__all__ = ["WorkerEnvironment", "WorkerEnvironments"]

_LENGTH = struct.Struct("!I")
_REPLY_BYTES = 256 * 1024 * 1024
_BURIAL_SECONDS = 10.0
_PATIENCE_SECONDS = 1.0
_RESTART_PAUSE_SECONDS = 1.0


class EnvironmentRaised(Exception):
    """An environment's own exception; a subclass bears the name of what was raised."""


class WorkerEnvironments:
    """What all sessions share: the template, and the memory groups of their workers."""

    def __init__(self, wanted: Wanted, *, name: str, description: str) -> None:
        self._wanted = wanted
        self._name = name
        self._description = description
        self._template: Template | None = None
        self._groups: MemoryGroups | None = None
        self._started = trio.Event()
        self._first: WorkerEnvironment | None = None
        self._seeds = SeedReport(name)

    def describe(self) -> Description:
        """Say what is served, and how it is kept."""
        where = "sandboxed process" if self._wanted.is_sandboxed else "process"
        return Description(
            name=self._name,
            description=self._description,
            notes=(f"environments: a {where} for each session", *self._seeds.notes()),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Start the template, and make the first session's environment to prove that it can."""
        async with AsyncExitStack() as stack:
            if self._wanted.memory_limit_bytes:
                self._groups = await stack.enter_async_context(memory_groups(None))
            nursery = await stack.enter_async_context(background())
            await nursery.start(self._keep_template)
            try:
                self._first = await self._make()
            except (ConfigError, EnvironmentRaised) as error:
                raise ConfigError(f"entrypoint {self._wanted.entrypoint}: {_told(error)}") from None
            try:
                yield
            finally:
                if self._first is not None:
                    await self._first.end()

    async def _keep_template(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Hold a template; start the next where one was killed."""
        while True:
            async with open_template(self._wanted) as template:
                self._template = template
                self._started.set()
                task_status.started()
                await template.gone.wait()
            task_status = trio.TASK_STATUS_IGNORED
            self._started = trio.Event()
            log_event("template.lost", logging.WARNING)
            await trio.sleep(_RESTART_PAUSE_SECONDS)

    async def build(self) -> WorkerEnvironment:
        """Fork a worker and let it build the session's environment.

        Raises:
            EnvironmentRaised: The environment could not be built.
            NotScored: The worker was lost.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await self._make()

    async def _make(self) -> WorkerEnvironment:
        worker = await self.open_worker()
        return WorkerEnvironment(self, worker, self._seeds)

    async def open_worker(self) -> Worker:
        """Return a new worker with an environment in it."""
        await self._started.wait()
        assert self._template is not None
        with ExitStack() as stack:
            group = None
            if self._groups is not None:
                group = stack.enter_context(self._groups.group(self._wanted.memory_limit_bytes))
            fork = await self._template.fork(None if group is None else group.procs_fd)
            worker = Worker(fork, group, stack.pop_all(), self._wanted.memory_limit_bytes)
            try:
                await worker.get_ready()
            except BaseException:
                await worker.end()
                raise
            return worker


class Worker:
    """A worker's process and its socket; one request at a time."""

    def __init__(
        self, fork: Fork, group: MemoryGroup | None, stack: ExitStack, memory_limit_bytes: int
    ) -> None:
        self.about: dict[str, Any] = {}
        self.is_alive = True
        fork.link.setblocking(False)
        self._fork = fork
        self._group = group
        self._stack = stack
        self._memory_limit_bytes = memory_limit_bytes
        self._stream = trio.SocketStream(_trio_socket(fork.link))

    async def get_ready(self) -> None:
        """Wait until its environment is built, and learn what it can do."""
        about = _checked(await self._receive())
        if not isinstance(about, dict):
            raise NotScored("the worker's first message is none")
        self.about = about

    async def ask(self, name: str, argument: Any) -> Any:
        """Return the value of a call; a worker that is cancelled in the middle of one is killed.

        Raises:
            NotScored: The worker ended.
            EnvironmentRaised, ProtocolError, EpisodeError: What the environment raised.
        """
        is_answered = False
        try:
            body = dump_json([name, argument])
            try:
                await self._stream.send_all(_LENGTH.pack(len(body)) + body)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                raise await self._lost() from None
            reply = await self._receive()
            is_answered = True
        finally:
            if not is_answered:
                self._kill()
        return _checked(reply)

    async def _receive(self) -> dict[str, Any]:
        try:
            size = _LENGTH.unpack(await self._exactly(_LENGTH.size))[0]
            if size > _REPLY_BYTES:
                raise NotScored(f"the worker's reply has {size} bytes, {_REPLY_BYTES} are allowed")
            reply = parse_json((await self._exactly(size)).decode())
        except (EOFError, trio.BrokenResourceError):
            raise await self._lost() from None
        except (ProtocolError, UnicodeDecodeError) as error:
            raise NotScored(f"the worker's reply is no JSON: {error}") from error
        if not isinstance(reply, dict):
            raise NotScored("the worker's reply is no object")
        return reply

    async def _exactly(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = await self._stream.receive_some(min(size - len(received), 1 << 20))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)

    async def _lost(self) -> NotScored:
        """Return why the worker has ended."""
        self._kill()
        with trio.move_on_after(_BURIAL_SECONDS):
            await self._fork.ended.wait()
        if self._group is not None and self._group.has_run_out:
            mib = self._memory_limit_bytes >> 20
            return NotScored(
                f"the environment's process used more than its {mib} MiB and was killed; raise "
                "session_memory_bytes in --env-config"
            )
        status = self._fork.status
        how = "was lost" if status is None else f"ended with status {status}"
        return NotScored(f"the environment's process {how}")

    def _kill(self) -> None:
        self.is_alive = False
        self._fork.kill()

    async def end(self) -> None:
        """Kill the process and wait until it and all below it are gone."""
        self._kill()
        with trio.move_on_after(_BURIAL_SECONDS, shield=True):
            await self._fork.ended.wait()
        self._stream.socket.close()
        self._stack.close()


def _trio_socket(plain: socket.socket) -> trio.socket.SocketType:
    return trio.socket.from_stdlib_socket(plain)


class WorkerEnvironment:
    """A session's environment in a worker; after a loss the next reset begins a new one."""

    def __init__(self, factory: WorkerEnvironments, worker: Worker, seeds: SeedReport) -> None:
        self._factory = factory
        self._worker = worker
        self._seeds = seeds
        about = worker.about
        names = about.get("reset_options")
        self._takes_seed = about.get("takes_seed") is True
        seeds.learn(takes_seed=self._takes_seed)
        self.traits = Traits(
            # `seed` is let through, so that it can be told where it is of no use.
            reset_options=frozenset((*map(str, names), "seed"))
            if isinstance(names, list)
            else None,
            is_text=about.get("is_text") is True,
            has_tools=about.get("has_tools") is True,
        )

    async def reset(self, **options: Any) -> Observation:
        """Begin an episode, in a new worker where the last one was lost."""
        if not self._worker.is_alive:
            await self._worker.end()
            self._worker = await self._factory.open_worker()
        observation, metadata = _shaped(await self._worker.ask("reset", options), (dict, dict))
        facts = reset_metadata(metadata, options, takes_seed=self._takes_seed)
        self._seeds.note_reset(options)
        return Observation(observation, facts)

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        """Apply an action.

        Raises:
            NotScored: The worker ended.
        """
        kinds = (dict, (float, int, bool, type(None)), bool, bool, dict)
        observation, reward, terminated, truncated, metadata = _shaped(
            await self._living("step", action), kinds
        )
        return StepResult(
            observation=observation,
            reward=None if reward is None else float(reward),
            terminated=terminated,
            truncated=truncated,
            metadata=metadata,
        )

    async def state(self) -> Mapping[str, Any]:
        """Return the environment's facts; none where its worker was lost."""
        if not self._worker.is_alive:
            return {}
        (facts,) = _shaped([await self._worker.ask("state", None)], (dict,))
        result: Mapping[str, Any] = facts
        return result

    async def mcp(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the response to a JSON-RPC call."""
        (response,) = _shaped([await self._living("mcp", call)], (dict,))
        result: Mapping[str, Any] = response
        return result

    async def _living(self, name: str, argument: Any) -> Any:
        if not self._worker.is_alive:
            raise EpisodeError("the environment's process was lost: reset first")
        return await self._worker.ask(name, argument)

    async def close(self) -> None:
        """Let the environment close itself, then see that its process is gone."""
        try:
            if self._worker.is_alive:
                await self._worker.ask("close", None)
        finally:
            await self._worker.end()

    async def end(self) -> None:
        """Be gone, without a word to the environment where it takes long."""
        with trio.move_on_after(_PATIENCE_SECONDS, shield=True):
            await self.close()
        await self._worker.end()


def _checked(reply: Mapping[str, Any]) -> Any:
    """Return a reply's value, or raise what it tells of."""
    if "error" not in reply:
        return reply.get("value")
    message = str(reply.get("message", ""))
    match reply["error"]:
        case "ProtocolError":
            faults = reply.get("errors")
            code = "VALIDATION_ERROR"
            raise ProtocolError(code, message, faults if isinstance(faults, list) else [])
        case "EpisodeError":
            raise EpisodeError(message)
        case "ConfigError":
            raise ConfigError(message)
        case "NotScored":
            metadata = reply.get("metadata")
            raise NotScored(message, metadata if isinstance(metadata, dict) else {})
    kind = str(reply.get("kind"))
    named = type(kind if kind.isidentifier() else "Exception", (EnvironmentRaised,), {})
    error = named(message)
    error.add_note(f"in the environment's process:\n{reply.get('traceback')}")
    raise error


def _shaped(value: Any, kinds: tuple[Any, ...]) -> list[Any]:
    """Return a list whose items are of these types.

    Raises:
        NotScored: It is none; a worker of ours would not send that.
    """
    if not isinstance(value, list) or len(value) != len(kinds):
        raise NotScored("the worker's reply has not the shape that was asked for")
    if not all(isinstance(item, kind) for item, kind in zip(value, kinds, strict=True)):
        raise NotScored("the worker's reply has values of wrong types")
    return value


def _told(error: BaseException) -> str:
    name = "" if isinstance(error, ConfigError) else f"{type(error).__name__}: "
    return f"{name}{error}"
