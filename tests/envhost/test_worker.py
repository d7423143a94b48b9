"""Synchronous environments in processes of their own, served by a real server."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest
from rawclient import PATIENCE_SECONDS, RawClient, wait_for_log, wait_until

from envhost.client import EnvClient, EnvPool
from envhost.errors import EnvironmentFailed, ProtocolError

Start = Callable[..., Any]
FILE = Path(__file__).parent / "kept" / "sync_envs.py"
SYNC = f"{FILE}:Sync"


@pytest.fixture(scope="module")
def server(start_shared_server: Start) -> Any:
    """A server of the synchronous environment, with the limits that the tests reach."""
    return start_shared_server(
        SYNC,
        "--max-concurrent-envs",
        "80",
        "--close-limit",
        "0.5",
        "--log-level",
        "debug",
        "--env-config",
        '{"session_memory_bytes": 200000000}',
    )


@pytest.fixture
def client(server: Any) -> Iterator[EnvClient]:
    """A session in an episode."""
    with EnvClient(server.url, request_timeout_seconds=PATIENCE_SECONDS) as made:
        made.reset(seed=1)
        yield made


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _begin(server: Any, message: str) -> tuple[RawClient, int]:
    """Send a step and return the client without its reply, and the worker's id."""
    raw = RawClient(server.port)
    raw.send({"type": "reset"})
    pid: int = raw.receive()["data"]["metadata"]["pid"]
    raw.send({"type": "step", "data": {"message": message}})
    return raw, pid


# -- the ordinary course -------------------------------------------------------------------------


def test_an_episode(client: EnvClient) -> None:
    """Prompt, info, reward, both kinds of end, and the facts that attributes tell."""
    prompt, info = client.reset(seed=1, row_index=4)
    assert prompt.startswith("number 0.13436424411240122")
    assert (info["seed"], info["row_index"], info["system_prompt"]) == (1, 4, "Be brief.")
    assert client.step("hello")[:4] == ("said hello", 5.0, False, False)
    assert client.step("four")[:4] == ("four", 0.5, True, False)
    state = client.state()
    assert (state["dataset_size"], state["step_count"], state["tools"]) == (7, 2, [])


def test_each_session_has_a_process_that_shares_what_was_loaded(server: Any) -> None:
    """The module is imported and preloaded once, by the parent of all of them."""
    with EnvClient(server.url) as one, EnvClient(server.url) as two:
        infos = [session.reset()[1] for session in (one, two)]
        parents = {psutil.Process(info["pid"]).ppid() for info in infos}

    assert infos[0]["pid"] != infos[1]["pid"]
    assert {info["loaded_by"] for info in infos} == parents
    assert {tuple(info["preloaded_by"]) for info in infos} == {tuple(parents)}
    assert server.process.pid not in parents


def test_sixty_four_sessions_of_one_seed_begin_alike(server: Any) -> None:
    """And without a seed no two do: each process draws for itself."""
    with EnvPool([server.url], 64) as pool:
        for slot in range(64):
            pool.submit_reset(slot)
        drawn = {result.prompt_or_observation for result in pool.results()}
        for slot in range(64):
            pool.submit_reset(slot, seed=5)
        seeded = {result.prompt_or_observation for result in pool.results()}

    assert seeded == {f"number {Random(5).random()}"}
    assert len(drawn) == 64


def test_what_an_environment_prints_goes_to_the_log(server: Any, client: EnvClient) -> None:
    """Escaped, and never to the server's standard output."""
    client.step("print \x1b[31mred")

    wait_for_log(server, re.escape(r"environment.printed text='\x1b[31mred'"))


def test_an_unknown_option_is_dropped_and_told_once(server: Any) -> None:
    """As for every other environment."""
    with EnvClient(server.url) as made:
        made.reset(seed=1, colour="red")
        made.reset(seed=1, colour="red")

    assert len(wait_for_log(server, r"reset.options_dropped .*colour")) == 1


# -- mistakes ------------------------------------------------------------------------------------


def test_an_exception_is_told_with_its_name(server: Any, client: EnvClient) -> None:
    """The traceback, of the environment's own process, stands in the log; the session goes on."""
    with pytest.raises(EnvironmentFailed, match="step failed with LookupError: no such word"):
        client.step("raise no such word")

    wait_for_log(server, r"sync_envs.py.*in _raise")
    client.reset()
    with pytest.raises(EnvironmentFailed, match="got a tuple of 3"):
        client.step("three")
    client.reset()
    assert client.step("end")[2] is True


def test_an_action_without_text_leaves_the_episode(server: Any) -> None:
    """VALIDATION_ERROR, and the next step goes on."""
    with EnvClient(server.url, action_field="massage") as made:
        made.reset()
        with pytest.raises(ProtocolError, match="text field 'message'"):
            made.step("hello")
    with EnvClient(server.url, action_field="action") as made:
        made.reset()
        assert made.step("hello")[0] == "said hello"


def test_a_process_that_ends_is_not_scored(client: EnvClient) -> None:
    """Its loss is no reward of 0, and the next reset has a new one."""
    with pytest.raises(EnvironmentFailed, match="not scored: the environment's process ended with"):
        client.step("exit 7")
    with pytest.raises(EnvironmentFailed, match="reset first"):
        client.step("hello")
    assert client.state()["step_count"] == 0

    assert client.reset(seed=1)[0].startswith("number 0.134364")


def test_memory_has_a_limit(client: EnvClient) -> None:
    """A MemoryError in that session, or its process's end; no more than it asks for is held."""
    assert client.step("eat 50")[0] == "ate 52428800"

    with pytest.raises(EnvironmentFailed, match="MemoryError"):
        client.step("eat 1000")


