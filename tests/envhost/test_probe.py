"""`python -m envhost probe`: what it shows, and what it says is wrong."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ports import free_port

from envhost.commands.hints import findings
from envhost.errors import EnvironmentFailed, RequestTimedOut, ServerBusy

Run = Callable[..., Any]
Start = Callable[..., Any]

NUMBER = r"[\d.]+ m?s"
SPREAD = rf"{NUMBER} median, {NUMBER} at most, of (\d+)"


@pytest.fixture(scope="module")
def server(start_shared_server: Start, echo_entrypoint: str) -> Any:
    """Return an echo server of six sessions."""
    return start_shared_server(
        echo_entrypoint, "--max-concurrent-envs", "6", "--admission-wait", "0.2"
    )


def _line(shown: str, start: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith(start)]
    return line


# -- what it shows ---------------------------------------------------------------------------------


def test_a_probe_shows_what_a_server_has(run_envhost: Run, server: Any, tmp_path: Path) -> None:
    """Capacity, the way there and back, a reset, the prompt, a reward; controls escaped."""
    answer = tmp_path / "answer.txt"
    answer.write_text("\x1b[31mred")

    ended = run_envhost("probe", server.url, "--seed", "4", "--answer", str(answer))

    assert (ended.returncode, ended.stderr) == (0, "")
    shown = ended.stdout
    assert re.fullmatch(r"server: \d of 6 sessions open", _line(shown, "server:"))
    assert re.fullmatch(rf"round trip: {SPREAD}", _line(shown, "round trip:"))
    assert _line(shown, "sessions:") == "sessions: 1 of 1 without a failure"
    assert re.fullmatch(rf"reset: {NUMBER}", _line(shown, "reset:"))
    assert _line(shown, "prompt:") == "prompt: hello 4"
    assert re.fullmatch(rf"step: {NUMBER}; [\d.]+ a second in all", _line(shown, "step:"))
    assert _line(shown, "verdicts:") == "verdicts: none 1; mean reward 8"
    assert "\x1b" not in shown


def test_sessions_are_stepped_side_by_side(run_envhost: Run, server: Any) -> None:
    """Five sessions of three steps; an episode that ends begins anew in between."""
    ended = run_envhost(
        *("probe", server.url, "--sessions", "5", "--steps", "3", "--answer", "-"), stdin="end"
    )

    assert ended.returncode == 0
    assert _line(ended.stdout, "sessions:") == "sessions: 5 of 5 without a failure"
    steps = re.match(rf"step: {SPREAD};", _line(ended.stdout, "step:"))
    resets = re.match(rf"reset: {SPREAD}", _line(ended.stdout, "reset:"))
    assert steps is not None
    assert resets is not None
    assert (steps[1], resets[1]) == ("15", "15")
    assert _line(ended.stdout, "verdicts:") == "verdicts: none 15; mean reward 3"


def test_a_full_server_is_told_with_the_remedy(run_envhost: Run, server: Any) -> None:
    """Status 1; how many were refused, and the rule for --max-concurrent-envs."""
    ended = run_envhost("probe", server.url, "--sessions", "9")

    assert ended.returncode == 1
    assert _line(ended.stdout, "sessions:") == "sessions: 6 of 9 without a failure"
    assert "3 of 9 sessions failed: ServerBusy" in ended.stderr
    assert "batch_size × group_size + 1" in ended.stderr
    assert "the server allows 6" in ended.stderr


def test_a_slow_step_is_told_with_the_remedy(run_envhost: Run, server: Any) -> None:
    """Status 1; request_timeout_s is named."""
    ended = run_envhost("probe", server.url, "--answer", "-", "--timeout", "1", stdin="sleep")
    assert ended.returncode == 1
    assert "1 of 1 sessions failed: RequestTimedOut" in ended.stderr
    assert "raise request_timeout_s in the manifest" in ended.stderr


# -- what it says is wrong -------------------------------------------------------------------------


def test_zero_rewards_are_put_into_place() -> None:
    """They are no failure of the way; any other reward says nothing."""
    quiet = {"failures": [], "isolation": "bwrap", "sessions": 1, "total": 16}
    (line,) = findings(rewards=[0.0, 0.0], **quiet)
    assert line.startswith("every reward was 0: right for an answer that solves nothing")
    assert findings(rewards=[0.0, 1.0], **quiet) == []
    assert findings(rewards=[], **quiet) == []


def test_a_missing_sandbox_is_told() -> None:
    """Programs that run as the server's user are worth a line, also where nothing failed."""
    (line,) = findings(
        failures=[], rewards=[1.0], isolation="none: not isolated", sessions=1, total=16
    )
    assert line.startswith("programs are not isolated on the server's machine")


