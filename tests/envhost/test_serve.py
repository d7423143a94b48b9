"""`python -m envhost serve`, as a real process: what it prints, refuses, logs, and how it ends."""

from __future__ import annotations

import base64
import json
import logging
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from rawclient import PATIENCE_SECONDS, RawClient, wait_for_log, wait_until

from envhost.__main__ import main

Start = Callable[..., Any]

TOKEN = "correct-horse-battery-staple"
TOKEN_BASE64URL = base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "envhost", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def _status(url: str, **headers: str) -> int:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _exchange(port: int, data: bytes) -> bytes:
    """Send bytes and return all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
        connection.sendall(data)
        reply = b""
        while chunk := connection.recv(1 << 16):
            reply += chunk
        return reply


# -- starting ----------------------------------------------------------------------------------


def test_the_first_line_tells_where_and_how_many(start_server: Start, echo_entrypoint: str) -> None:
    """The fixture matches the line; port 0 has become a real one, and the cap is as asked."""
    server = start_server(echo_entrypoint, "--max-concurrent-envs", "3")

    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.url)
    assert server.port > 0
    with urllib.request.urlopen(f"{server.url}/metadata", timeout=PATIENCE_SECONDS) as reply:
        assert json.load(reply)["max_concurrent_envs"] == 3


def test_a_taken_port_is_one_line_and_status_2(start_server: Start, echo_entrypoint: str) -> None:
    """The message names the port and what to do."""
    server = start_server(echo_entrypoint)

    ended = _run(echo_entrypoint, "--port", str(server.port))

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert f"127.0.0.1:{server.port} is in use" in ended.stderr
    assert ended.stderr.count("\n") == 1


CONFIG_ERRORS = {
    "no such module": (["nowhere:make"], "No module named 'nowhere'"),
    "no such name": (["envhost.config:make"], "has no 'make'"),
    "no such file": (["nowhere.py:make"], "no such file"),
    "no colon": (["envhost"], "expected module:callable"),
    "relative module": ([".envs.code:make"], "expected module:callable"),
    "not an environment": (["builtins:object"], "expected an environment with reset and step"),
    "no signature": (["builtins:dict"], "no signature"),
    "bad JSON": (["ECHO", "--env-config", "{build"], "--env-config: expected a JSON object"),
    "JSON list": (["ECHO", "--env-config", "[1]"], "--env-config: expected a JSON object, got"),
    "unknown option": (["ECHO", "--env-config", '{"bild": ""}'], "unexpected keyword argument"),
    "wrong type": (["ECHO", "--port", "x"], "'x' is not a valid integer"),
    "unknown flag": (["ECHO", "--prot", "1"], "--prot"),
    "negative limit": (["ECHO", "--step-limit", "-1"], "--step-limit: expected 0 or more"),
    "not a number": (["ECHO", "--idle-limit", "nan"], "--idle-limit: expected 0 or more"),
    "no sessions": (["ECHO", "--max-concurrent-envs", "0"], "expected at least 1"),
    "no connections": (["ECHO", "--max-connections", "-1"], "expected 0 or more"),
    "port out of range": (["ECHO", "--port", "70000"], "expected 0 to 65535"),
    "off loopback": (["ECHO", "--host", "0.0.0.0"], "--token-file"),
    "half of TLS": (["ECHO", "--tls-cert", "cert.pem"], "go together"),
    "no TLS files": (["ECHO", "--tls-cert", "a.pem", "--tls-key", "b.pem"], "--tls-cert a.pem"),
    "no token file": (["ECHO", "--token-file", "nowhere"], "--token-file nowhere"),
    "no config file": (["ECHO", "--config", "nowhere.yaml"], "--config nowhere.yaml"),
}


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Give the log set-up back as it was."""
    logger = logging.getLogger("envhost")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.mark.parametrize("case", CONFIG_ERRORS)
