"""The synchronous client against real server processes: what comes back, and what never does."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from rawclient import PATIENCE_SECONDS, wait_for_log, wait_until

from envhost.client import EnvClient, EnvPool, Result, capacity
from envhost.errors import (
    AuthenticationFailed,
    ConfigError,
    EnvironmentFailed,
    ProtocolError,
    RequestTimedOut,
    ServerBusy,
    SessionLost,
)

Start = Callable[..., Any]

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def server(start_shared_server: Start, echo_entrypoint: str) -> Any:
    """Return an echo server that the tests of this module share."""
    return start_shared_server(
        echo_entrypoint, "--max-concurrent-envs", "600", "--admission-wait", "0.1"
    )


@pytest.fixture(scope="module")
def guarded_server(
    start_shared_server: Start, echo_entrypoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return a server that wants a token."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN)
    return start_shared_server(echo_entrypoint, "--token-file", str(file))


def _sessions(server: Any) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.url}/sessions", timeout=PATIENCE_SECONDS) as reply:
        rows: list[dict[str, Any]] = json.load(reply)
        return rows


def _serve_at(port: int, entrypoint: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "envhost", "serve", entrypoint, "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture
def mute_url() -> Iterator[str]:
    """Return the URL of a server that accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


# -- one client ------------------------------------------------------------------------------------


def test_an_episode_reads_like_one(server: Any) -> None:
    """Prompt and info; observation, reward, terminated, truncated and info; the state."""
    with EnvClient(server.url) as client:
        prompt, info = client.reset(seed=3)
        assert (prompt, info["seed"]) == ("hello 3", 3)
        assert info["observation"]["prompt"] == "hello 3"

        observation, reward, terminated, truncated, info = client.step("four")
        assert (observation, reward, terminated, truncated) == ("four", 4.0, False, False)
        assert info["said"] == "four"

        state = client.state()
        assert (state["tools"], state["dataset_size"], state["step_count"]) == ([], 7, 1)
        assert client.step("end")[2:4] == (True, False)
        client.reset()
        assert client.step("cut")[2:4] == (False, True)


def test_a_reward_that_is_no_number_is_not_scored(server: Any) -> None:
    """NaN of an environment is None at the client."""
    with EnvClient(server.url) as client:
        client.reset()

        assert client.step("nan")[1] is None


def test_an_environment_that_fails_is_told_with_the_log_reference(server: Any) -> None:
    """EnvironmentFailed carries type and message; the session lives on."""
    with EnvClient(server.url) as client:
        with pytest.raises(EnvironmentFailed, match=r"RuntimeError: no such seed.*log reference"):
            client.reset(seed=-1)
        assert client.reset(seed=1)[0] == "hello 1"


def test_a_step_without_an_episode_says_reset_first(server: Any) -> None:
    """Before the first reset there is no session, after it an episode may be over."""
    with EnvClient(server.url) as client:
        with pytest.raises(SessionLost, match="reset first"):
            client.step("a")
        client.reset()
        client.step("end")
        with pytest.raises(EnvironmentFailed, match="reset first"):
            client.step("a")


def test_a_bad_argument_is_the_callers_mistake(server: Any) -> None:
    """ProtocolError names the argument, at once, without retries."""
    with EnvClient(server.url) as client, pytest.raises(ProtocolError, match=r"data\.row_index"):
        client.reset(row_index="first")


def test_a_session_that_the_environment_ended_is_opened_anew(server: Any) -> None:
    """SystemExit in an environment fails that step; the next reset is a fresh session."""
    with EnvClient(server.url) as client:
        client.reset()
        with pytest.raises(EnvironmentFailed, match="SystemExit"):
            client.step("exit")
        with pytest.raises(SessionLost, match="reset first"):
            client.step("a")
        assert client.reset(seed=2)[0] == "hello 2"


def test_close_frees_the_slot_and_may_be_repeated(
    start_server: Start, echo_entrypoint: str
) -> None:
    """After close the server has no session; a reset afterwards opens one again."""
    server = start_server(echo_entrypoint)
    client = EnvClient(server.url)
    client.reset()
    client.close()
    client.close()

    wait_until(lambda: _sessions(server) == [])
    wait_for_log(server, "session.closed.*client closed")
    assert client.reset(seed=4)[0] == "hello 4"
    client.close()


