"""A thousand clients that vanish at random moments leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
import trio

from envhost.config import Limits, ServerConfig
from envhost.environment import Description, Observation, StepResult, text_observation
from envhost.server import Server

SESSIONS = 1000
AT_ONCE = 100
SLOTS = 20  # fewer than come at once, so that some wait and some are refused
MOMENTS = ("connect", "half a head", "handshake", "reset", "step", "state", "later", "polite")
SETTLE_SECONDS = 30.0

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class SlowEnvironment:
    """Takes a random while for everything; a step runs a program that never ends."""

    def __init__(self, factory: SlowFactory) -> None:
        self._factory = factory

    async def reset(self, **options: Any) -> Observation:
        await self._factory.pause()
        return Observation(text_observation("hello"))

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        if action["message"] == "run":
            self._factory.programs += 1
            await trio.run_process(["sleep", "86400"])
        await self._factory.pause()
        return StepResult(observation=text_observation("on"), reward=0.0, terminated=False)

    async def state(self) -> dict[str, Any]:
        await self._factory.pause()
        return {}

    async def close(self) -> None:
        await self._factory.pause()
        self._factory.living -= 1


class SlowFactory:
    """Counts environments: how many live, how many ever did, how many programs they ran."""

    def __init__(self) -> None:
        self.living = 0
        self.most = 0
        self.built = 0
        self.programs = 0
        self._random = Random(1)

    async def pause(self) -> None:
        await trio.sleep(self._random.uniform(0, 0.02))

    def describe(self) -> Description:
        return Description(name="slow", description="Slow on purpose.")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        yield

    async def build(self) -> SlowEnvironment:
        await self.pause()
        self.built += 1
        self.living += 1
        self.most = max(self.most, self.living)
        return SlowEnvironment(self)


def _frame(message: dict[str, Any]) -> bytes:
    payload = json.dumps(message).encode()
    assert len(payload) < 126
    return bytes([0x81, 0x80 | len(payload)]) + bytes(4) + payload


RESET = _frame({"type": "reset"})
STATE = _frame({"type": "state"})
RUN = _frame({"type": "step", "data": {"message": "run"}})
GO = _frame({"type": "step", "data": {"message": "go"}})
CLOSE = _frame({"type": "close"})


async def _vanish(port: int, random: Random, moment: str) -> None:
    """Connect, get as far as the moment, wait a little, and drop the socket."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    with contextlib.suppress(trio.BrokenResourceError):
        sent = {
            "connect": b"",
            "half a head": HANDSHAKE[: random.randrange(1, len(HANDSHAKE))],
            "handshake": HANDSHAKE,
            "reset": HANDSHAKE + RESET,
            "step": HANDSHAKE + RESET + RUN,
            "state": HANDSHAKE + STATE + STATE,
            "later": HANDSHAKE + RESET + GO * 3 + RUN + STATE * 3,
            "polite": HANDSHAKE + RESET + GO + CLOSE,
        }[moment]
        await stream.send_all(sent)
        # Turns of the loop that the server runs in too: on a full machine both are slower.
        for _ in range(int(random.expovariate(1 / 100))):
            await trio.sleep(0.001)
    await trio.aclose_forcefully(stream)


def _left(server: Server, factory: SlowFactory) -> dict[str, int]:
    """Return counts of everything that a session holds."""
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "processes": len(psutil.Process(os.getpid()).children(recursive=True)),
        "slots": server.slots.taken,
        "sessions": len(server.sessions),
        "environments": factory.living,
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_random_disconnects_leave_nothing_behind(seed: int) -> None:
    """Tasks, descriptors, processes, slots and environments are back to the start."""
    random = Random(seed)
    factory = SlowFactory()
    limits = Limits(admission_wait_seconds=0.2, refusal_hold_seconds=0.1)
    config = ServerConfig(
        port=0,
        max_concurrent_envs=SLOTS,
        max_connections=2 * AT_ONCE,
        log_level="error",
        limits=limits,
    )
    server = Server(config, factory)
    moments: Counter[str] = Counter()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        port = int(server.url.rpartition(":")[2])
        await _vanish(port, random, "polite")  # what starts once has started
        await _settle(server, factory, {"sessions": 0, "slots": 0})
        before = _left(server, factory)

        places = trio.Semaphore(AT_ONCE)

        async def visit(moment: str) -> None:
            async with places:
                await _vanish(port, random, moment)

        async with trio.open_nursery() as clients:
            for _ in range(SESSIONS):
                moment = random.choice(MOMENTS)
                moments[moment] += 1
                clients.start_soon(visit, moment)

        await _settle(server, factory, before)
        assert _left(server, factory) == before
        assert SLOTS // 4 < factory.most <= SLOTS
        assert factory.built > SESSIONS // 50
        assert factory.programs > 0
        assert set(moments) == set(MOMENTS)
        server.stop()


async def _settle(server: Server, factory: SlowFactory, wanted: dict[str, int]) -> None:
    """Wait until the counts are as wanted; the caller compares, and tells what is left."""
    with trio.move_on_after(SETTLE_SECONDS):
        while not wanted.items() <= _left(server, factory).items():
            await trio.sleep(0.02)