@pytest.mark.usefixtures("own_logging")
def test_a_mistake_is_one_line_and_status_2(
    echo_entrypoint: str,
    case: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No traceback, nothing on standard output, and the line names what is wrong."""
    arguments, expected = CONFIG_ERRORS[case]
    arguments = [echo_entrypoint if argument == "ECHO" else argument for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["envhost", "serve", "--port", "0", *arguments])

    with pytest.raises(SystemExit) as ended:
        main()

    stdout, stderr = capsys.readouterr()
    assert expected in stderr
    assert stderr.startswith("envhost: ")
    assert stderr.count("\n") == 1
    assert (ended.value.code, stdout) == (2, "")


def test_unknown_keys_are_named_with_the_nearest(echo_entrypoint: str, tmp_path: Path) -> None:
    """All of a file's faults are told at once, in one line."""
    file = tmp_path / "host.yaml"
    file.write_text("prot: 1\nlimits:\n  step_second: 3\n  reset_seconds: soon\n")

    ended = _run(echo_entrypoint, "--config", str(file))

    assert ended.returncode == 2
    assert "prot: unknown key; did you mean port?" in ended.stderr
    assert "limits.step_second: unknown key; did you mean step_seconds?" in ended.stderr
    assert "limits.reset_seconds: expected a number, got 'soon'" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_settings_file_serves_and_the_command_line_wins(
    start_server: Start, echo_entrypoint: str, tmp_path: Path
) -> None:
    """What both give is taken from the command line."""
    file = tmp_path / "host.yaml"
    file.write_text(f"entrypoint: {echo_entrypoint}\nmax_concurrent_envs: 5\nport: 1\n")

    server = start_server("--config", str(file))  # the fixture adds --port 0

    assert server.port > 1
    with urllib.request.urlopen(f"{server.url}/metadata", timeout=PATIENCE_SECONDS) as reply:
        assert json.load(reply)["max_concurrent_envs"] == 5


def test_serving_imports_nothing_heavy() -> None:
    """Neither torch nor numpy nor datasets is loaded by the command or the bundled environment."""
    script = (
        "import sys, envhost.__main__, envhost.envs.code\n"
        "print([n for n in ('torch', 'numpy', 'datasets', 'transformers') if n in sys.modules])"
    )

    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert ended.stdout == "[]\n"


# -- probing -----------------------------------------------------------------------------------


# -- ending ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_idle_server_ends_on_a_signal(
    start_server: Start, echo_entrypoint: str, number: int
) -> None:
    """Idle sessions are closed with 1001 and the status is 0."""
    server = start_server(echo_entrypoint)
    with RawClient(server.port) as client:
        client.reset()

        server.process.send_signal(number)

        assert client.close_code() == 1001
    assert server.process.wait(PATIENCE_SECONDS) == 0
    assert "Traceback" not in server.log()


def test_ctrl_c_says_what_it_waits_for_and_again_ends_it(
    start_server: Start, echo_entrypoint: str
) -> None:
    """With a step running the first signal waits for it, the second does not."""
    server = start_server(echo_entrypoint)
    with RawClient(server.port) as client:
        client.reset()
        client.send({"type": "step", "data": {"message": "sleep"}})
        wait_until(lambda: _rows(server)[0]["activity"] == "step")

        server.process.send_signal(signal.SIGINT)
        (line,) = wait_for_log(server, "server.waiting")
        assert "running=1" in line
        assert server.process.poll() is None
        wait_until(lambda: _status(f"{server.url}/readyz") == 503)
        server.process.send_signal(signal.SIGINT)

        assert server.process.wait(PATIENCE_SECONDS) == 0
    assert "Traceback" not in server.log()


