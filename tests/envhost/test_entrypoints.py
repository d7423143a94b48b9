"""From an entrypoint's name to a factory, and every way in which that can fail."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from peer import Script

from envhost.config import Limits, ServerConfig
from envhost.entrypoints import make_factory
from envhost.environment import load_callable
from envhost.errors import ConfigError

SOURCE = '''
"""Says nothing."""


class Plain:
    """A plain environment.

    With more to say.
    """

    living = 0

    def __init__(self, colour="red"):
        self.colour = colour
        Plain.living += 1

    async def reset(self): ...
    async def step(self, action): ...
    async def state(self): ...

    async def close(self):
        Plain.living -= 1


class Hanging(Plain):
    async def close(self):
        import trio
        await trio.sleep_forever()


class Mute(Plain):
    step = None


def broken():
    return None


value = 3
'''


@pytest.fixture
def file(tmp_path: Path) -> str:
    """Return a file with entrypoints."""
    path = tmp_path / "plain_environments.py"
    path.write_text(SOURCE)
    return str(path)


def _config(entrypoint: str, **options: Any) -> ServerConfig:
    limits = Limits(close_seconds=0.05)
    return ServerConfig(entrypoint=entrypoint, env_config=options, limits=limits)


async def test_a_class_is_called_once_a_session(file: str) -> None:
    """The one made to prove that it can is the first session's."""
    factory = make_factory(_config(f"{file}:Plain", colour="blue"))
    living = load_callable(f"{file}:Plain")
    async with factory.serving():
        one: Any = await factory.build()
        two: Any = await factory.build()

        assert one is not two
        assert (one.colour, two.colour) == ("blue", "blue")
        assert type(one).living == 2
    assert living is not type(one)  # a file is read anew each time


async def test_an_unused_first_environment_is_closed(file: str) -> None:
    """With the server, and within the limit where its close hangs."""
    factory: Any = make_factory(_config(f"{file}:Plain"))
    async with factory.serving():
        assert type(factory._first).living == 1
    assert type(factory._first).living == 0

    hanging = make_factory(_config(f"{file}:Hanging"))
    with trio.fail_after(30.0):
        async with hanging.serving():
            pass


def test_a_description_is_the_first_line(file: str) -> None:
    """Name and docstring, for /metadata."""
    about = make_factory(_config(f"{file}:Plain")).describe()

    assert about.name == f"{file}:Plain"
    assert about.description == "A plain environment."


def test_a_factory_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an entrypoint returns may be shared by all sessions."""
    script = Script()
    monkeypatch.setattr("envhost.make_script", lambda: script, raising=False)

    assert make_factory(_config("envhost:make_script")) is script


@pytest.mark.parametrize(
    ("entrypoint", "words"),
    [
        ("FILE:Mute", "expected an environment with reset and step, got Mute"),
        ("FILE:broken", "got NoneType"),
        ("FILE:value", "expected a callable, got 3"),
        ("FILE:nothing", "has no 'nothing'"),
        ("FILE:Plain.nothing", "has no 'Plain.nothing'"),
        ("FILE", "expected module:callable"),
        ("FILE:", "expected module:callable"),
        (":Plain", "expected module:callable"),
        (".relative:Plain", "expected module:callable"),
        ("no.such.module:Plain", "No module named"),
        ("missing.py:Plain", "no such file"),
        ("builtins:dict", "no signature"),
        ("builtins:print", "expected an environment"),
    ],
)
def test_an_entrypoint_that_cannot_be_is_told(file: str, entrypoint: str, words: str) -> None:
    """ConfigError with its name."""
    name = entrypoint.replace("FILE", file)

    with pytest.raises(ConfigError) as caught:
        make_factory(_config(name))

    assert words in str(caught.value)
    assert "entrypoint" in str(caught.value)


@pytest.mark.parametrize("options", [{"color": "red"}, {"unsafe_no_sandbox": True}])
def test_options_that_an_entrypoint_does_not_take_are_told(
    file: str, options: dict[str, Any]
) -> None:
    """By name; what weakens a guard is no option of an environment."""
    with pytest.raises(ConfigError, match=next(iter(options))):
        make_factory(_config(f"{file}:Plain", **options))


def test_a_file_does_not_take_a_librarys_place(tmp_path: Path) -> None:
    """An environment in `json.py` leaves the json of everybody else alone."""
    import json

    path = tmp_path / "json.py"
    path.write_text(SOURCE)

    load_callable(f"{path}:Plain")

    assert sys.modules["json"] is json


async def test_a_slow_constructor_holds_up_nobody(tmp_path: Path) -> None:
    """It is called in a thread, so that the loop goes on meanwhile."""
    path = tmp_path / "slow_environment.py"
    path.write_text(
        "import threading\n"
        "entered, go_on, threads = threading.Event(), threading.Event(), []\n"
        "class Slow:\n"
        "    def __init__(self):\n"
        "        threads.append(threading.current_thread())\n"
        "        if len(threads) == 1:\n"
        "            go_on.wait(0.05)\n"  # the first, at start, shows how slow it is
        "        else:\n"
        "            entered.set()\n"
        "            assert go_on.wait(30)\n"
        "    async def reset(self): ...\n"
        "    async def step(self, action): ...\n"
        "    async def state(self): ...\n"
        "    async def close(self): ...\n"
    )
    factory = make_factory(_config(f"{path}:Slow"))
    first = await factory.build()
    module = sys.modules[type(first).__module__]

    async with factory.serving(), trio.open_nursery() as nursery:
        nursery.start_soon(factory.build)
        with trio.fail_after(30):
            await trio.to_thread.run_sync(module.entered.wait)
        module.go_on.set()  # reached while the second constructor still waits
    assert module.threads[1] is not module.threads[0]
