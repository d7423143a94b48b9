"""Synchronous environments that do what a message says, for tests of how they are kept."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

LOADED_BY = os.getpid()
"""The process that imported this module."""

shared: list[int] = []


class Sync:
    """Do what each message asks for.

    Args:
        build: Raised by the constructor, if it is not empty.
    """

    dataset_size = 7
    system_prompt = "Be brief."

    def __init__(self, build: str = "") -> None:
        if build:
            raise LookupError(build)
        self._numbers = random.Random()
        self._hangs = False

    @classmethod
    def preload(cls, build: str = "") -> None:
        """Load what all sessions share."""
        shared.append(os.getpid())

    def reset(self, seed: int | None = None, row_index: int | None = None) -> Any:
        if seed is not None:
            self._numbers.seed(seed)
        info = {"pid": os.getpid(), "loaded_by": LOADED_BY, "preloaded_by": shared}
        return f"number {self._numbers.random()}", info

    def step(self, action: str) -> Any:
        word, _, rest = action.partition(" ")
        act = getattr(self, f"_{word}", None)
        return act(rest) if act else (f"said {action}", len(action), action == "end", False, {})

    def _four(self, _: str) -> Any:
        return "four", 0.5, True, {}

    def _three(self, _: str) -> Any:
        return "three", 0.5, True

    def _raise(self, text: str) -> Any:
        raise LookupError(text)

    def _exit(self, status: str) -> Any:
        os._exit(int(status))

    def _print(self, text: str) -> Any:
        print(text)
        return "printed", 0, False, False, {}

    def _eat(self, mib: str) -> Any:
        eaten = bytearray(int(mib) << 20)
        return f"ate {len(eaten)}", 0, False, False, {}

    def _loop(self, _: str) -> Any:
        while True:
            pass

    def _spawn(self, place: str) -> Any:
        """Leave a child, a daemon in a session of its own, and loop."""
        daemon = f"setsid sh -c 'echo $$ >>{place}; exec sleep 86400' &"
        subprocess.run(["sh", "-c", daemon], check=True)
        child = subprocess.Popen(["sleep", "86400"])
        while not Path(place).exists():
            time.sleep(0.001)
        with Path(place).open("a") as file:
            file.write(f"{child.pid}\n")
        Path(place + ".done").touch()
        return self._loop("")

    def _hang(self, _: str) -> Any:
        self._hangs = True
        return "will hang", 0, False, False, {}

    def _read(self, path: str) -> Any:
        return Path(path).read_text(), 0, False, False, {}

    def _write(self, path: str) -> Any:
        return str(Path(path).write_text("x")), 0, False, False, {}

    def _connect(self, port: str) -> Any:
        socket.create_connection(("127.0.0.1", int(port)), 5).close()
        return "connected", 0, False, False, {}

    def close(self) -> None:
        while self._hangs:
            time.sleep(1)


class Unseeded:
    """Takes no seed."""

    def reset(self) -> str:
        return f"number {random.random()}"

    def step(self, action: str) -> Any:
        return "", 0.0, True, False, {}


class Asynchronous:
    """Wants asyncio's loop, and keeps a task on it between its calls."""

    async def reset(self, seed: int = 0, **options: Any) -> Any:
        self._ticks = asyncio.get_running_loop().create_future()
        return f"hello {seed} {sorted(options)}", {}

    async def step(self, action: str) -> Any:
        asyncio.get_running_loop().call_later(0.001, self._ticks.set_result, action)
        return await self._ticks, 1.0, True, False, {}


def make(kind: str = "Sync") -> Any:
    """Return an environment by its class's name."""
    return globals()[kind]()