def test_a_timeout_drops_the_socket(start_server: Start, echo_entrypoint: str) -> None:
    """The server sees the client leave in mid-step; no late reply answers the next request."""
    server = start_server(echo_entrypoint)
    with EnvClient(server.url, request_timeout_seconds=0.3) as client:
        client.reset(seed=1)
        with pytest.raises(RequestTimedOut, match=r"no reply to step within 0\.3 s"):
            client.step("sleep")
        wait_for_log(server, "session.closed")
        with pytest.raises(SessionLost, match="reset first"):
            client.step("late")

        assert client.reset(seed=2)[0] == "hello 2"
        assert client.step("ab")[1] == 2.0


def test_a_server_that_never_answers_times_out(mute_url: str) -> None:
    """The handshake counts against the request's time."""
    client = EnvClient(mute_url, request_timeout_seconds=0.3)

    with pytest.raises(RequestTimedOut, match=r"within 0\.3 s"):
        client.reset()


def test_a_lost_session_is_not_retried_in_mid_episode(
    start_server: Start, echo_entrypoint: str
) -> None:
    """A server killed during a step is SessionLost at once."""
    server = start_server(echo_entrypoint)
    with EnvClient(server.url, retry_seconds=0.0) as client:
        client.reset()
        killer = threading.Thread(target=_kill_in_step, args=(server,))
        killer.start()
        with pytest.raises(SessionLost, match="the connection was lost"):
            client.step("sleep")
        killer.join()
        with pytest.raises(SessionLost, match=r"cannot connect.*is the server up"):
            client.reset()


def _kill_in_step(server: Any) -> None:
    wait_until(lambda: any(row["activity"] == "step" for row in _sessions(server)))
    server.process.kill()


def test_a_reset_waits_for_a_server_that_starts_late(echo_entrypoint: str) -> None:
    """Within the retry time; and again after the server was killed and started anew."""
    port = free_port()
    with EnvClient(f"http://127.0.0.1:{port}", retry_seconds=PATIENCE_SECONDS) as client:
        for seed in range(2):
            starter: list[subprocess.Popen[str]] = []
            timer = threading.Timer(0.3, lambda: starter.append(_serve_at(port, echo_entrypoint)))  # noqa: B023
            timer.start()
            try:
                assert client.reset(seed=seed)[0] == f"hello {seed}"
            finally:
                timer.join()
                starter[0].kill()
                starter[0].wait()


def test_a_full_server_is_busy_after_the_retries(start_server: Start, echo_entrypoint: str) -> None:
    """ServerBusy names the option to raise; a slot that comes free in time is taken."""
    server = start_server(echo_entrypoint, "--max-concurrent-envs", "1", "--admission-wait", "0.05")
    first = EnvClient(server.url)
    first.reset()
    second = EnvClient(server.url, retry_seconds=0.3)
    with pytest.raises(ServerBusy, match="--max-concurrent-envs"):
        second.reset()
    threading.Timer(0.3, first.close).start()
    with EnvClient(server.url, retry_seconds=PATIENCE_SECONDS) as third:
        assert third.reset(seed=3)[0] == "hello 3"