def test_a_running_step_may_end_in_the_drain_time(start_server: Start, tmp_path: Path) -> None:
    """A step that ends during the drain is answered before its session is closed."""
    file = tmp_path / "gated.py"
    file.write_text(
        "import trio\n"
        "from pathlib import Path\n"
        "from envhost.environment import Observation, StepResult, text_observation\n"
        "class Gated:\n"
        "    def __init__(self, gate): self.gate = Path(gate)\n"
        "    async def reset(self): return Observation(text_observation(''))\n"
        "    async def step(self, action):\n"
        "        while not self.gate.exists(): await trio.sleep(0.01)\n"
        "        return StepResult(observation={}, reward=1.0, terminated=True)\n"
        "    async def state(self): return {}\n"
        "    async def close(self): pass\n"
    )
    gate = tmp_path / "gate"
    server = start_server(f"{file}:Gated", "--env-config", json.dumps({"gate": str(gate)}))
    with RawClient(server.port) as client:
        client.reset()
        client.send({"type": "step", "data": {"message": "go"}})
        wait_until(lambda: _rows(server)[0]["activity"] == "step")
        server.process.send_signal(signal.SIGTERM)
        wait_for_log(server, "server.draining")

        gate.touch()

        assert client.receive()["data"]["reward"] == 1.0
        assert client.close_code() == 1001
    assert server.process.wait(PATIENCE_SECONDS) == 0


def _rows(server: Any) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.url}/sessions", timeout=PATIENCE_SECONDS) as reply:
        rows: list[dict[str, Any]] = json.load(reply)
        return rows


# -- capacity and log --------------------------------------------------------------------------


def test_the_tenth_session_at_nine_is_refused(start_server: Start, echo_entrypoint: str) -> None:
    """CAPACITY_REACHED comes with the counts, the option to raise, and time to read it."""
    server = start_server(echo_entrypoint, "--max-concurrent-envs", "9", "--admission-wait", "0.1")
    clients = [RawClient(server.port) for _ in range(9)]
    for client in clients:
        client.reset()
    assert _status(f"{server.url}/readyz") == 503

    with RawClient(server.port) as tenth:
        data = tenth.receive()["data"]
        assert data["code"] == "CAPACITY_REACHED"
        assert data["message"].startswith("Server at capacity: 9/9 sessions active. ")
        assert "--max-concurrent-envs" in data["message"]
        assert (data["active_sessions"], data["max_sessions"]) == (9, 9)
        tenth.send({"type": "reset"})  # the hold ends with the client's first frame
        assert tenth.close_code() == 1000

    for client in clients:
        assert client.step("abc")["data"]["reward"] == 3.0
        client.close()


def test_no_admission_wait_still_admits(start_server: Start, echo_entrypoint: str) -> None:
    """With a wait of 0 s a free slot is taken, and only a full server refuses."""
    server = start_server(echo_entrypoint, "--max-concurrent-envs", "1", "--admission-wait", "0")
    with RawClient(server.port) as first, RawClient(server.port) as second:
        first.reset()

        assert second.ask({"type": "reset"})["data"]["code"] == "CAPACITY_REACHED"


def test_the_log_tells_each_session_from_open_to_close(
    start_server: Start, echo_entrypoint: str
) -> None:
    """Opened, reset, step and closed carry the same id, and no text of a model."""
    server = start_server(echo_entrypoint)
    with RawClient(server.port) as client:
        client.reset(seed=5)
        client.step("a secret answer")
        client.close()

    (closed,) = wait_for_log(server, "session.closed")
    found = re.search(r"session=(\w+)", closed)
    assert found
    lines = [line for line in server.log().splitlines() if f"session={found[1]}" in line]
    events = [line.split()[1] for line in lines]
    assert events == ["session.opened", "reset", "step", "session.closed"]
    assert "seed=5" in lines[1]
    assert "reward=15" in lines[2]
    assert "reason='client closed'" in lines[3]
    assert "steps=1" in lines[3]
    assert "secret answer" not in server.log()


