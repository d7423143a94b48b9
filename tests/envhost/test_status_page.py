"""The status page without a browser: who gets what, under which policy, and what it is told."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rawclient import RawClient, wait_until
from server_process import ServerProcess

from envhost.telemetry import log_event, recent_warnings

TOKEN = "a-token-for-the-page"
Start = Callable[..., ServerProcess]


def _ask(
    server: ServerProcess, path: str, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply, body


def _status(server: ServerProcess) -> dict[str, Any]:
    _, body = _ask(server, "/status.json")
    status: dict[str, Any] = json.loads(body)
    return status


@pytest.fixture(scope="module")
def open_server(start_shared_server: Start, echo_entrypoint: str) -> ServerProcess:
    return start_shared_server(echo_entrypoint, "--max-concurrent-envs", "3")


@pytest.fixture(scope="module")
def guarded_server(
    start_shared_server: Start, echo_entrypoint: str, tmp_path_factory: pytest.TempPathFactory
) -> ServerProcess:
    token_file = tmp_path_factory.mktemp("token") / "token"
    token_file.write_text(TOKEN)
    token_file.chmod(0o600)
    return start_shared_server(echo_entrypoint, "--token-file", str(token_file))


def test_the_policy_lets_the_pages_own_script_and_style_run_and_nothing_else(
    open_server: ServerProcess,
) -> None:
    """The hashes are those of what stands between the tags; everything else is refused."""
    reply, body = _ask(open_server, "/")

    assert (reply.status, reply.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in reply.headers["Content-Security-Policy"].split(";")
    )
    for tag in ("script", "style"):
        (text,) = re.findall(rb"<%s>(.*?)</%s>" % (tag.encode(), tag.encode()), body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        assert policy.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert policy == {
        "default-src": "'none'",
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_asks_nobody_else_and_has_no_inline_handlers(open_server: ServerProcess) -> None:
    """One file: no address but the SVG name space, no on… attribute, no innerHTML."""
    _, body = _ask(open_server, "/")
    text = body.decode()

    addresses = set(re.findall(r"https?://[^'\"\s)]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<[^>]*\son\w+=", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", text)
    assert not re.search(r"<(link|script|img|iframe)[^>]*\b(src|href)=\"(?!data:)", text)


def test_without_the_token_there_is_the_page_and_no_fact(guarded_server: ServerProcess) -> None:
    """401, with the form as its body: the same bytes that everybody gets."""
    refused, form = _ask(guarded_server, "/")
    let_in, page = _ask(guarded_server, "/", Authorization=f"Bearer {TOKEN}")

    assert (refused.status, let_in.status) == (401, 200)
    assert refused.headers["WWW-Authenticate"] == 'Bearer realm="envhost"'
    assert refused.headers["Content-Security-Policy"] == let_in.headers["Content-Security-Policy"]
    assert form == page
    assert b"echo" not in form
    assert "request.refused" not in guarded_server.log()


@pytest.mark.parametrize("path", ["/status.json", "/status.json/", "//", "/?token=x", "/ws"])
def test_everything_else_of_it_wants_the_token(guarded_server: ServerProcess, path: str) -> None:
    """The facts, and whatever looks like the page; `/?…` is the page, without a fact in it."""
    reply, body = _ask(guarded_server, path)

    assert reply.status == 401
    assert (b"<!doctype html>" in body) == (path == "/?token=x")
    allowed, _ = _ask(guarded_server, "/status.json", Authorization=f"Bearer {TOKEN}")
    assert allowed.status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null"])
def test_a_foreign_page_gets_neither_page_nor_facts(
    open_server: ServerProcess, origin: str
) -> None:
    """403, and no header that would let its script read anything."""
    for path in ("/", "/status.json"):
        reply, body = _ask(open_server, path, Origin=origin)
        assert reply.status == 403
        assert b"<!doctype html>" not in body
        assert "Access-Control-Allow-Origin" not in reply.headers
    reply, _ = _ask(open_server, "/status.json", Host="evil.example")
    assert reply.status == 403


def test_the_page_is_read_only(open_server: ServerProcess) -> None:
    """HEAD has no body, and nothing else than GET is taken."""
    reply, body = _ask(open_server, "/", "HEAD")
    assert (reply.status, body) == (200, b"")
    for path in ("/", "/status.json"):
        assert _ask(open_server, path, "POST")[0].status == 405


def test_the_facts_tell_of_sessions_and_steps(open_server: ServerProcess) -> None:
    """Counts go up by what is done, and a session is gone from the rows when it is closed."""
    before = _status(open_server)
    with RawClient(open_server.port) as client:
        client.reset()
        client.send({"type": "step", "data": {"message": "hello"}})
        client.receive()
        during = _status(open_server)
    (row,) = during["sessions"]

    assert before["name"].endswith(":Echo")
    assert during["steps"] == before["steps"] + 1
    assert (during["sessions_open"], during["sessions_total"]) == (1, 3)
    assert (row["activity"], row["steps"], row["last_verdict"]) == ("idle", 1, "")
    assert "episode_id" not in row
    assert during["conditions"] == []
    assert sum(one["steps"] for one in during["bins"]) == during["steps"]
    assert during["uptime_seconds"] >= before["uptime_seconds"] > 0


def test_no_more_sessions_are_told_than_a_page_can_show(
    start_server: Start, echo_entrypoint: str
) -> None:
    """A hundred rows, those at work first."""
    server = start_server(echo_entrypoint, "--max-concurrent-envs", "120")
    clients = [RawClient(server.port) for _ in range(110)]
    for client in clients:
        client.reset()
    clients[-1].send({"type": "step", "data": {"message": "sleep"}})
    clients[-2].send({"type": "step", "data": {"message": "a"}})
    clients[-2].receive()
    wait_until(lambda: _status(server)["sessions"][0]["activity"] == "step")
    status = _status(server)

    assert (status["sessions_open"], status["sessions_listed"]) == (110, 110)
    assert len(status["sessions"]) == 100
    for client in clients:
        client.socket.close()


def test_the_conditions_say_what_to_do(start_server: Start, echo_entrypoint: str) -> None:
    """A full server, a refused session, an error reply, and an address that is open to all."""
    server = start_server(
        echo_entrypoint, "--max-concurrent-envs", "1", "--admission-wait", "0.1",
        "--host", "0.0.0.0", "--insecure-no-token",
    )  # fmt: skip
    with RawClient(server.port) as first:
        first.send({"type": "reset", "data": {"seed": -1}})
        assert first.receive()["type"] == "error"
        with RawClient(server.port) as second:
            assert second.receive()["data"]["code"] == "CAPACITY_REACHED"
        status = _status(server)

    told = "\n".join(status["conditions"])
    assert "Whoever can reach 0.0.0.0 may run programs here" in told
    assert "Every slot is taken" in told
    assert "Sessions refused: 1. Raise --max-concurrent-envs" in told
    assert "Error replies sent: 2." in told
    texts = [warning["text"] for warning in status["warnings"]]
    assert any(text.startswith("session.refused") for text in texts)
    assert any(text.startswith("reset.failed") for text in texts)


UNSCORED = '''
from envhost.environment import Observation, text_observation
from envhost.errors import NotScored


class Unscored:
    """Never able to judge."""

    async def reset(self, **_):
        return Observation(text_observation("p"), {"problem_id": "p/1"})

    async def step(self, action):
        raise NotScored("the cell broke")

    async def state(self):
        return {}

    async def close(self):
        pass
'''


def test_an_answer_that_we_failed_to_judge_is_told_as_such(
    start_server: Start, tmp_path: Path
) -> None:
    """As IE, among the answers and in the conditions; it is neither a step nor another error."""
    (tmp_path / "unscored.py").write_text(UNSCORED)
    server = start_server(f"{tmp_path / 'unscored.py'}:Unscored")
    with RawClient(server.port) as client:
        client.reset()
        client.send({"type": "step", "data": {"message": "x"}})
        assert client.receive()["type"] == "error"
        status = _status(server)

    assert status["verdicts"] == {"IE": 1}
    assert status["steps"] == 0
    (failure,) = status["failures"]
    assert (failure["verdict"], failure["problem_id"], failure["answer"]) == ("IE", "p/1", None)
    assert status["conditions"] == ["Answers that could not be judged: 1. The log says why."]
    assert status["sessions"][0]["last_verdict"] == "IE"


def test_an_unisolated_server_says_so(start_server: Start, tmp_path: Path) -> None:
    """The page's first words are about it."""
    row = {"problem": "Print 1.", "tests": {"inputs": [""], "outputs": ["1\n"]}}
    (tmp_path / "one.jsonl").write_text(json.dumps(row) + "\n")
    config = {"dataset": str(tmp_path / "one.jsonl"), "sandbox_type": "none"}
    server = start_server("--unsafe-no-sandbox", "--env-config", json.dumps(config))

    status = _status(server)

    assert status["isolation"].startswith("none")
    (condition,) = status["conditions"]
    assert condition == "Programs are not isolated: they run with the server's own rights."


def test_warnings_are_kept_in_number_and_only_warnings() -> None:
    """The last fifty; a line below WARNING is not among them."""
    recent_warnings.clear()
    for number in range(60):
        log_event("test.note", number=number)
        log_event("test.warned", 30, number=number)

    assert len(recent_warnings) == 50
    assert recent_warnings[-1][1] == "test.warned number=59"
    recent_warnings.clear()