def test_a_token_comes_from_argument_url_or_environment(
    guarded_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the three opens; without one it is AuthenticationFailed, without retries."""
    monkeypatch.delenv("ENVHOST_TOKEN", raising=False)
    with EnvClient(guarded_server.url, token=TOKEN) as client:
        client.reset()
    with EnvClient(guarded_server.url.replace("//", f"//x:{TOKEN}@")) as client:
        client.reset()
    with EnvClient(f"{guarded_server.url}/t/{TOKEN}/") as client:
        client.reset()
    for wrong in (None, "wrong"):
        with pytest.raises(AuthenticationFailed, match="401"):
            EnvClient(guarded_server.url, token=wrong, retry_seconds=1000).reset()
    monkeypatch.setenv("ENVHOST_TOKEN", TOKEN)
    with EnvClient(guarded_server.url) as client:
        client.reset()
    assert capacity(guarded_server.url)[0] == 16


def test_the_token_shows_in_no_error(guarded_server: Any) -> None:
    """Neither in messages nor in reprs, whichever way it was given."""
    secret = "not-the-token"
    urls = (
        guarded_server.url.replace("//", f"//x:{secret}@"),
        f"{guarded_server.url}/t/{secret}",
        f"http://x:{secret}@127.0.0.1:1",
        f"ftp://x:{secret}@127.0.0.1:1",
        f"http://x:{secret}@127.0.0.1:port",
    )
    for url in urls:
        with pytest.raises((AuthenticationFailed, SessionLost, ConfigError)) as caught:
            EnvClient(url, retry_seconds=0).reset()
        assert secret not in f"{caught.value} {caught.value!r}"
        with pytest.raises((AuthenticationFailed, SessionLost, ConfigError)) as caught:
            capacity(url)
        assert secret not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "é", "\x00"])
def test_a_token_that_fits_no_header_is_refused(token: str) -> None:
    """At once, in words, and without showing it."""
    with pytest.raises(ConfigError, match="printable ASCII") as caught:
        EnvClient("http://127.0.0.1:1", token=token)

    assert token not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://a", "http://", "http://a:b", "http://[::1"]
)
def test_a_url_that_is_none_is_refused(url: str) -> None:
    """ConfigError says what was expected."""
    with pytest.raises(ConfigError, match="environment URL"):
        EnvClient(url)


def test_something_else_at_the_port_is_told(tmp_path: Path) -> None:
    """A web server that knows no /ws is no environment server: ConfigError, without retries."""
    script = (
        "from http.server import HTTPServer, SimpleHTTPRequestHandler\n"
        "server = HTTPServer(('127.0.0.1', 0), SimpleHTTPRequestHandler)\n"
        "print(server.server_port, flush=True)\n"
        "server.serve_forever()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    ) as other:
        try:
            assert other.stdout is not None
            url = f"http://127.0.0.1:{int(other.stdout.readline())}"
            with pytest.raises(ConfigError, match="expected an environment server, got HTTP 404"):
                EnvClient(url, retry_seconds=1000).reset()
            with pytest.raises(ConfigError, match="expected an environment server, got HTTP 404"):
                capacity(url)
        finally:
            other.kill()


def test_https_with_a_private_authority(
    start_server: Start, echo_entrypoint: str, certificate: tuple[Path, Path]
) -> None:
    """With the authority's file it opens; without it the certificate is named, without retries."""
    cert, key = certificate
    server = start_server(echo_entrypoint, "--tls-cert", str(cert), "--tls-key", str(key))
    assert server.url.startswith("https://")

    with EnvClient(server.url, ca_file=str(cert)) as client:
        assert client.reset(seed=5)[0] == "hello 5"
        assert client.step("abc")[1] == 3.0
    with EnvClient(server.url.replace("https", "wss"), ca_file=str(cert)) as client:
        assert client.reset(seed=6)[0] == "hello 6"
    assert capacity(server.url, ca_file=str(cert))[0] == 16

    with pytest.raises(ConfigError, match=r"certificate.*ca_file"):
        EnvClient(server.url, retry_seconds=1000).reset()
    with pytest.raises(ConfigError, match=r"certificate.*ca_file"):
        capacity(server.url)
    with pytest.raises(ConfigError, match="CA file"):
        EnvClient(server.url, ca_file=str(key)).reset()
    with pytest.raises(SessionLost):
        EnvClient(server.url.replace("https", "http"), retry_seconds=0).reset()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff" * 100,
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
)
def test_garbage_from_a_server_hits_nobody_else(server: Any, answer: bytes) -> None:
    """A peer that speaks no WebSocket is an error of that client; others step on."""
    with socket.create_server(("127.0.0.1", 0)) as listener, EnvClient(server.url) as other:
        other.reset()

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=speak)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises((SessionLost, ConfigError)):
            EnvClient(url, retry_seconds=0, request_timeout_seconds=5).reset()
        thread.join()
        assert other.step("abc")[1] == 3.0


def test_it_works_inside_a_running_asyncio_loop(server: Any) -> None:
    """As in a notebook."""

    async def main() -> float | None:
        with EnvClient(server.url) as client:
            client.reset()
            return client.step("abc")[1]

    assert asyncio.run(main()) == 3.0