# -- keeping others out ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded_server(
    start_shared_server: Start, echo_entrypoint: str, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return a server that wants a token."""
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(f"{TOKEN}\n")
    return start_shared_server(echo_entrypoint, "--token-file", str(file))


@pytest.fixture(scope="module")
def open_server(start_shared_server: Start, echo_entrypoint: str) -> Any:
    """Return a server without a token that knows one more origin and one more host."""
    return start_shared_server(
        echo_entrypoint,
        *("--allow-origin", "https://lab.example", "--allow-host", "Lab.example"),
        *("--head-bytes", "4096", "--head-limit", "1"),
    )


def _basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/ws", f"Authorization: Bearer {TOKEN}"),
        ("/ws", f"authorization: bearer  {TOKEN} "),
        ("/ws", _basic("anyone", TOKEN)),
        (f"/t/{TOKEN}/ws", "X-Nothing: 0"),
        ("/ws", f"Sec-WebSocket-Protocol: envhost, envhost.bearer.{TOKEN_BASE64URL}"),
    ],
)
def test_the_token_opens_in_four_ways(guarded_server: Any, path: str, header: str) -> None:
    """Bearer, Basic with any user, the path prefix, and a browser's subprotocol."""
    with RawClient(guarded_server.port, path=path, headers=(header,)) as client:
        assert client.status == 101
        client.reset()


@pytest.mark.parametrize(
    ("path", "header"),
    [
        ("/ws", "X-Nothing: 0"),
        ("/ws", "Authorization: Bearer wrong"),
        ("/ws", "Authorization: Bearer"),
        ("/ws", "Authorization: Bearer \xff\xfe"),
        ("/ws", "Authorization: Basic !!!"),
        ("/ws", _basic(TOKEN, "")),
        ("/ws", f"Authorization: {TOKEN}"),
        (f"/ws?token={TOKEN}", "X-Nothing: 0"),
        ("/t/wrong/ws", f"Authorization: Bearer {TOKEN}"),
        ("/t//ws", "X-Nothing: 0"),
        ("/metrics", "X-Nothing: 0"),
        ("/sessions", "X-Nothing: 0"),
        ("/", "X-Nothing: 0"),
    ],
)
def test_nothing_else_opens(guarded_server: Any, path: str, header: str) -> None:
    """Without the token every path but the two open ones answers 401."""
    with RawClient(guarded_server.port, path=path, headers=(header,)) as client:
        assert client.status == 401


def test_health_and_readyz_need_no_token(guarded_server: Any) -> None:
    """Load balancers come in without one, from whatever host name."""
    assert _status(f"{guarded_server.url}/health", Host="balancer.example") == 200
    assert _status(f"{guarded_server.url}/readyz", Host="balancer.example") == 200


