"""The run's own server: started, read, and gone afterwards."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from envhost.client import EnvClient
from rltrain.errors import SetupError
from rltrain.manifest import Environment
from rltrain.own_server import own_server


def children() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True)}


def test_it_serves_its_entrypoint_while_the_context_lasts(
    words_entrypoint: str, tmp_path: Path
) -> None:
    """A session works inside; after it the process is gone and the log remains."""
    environment = Environment(entrypoint=words_entrypoint, env_config={"turns": 2})
    before = children()

    with own_server(environment, sessions=3, log=tmp_path / "log") as url:
        with EnvClient(url) as client:
            prompt, _ = client.reset(seed=1)
            assert prompt == "say the word beta"
            assert client.step("beta")[1:3] == (1.0, False)
        assert children() - before

    assert not children() - before
    assert (tmp_path / "log").stat().st_size > 0


def test_it_ends_where_the_run_fails(words_entrypoint: str, tmp_path: Path) -> None:
    """An exception inside the context ends the server too, within seconds."""
    before = children()
    began = time.monotonic()

    with (
        pytest.raises(ZeroDivisionError),
        own_server(Environment(entrypoint=words_entrypoint), sessions=1, log=tmp_path / "log"),
    ):
        raise ZeroDivisionError

    assert not children() - before
    assert time.monotonic() - began < 20


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    """The message names the entrypoint and ends with the server's own words."""
    environment = Environment(entrypoint="no_such_module:make")

    with (
        pytest.raises(SetupError, match="no_such_module") as caught,
        own_server(environment, sessions=1, log=tmp_path / "log"),
    ):
        pass

    assert str(caught.value).startswith("environment.entrypoint: the server for no_such_module")
    assert "it said nothing" not in str(caught.value)