def _outcome(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_it_works_after_a_fork(server: Any) -> None:
    """A child gets sessions of its own, in a client and in a pool; the parent keeps its own."""
    script = (
        "import os, sys\n"
        "from envhost.client import EnvClient, EnvPool\n"
        "client, pool = EnvClient(sys.argv[1]), EnvPool(sys.argv[1], 2)\n"
        "client.reset(seed=1)\n"
        "pool.submit_reset(0, seed=1)\n"
        "[first] = pool.results()\n"
        "def prompts(): return [result.prompt_or_observation for result in pool.results()]\n"
        "pid = os.fork()\n"
        "seed = 2 if pid == 0 else 3\n"
        "if pid == 0:\n"
        "    pool.submit_reset(0, seed=seed)\n"
        "    seen = [client.reset(seed=seed)[0], *prompts()]\n"
        "else:\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "    pool.submit(0, 'kept')\n"
        "    seen = [client.step('kept')[0], *prompts()]\n"
        "pool.close()\n"
        "client.close()\n"
        "print(pid == 0, seen, flush=True)\n"
    )

    ended = _outcome(script, server.url)

    assert ended.stderr == ""
    assert ended.stdout == "True ['hello 2', 'hello 2']\nFalse ['kept', 'kept']\n"
    assert ended.returncode == 0


def test_ctrl_c_interrupts_a_call_and_drops_its_session(
    start_server: Start, echo_entrypoint: str
) -> None:
    """The program gets KeyboardInterrupt at once, and the server sees the client leave."""
    server = start_server(echo_entrypoint)
    script = (
        "import sys\n"
        "from envhost.client import EnvClient\n"
        "client = EnvClient(sys.argv[1])\n"
        "client.reset()\n"
        "try:\n"
        "    client.step('sleep')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', client.reset(seed=9)[0], flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, server.url], stdout=subprocess.PIPE, text=True
    ) as program:
        wait_until(lambda: any(row["activity"] == "step" for row in _sessions(server)))
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=PATIENCE_SECONDS)

    assert output == "interrupted hello 9\n"
    wait_for_log(server, "session.closed", count=2)


# -- a pool ----------------------------------------------------------------------------------------


def _by_slot(pool: EnvPool) -> dict[int, list[Result]]:
    results: dict[int, list[Result]] = {}
    for result in pool.results():
        results.setdefault(result.slot, []).append(result)
    return results


def test_a_slots_results_come_in_the_order_submitted(server: Any) -> None:
    """Slots run side by side, each in its own order."""
    with EnvPool(server.url, 8) as pool:
        for slot in range(8):
            pool.submit_reset(slot, seed=slot)
            for number in range(5):
                pool.submit(slot, f"{slot}-{number}")
        assert pool.pending == 48

        results = _by_slot(pool)

        assert pool.pending == 0
        for slot in range(8):
            kinds = [result.kind for result in results[slot]]
            texts = [result.prompt_or_observation for result in results[slot]]
            assert kinds == ["reset", *["step"] * 5]
            assert texts == [f"hello {slot}", *(f"{slot}-{n}" for n in range(5))]


def test_a_slot_that_fails_is_a_result_and_hits_no_other(server: Any) -> None:
    """Its error is in the result; its next reset is a fresh session."""
    with EnvPool(server.url, 4) as pool:
        for slot in range(4):
            pool.submit_reset(slot, seed=slot)
        _by_slot(pool)
        pool.submit(0, "exit")
        pool.submit(0, "after")
        for slot in range(1, 4):
            pool.submit(slot, "abc")

        results = _by_slot(pool)

        failed, after = results[0]
        assert isinstance(failed.error, EnvironmentFailed)
        assert isinstance(after.error, SessionLost)
        assert failed.reward is None
        assert [results[slot][0].reward for slot in (1, 2, 3)] == [3.0, 3.0, 3.0]
        pool.submit_reset(0, seed=7)
        assert _by_slot(pool)[0][0].prompt_or_observation == "hello 7"


def test_poll_returns_what_has_arrived(server: Any) -> None:
    """Nothing at once where nothing is there; within the timeout otherwise."""
    with EnvPool(server.url, 1) as pool:
        assert pool.poll() == []
        assert pool.poll(timeout=None) == []
        pool.submit_reset(0, seed=1)
        pool.submit(0, "sleep")
        (reset,) = pool.poll(timeout=PATIENCE_SECONDS)
        assert reset.error is None
        assert pool.poll() == []
        assert pool.poll(timeout=0.05) == []
        assert pool.pending == 1