def test_the_token_shows_nowhere(guarded_server: Any) -> None:
    """Neither in the log, nor in `ps`, nor in any reply, however it is offered."""
    port = guarded_server.port
    replies = b""
    for path in (f"/t/{TOKEN}/nowhere", f"/t/{TOKEN}", f"/t/x{TOKEN}/ws", f"/{TOKEN}"):
        for header in (f"Authorization: Bearer {TOKEN}x", f"Authorization: Bearer {TOKEN}"):
            request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n"
            replies += _exchange(port, request.encode())
    offer = f"Sec-WebSocket-Protocol: envhost, envhost.bearer.{TOKEN_BASE64URL}"
    with RawClient(port, headers=(offer,)) as client:
        replies += client.head
    assert b"Sec-WebSocket-Protocol: envhost\r\n" in replies
    with RawClient(port, path=f"/t/{TOKEN}/ws") as client:
        client.reset()
        client.send_frame(0x1, b"\xff")
        client.close_code()
    wait_for_log(guarded_server, "session.closed")

    assert TOKEN.encode() not in replies
    assert TOKEN_BASE64URL.encode() not in replies
    assert TOKEN not in guarded_server.log()
    assert TOKEN_BASE64URL not in guarded_server.log()
    assert TOKEN not in " ".join(psutil.Process(guarded_server.process.pid).cmdline())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (("Origin: http://127.0.0.1:{port}",), 101),
        (("Origin: https://lab.example",), 101),
        (("Origin: https://evil.example",), 403),
        (("Origin: null",), 403),
        (("Origin: ",), 403),
        (("Origin: http://[::1",), 403),
        (("Origin: http://127.0.0.1:{port}.evil.example",), 403),
    ],
)
def test_a_foreign_web_page_is_refused(
    open_server: Any, headers: tuple[str, ...], status: int
) -> None:
    """Only our own origin and the allowed ones get 101; a malformed one is no accident of ours."""
    lines = tuple(header.format(port=open_server.port) for header in headers)

    with RawClient(open_server.port, headers=lines) as client:
        assert client.status == status

    assert "Traceback" not in open_server.log()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1234", 200),
        ("127.0.0.1", 200),
        ("[::1]:80", 200),
        ("lab.example", 200),
        ("lab.example.:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("", 403),
        ("[::1", 403),
        ("localhost@evil.example", 403),
    ],
)
def test_an_unknown_host_is_refused(open_server: Any, host: str, status: int) -> None:
    """A name that somebody pointed at us (DNS rebinding) gets 403 where no token is asked."""
    reply = _exchange(open_server.port, f"GET /metadata HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())

    assert int(reply.split()[1]) == status


@pytest.mark.parametrize("part", [b"", b"GET / HTTP/1.1\r\nHost:"])
def test_a_slow_head_is_cut_off(open_server: Any, part: bytes) -> None:
    """A head that does not end within its limit gets 408."""
    assert _exchange(open_server.port, part).startswith(b"HTTP/1.1 408 ")


def test_a_big_head_is_refused(open_server: Any) -> None:
    """A head above its limit gets 431, and the client can read that although it still sends."""
    reply = _exchange(open_server.port, b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000)

    assert reply.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "head",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /ws\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"\x00" * 100,
        b"POST /ws HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n",
        b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_a_malformed_head_is_a_client_error(open_server: Any, head: bytes) -> None:
    """The status is in the four hundreds and the log has no traceback."""
    reply = _exchange(open_server.port, head)

    assert re.match(rb"HTTP/1\.1 4\d\d ", reply), reply
    assert "Traceback" not in open_server.log()


def test_the_oldest_handshake_makes_room(start_server: Start, echo_entrypoint: str) -> None:
    """Sockets that never finish their handshake keep nobody out."""
    server = start_server(echo_entrypoint, "--max-connections", "3")
    silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
    try:
        with RawClient(server.port) as client:
            client.reset()
            assert client.step("abc")["data"]["reward"] == 3.0
    finally:
        for connection in silent:
            connection.close()


def test_tls_serves_the_same(
    start_server: Start, echo_entrypoint: str, certificate: tuple[Path, Path]
) -> None:
    """With a certificate the URL is https, pages answer, and plain HTTP gets nothing."""
    cert, key = certificate
    server = start_server(echo_entrypoint, "--tls-cert", str(cert), "--tls-key", str(key))
    assert server.url.startswith("https://")

    trust = ssl.create_default_context(cafile=str(cert))
    with urllib.request.urlopen(f"{server.url}/health", context=trust) as reply:
        assert json.load(reply) == {"status": "healthy"}
    with (
        socket.create_connection(("127.0.0.1", server.port)) as plain,
        trust.wrap_socket(
            plain, server_hostname="localhost", suppress_ragged_eofs=False
        ) as connection,
    ):
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        text = b""
        while chunk := connection.recv(65536):  # an end that TLS does not announce raises
            text += chunk
        assert b"healthy" in text
    assert b"HTTP" not in _exchange(server.port, b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")

    assert server.stop() == 0
    assert "Traceback" not in server.log()


def test_starting_takes_less_than_it_takes_to_notice(
    start_server: Start, echo_entrypoint: str
) -> None:
    """The processor time from start to the first line stays under a second."""
    started = time.monotonic()
    server = start_server(echo_entrypoint)
    wall = time.monotonic() - started
    times = psutil.Process(server.process.pid).cpu_times()

    assert min(wall, times.user + times.system) < 1.0