# -- every end -----------------------------------------------------------------------------------


def test_an_endless_loop_is_gone_with_its_client(server: Any) -> None:
    """Killed: nobody could have asked it to stop."""
    raw, pid = _begin(server, "loop")
    wait_until(lambda: psutil.Process(pid).cpu_times().user > 0.05)

    raw.socket.close()

    wait_until(lambda: not psutil.pid_exists(pid))


def test_what_it_started_is_gone_too(server: Any, tmp_path: Path) -> None:
    """A child, and a daemon in a session of its own whose parent has gone."""
    place = tmp_path / "pids"
    raw, pid = _begin(server, f"spawn {place}")
    wait_until(Path(f"{place}.done").exists)
    started = [pid, *map(int, place.read_text().split())]
    assert len(started) == 3
    assert all(map(_is_alive, started))

    raw.socket.close()

    wait_until(lambda: not any(map(_is_alive, started)))


def test_a_close_that_hangs_is_killed(server: Any) -> None:
    """After the limit; the slot comes free."""
    with EnvClient(server.url) as made:
        pid = made.reset()[1]["pid"]
        made.step("hang")

    wait_until(lambda: not psutil.pid_exists(pid))
    wait_for_log(server, "close.abandoned")


def test_a_lost_template_is_started_again(server: Any, client: EnvClient) -> None:
    """Its workers end with it, and are told as lost; new sessions come from the next."""
    _, info = client.reset()
    template = psutil.Process(info["pid"]).ppid()
    os.kill(template, signal.SIGKILL)

    wait_until(lambda: not _is_alive(info["pid"]))
    with pytest.raises(EnvironmentFailed, match="not scored: the environment's process was lost"):
        client.step("hello")
    assert client.reset(seed=1)[1]["loaded_by"] != template


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_server(start_server: Start, tmp_path: Path, end: int) -> None:
    """Not the template, not a worker in a loop, not what it started."""
    server = start_server(SYNC, "--drain-timeout", "0")
    place = tmp_path / "pids"
    raw, pid = _begin(server, f"spawn {place}")
    wait_until(Path(f"{place}.done").exists)
    started = [pid, psutil.Process(pid).ppid(), *map(int, place.read_text().split())]

    server.stop(end)

    wait_until(lambda: not any(map(_is_alive, started)))
    raw.socket.close()


# -- other kinds ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_environment_without_seeds_says_so_once(start_server: Start) -> None:
    """In the log, and in each reset's metadata."""
    server = start_server(f"{FILE}:Unseeded")
    for _ in range(2):
        with EnvClient(server.url) as made:
            _, info = made.reset(seed=3)
            assert info["takes_seed"] is False
            assert "seed" not in info

    assert len(wait_for_log(server, "seed.ignored")) == 1
    assert "seeds: its reset takes none" in server.log()


@pytest.mark.slow
def test_asynchronous_methods_have_a_loop(start_server: Start) -> None:
    """asyncio's, the same for all calls; a reset that takes anything gets what was asked for."""
    server = start_server(f"{FILE}:Asynchronous")
    with EnvClient(server.url) as made:
        assert made.reset(seed=3, colour="red")[0] == "hello 3 ['colour']"
        assert made.step("tick")[:3] == ("tick", 1.0, True)


@pytest.mark.slow
def test_a_functions_environment_is_kept_apart(start_server: Start) -> None:
    """What a function returns decides, as what a class is does."""
    server = start_server(f"{FILE}:make", "--env-config", '{"kind": "Sync"}')
    with EnvClient(server.url) as made:
        assert made.reset()[1]["pid"] != server.process.pid


@pytest.mark.slow
def test_in_a_thread_it_shares_the_servers_process(start_server: Start) -> None:
    """Its endless loop, abandoned, holds up no other session."""
    server = start_server(SYNC, "--env-config", '{"run_in": "thread"}')
    raw, pid = _begin(server, "loop")
    assert pid == server.process.pid
    raw.socket.close()

    with EnvClient(server.url) as made:
        assert made.reset(seed=1)[0].startswith("number 0.134364")
        with pytest.raises(EnvironmentFailed, match="LookupError: lost"):
            made.step("raise lost")
        made.reset()
        assert made.step("end")[2] is True
        assert made.state()["dataset_size"] == 7


@pytest.mark.slow
def test_a_sandbox_shows_little_of_the_machine(start_server: Start, tmp_path: Path) -> None:
    """No file but what it needs and what it is given, nothing to write to, and no network."""
    secret, given = tmp_path / "secret", tmp_path / "given"
    secret.write_text("secret")
    given.write_text("given")
    config = f'{{"run_in": "sandbox", "sandbox_readable": ["{given}"]}}'
    server = start_server(SYNC, "--env-config", config)
    with EnvClient(server.url) as made:
        made.reset(seed=1)
        assert made.step(f"read {given}")[0] == "given"
        for attempt, words in (
            (f"read {secret}", "FileNotFoundError"),
            (f"write {given}", "Read-only|Permission"),
            (f"write {FILE.parent}/x", "Read-only|Permission"),
            (f"connect {server.port}", "PermissionError|ConnectionRefused|unreachable"),
        ):
            with pytest.raises(EnvironmentFailed, match=words):
                made.step(attempt)
            made.reset(seed=1)
    raw, pid = _begin(server, "loop")
    assert pid < 100  # it sees only its own namespace
    below = psutil.Process(server.process.pid).children(recursive=True)
    assert len(below) >= 3  # bubblewrap's two, the template, and a worker

    server.stop(signal.SIGKILL)

    wait_until(lambda: not any(_is_alive(process.pid) for process in below))
    raw.socket.close()