def test_closing_a_pool_gives_up_what_runs(start_server: Start, echo_entrypoint: str) -> None:
    """No session stays and none is opened again, by a slot in mid-step, in a retry or waiting."""
    server = start_server(echo_entrypoint, "--max-concurrent-envs", "2", "--admission-wait", "60")
    pool = EnvPool(server.url, 4, retry_seconds=PATIENCE_SECONDS)
    for slot in range(4):
        pool.submit_reset(slot, seed=slot)
        pool.submit(slot, "sleep")
    wait_until(lambda: [row["activity"] for row in _sessions(server)].count("step") == 2)

    pool.close()

    wait_until(lambda: _sessions(server) == [])
    opened = server.log().count("session.opened")
    assert list(pool.results()) == []
    pool.close()
    with pytest.raises(ConfigError, match="closed"):
        pool.submit_reset(0)
    with EnvPool(server.url, 2) as after:
        after.submit_reset(0, seed=1)
        after.submit_reset(1, seed=1)
        assert [result.error for result in after.results()] == [None, None]
    assert server.log().count("session.opened") == opened + 2


def test_many_servers_share_the_load(start_server: Start, echo_entrypoint: str) -> None:
    """A new session goes to the server with the fewest of the pool's."""
    servers = [start_server(echo_entrypoint) for _ in range(3)]
    with EnvPool([server.url for server in servers], 9) as pool:
        for slot in range(9):
            pool.submit_reset(slot, seed=slot)
        assert all(result.error is None for result in pool.results())

        assert [len(_sessions(server)) for server in servers] == [3, 3, 3]


def test_a_lost_server_is_left_for_another_at_once(
    start_server: Start, echo_entrypoint: str
) -> None:
    """Resets fail over without waiting for the retry time; steps in mid-episode are lost."""
    servers = [start_server(echo_entrypoint) for _ in range(2)]
    with EnvPool([s.url for s in servers], 6, retry_seconds=1000.0) as pool:
        for slot in range(6):
            pool.submit_reset(slot, seed=slot)
        assert all(result.error is None for result in pool.results())
        servers[0].stop(signal.SIGKILL)
        for slot in range(6):
            pool.submit(slot, "abc")
        lost = [result for result in pool.results() if result.error is not None]
        assert len(lost) == 3
        assert all(isinstance(result.error, SessionLost) for result in lost)

        for slot in range(6):
            pool.submit_reset(slot, seed=slot)

        assert all(result.error is None for result in pool.results())
        assert len(_sessions(servers[1])) == 6


def test_no_server_at_all_is_an_error_in_time() -> None:
    """With every server away a reset fails when the retry time is over."""
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with EnvPool(urls, 2, retry_seconds=0.2) as pool:
        pool.submit_reset(0)
        pool.submit(0, "abc")

        reset, step = _by_slot(pool)[0]

        assert isinstance(reset.error, SessionLost)
        assert isinstance(step.error, SessionLost)


def test_a_bug_in_a_submission_is_a_result(server: Any) -> None:
    """What cannot be sent fails its own slot."""
    circle: list[Any] = []
    circle.append(circle)
    with EnvPool(server.url, 2) as pool:
        pool.submit_reset(0, seed=circle)  # type: ignore[arg-type]
        pool.submit_reset(1, seed=1)

        results = _by_slot(pool)

        assert results[0][0].error is not None
        assert results[1][0].error is None


def test_five_hundred_sessions_cost_one_thread(server: Any) -> None:
    """Threads before and after differ by one at most."""
    before = threading.active_count()
    with EnvPool(server.url, 500) as pool:
        for slot in range(500):
            pool.submit_reset(slot, seed=slot)
        assert all(result.error is None for result in pool.results())

        assert threading.active_count() <= before + 1
        assert len(_sessions(server)) >= 500


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_clients_leave_no_descriptors() -> None:
    """Failed connections, timeouts and closes give back what they held."""
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SessionLost):
        EnvClient(url, retry_seconds=0).reset()  # what starts once has started
    before = _descriptors()

    for _ in range(50):
        with EnvClient(url, retry_seconds=0) as client, pytest.raises(SessionLost):
            client.reset()

    wait_until(lambda: _descriptors() <= before)


def test_a_pool_needs_a_url_and_a_slot() -> None:
    """ConfigError at once."""
    with pytest.raises(ConfigError, match="at least one URL"):
        EnvPool([], 1)
    with pytest.raises(ConfigError, match="size of at least 1"):
        EnvPool("http://127.0.0.1:1", 0)


def test_the_retry_time_bounds_a_reset() -> None:
    """A server that never comes costs no more than that."""
    started = time.monotonic()
    client = EnvClient(f"http://127.0.0.1:{free_port()}", retry_seconds=0.3)

    with pytest.raises(SessionLost):
        client.reset()

    assert time.monotonic() - started < PATIENCE_SECONDS