def test_failures_are_counted_by_what_they_say() -> None:
    """The commonest first, each once; then what to do, once for each kind."""
    failures = [ServerBusy("full"), RequestTimedOut("late"), ServerBusy("full")]
    failures.append(EnvironmentFailed("broken"))
    lines = findings(failures=failures, rewards=[], isolation=None, sessions=5, total=None)
    assert lines[0] == "2 of 5 sessions failed: ServerBusy: full"
    assert set(lines[1:3]) == {
        "1 of 5 sessions failed: RequestTimedOut: late",
        "1 of 5 sessions failed: EnvironmentFailed: broken",
    }
    assert len(lines) == 5


@pytest.fixture
def closing_url() -> Iterator[str]:
    """Return the URL of a port that closes each connection at once: a tunnel to nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close_each() -> None:
            with suppress(OSError):
                while True:
                    listener.accept()[0].close()

        thread = threading.Thread(target=close_each)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def hostile_url() -> Iterator[str]:
    """Return the URL of a server that refuses with text that would steer a terminal."""
    body = "\x1b[31mno\nenvhost: all is well\n"
    reply = f"HTTP/1.1 401 No\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            with listener.accept()[0] as client:
                client.recv(4096)
                client.sendall(reply)

        thread = threading.Thread(target=refuse)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_what_a_server_says_steers_no_terminal(run_envhost: Run, hostile_url: str) -> None:
    """Control characters and line ends of a refusal are shown, not obeyed."""
    ended = run_envhost("probe", hostile_url)
    assert "\x1b" not in ended.stderr
    _refused(ended, r"\x1b[31mno\nenvhost: all is well")


def _refused(ended: Any, *words: str) -> None:
    for each in words:
        assert each in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (ended.returncode, ended.stdout) == (2, "")


def test_a_tunnel_to_nowhere_is_told(run_envhost: Run, closing_url: str) -> None:
    """The far end of a tunnel answers, and closes: its server does not run."""
    _refused(run_envhost("probe", closing_url), "tunnel stands and the server behind it does not")


def test_a_port_that_nobody_has_is_told(run_envhost: Run) -> None:
    """On this machine it is the tunnel that is missing."""
    ended = run_envhost("probe", f"http://127.0.0.1:{free_port()}")
    _refused(ended, "cannot connect", "nobody listens on that port of this", "scripts/tunnel.sh")


def test_a_name_that_nobody_has_is_told(run_envhost: Run) -> None:
    """With the URL that was meant."""
    _refused(run_envhost("probe", "http://nowhere.invalid:8000"), "known by that name here")


def test_tls_where_there_is_none_is_told(run_envhost: Run, server: Any) -> None:
    """An https URL of a server without a certificate."""
    url = server.url.replace("http:", "https:")
    _refused(run_envhost("probe", url), "no TLS is spoken there: try http://")


def test_no_tls_where_there_is_some_is_told(
    run_envhost: Run, start_server: Start, echo_entrypoint: str, certificate: tuple[Path, Path]
) -> None:
    """An http URL of a server with a certificate; and a certificate that nobody vouches for."""
    cert, key = map(str, certificate)
    server = start_server(echo_entrypoint, "--tls-cert", cert, "--tls-key", key)
    plain = server.url.replace("https:", "http:")
    _refused(run_envhost("probe", plain), "or it speaks TLS: then https://")
    _refused(run_envhost("probe", server.url), "certificate", "ca_file")
    assert run_envhost("probe", server.url, "--ca-file", cert).returncode == 0


def test_a_token_that_is_missing_or_wrong_is_told(
    run_envhost: Run, start_server: Start, echo_entrypoint: str, tmp_path: Path
) -> None:
    """And a file that is not there; the token itself shows in no message."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("right-secret")
    wrong.write_text("wrong-secret")
    server = start_server(echo_entrypoint, "--token-file", str(right))
    _refused(run_envhost("probe", server.url), "401", "--token-file, or in ENVHOST_TOKEN")
    ended = run_envhost("probe", server.url, "--token-file", str(wrong))
    _refused(ended, "401")
    assert "secret" not in ended.stderr
    _refused(run_envhost("probe", server.url, "--token-file", "nowhere"), "nowhere")
    assert run_envhost("probe", server.url, "--token-file", str(right)).returncode == 0
