"""Who may come in, decided on a request's head alone."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envhost.wire.auth import AccessRules, is_loopback
from envhost.wire.http import RequestHead

OPEN = AccessRules(token=None, hosts=frozenset(("lab.example",)), origins=frozenset(("null",)))
GUARDED = AccessRules(token="token", hosts=frozenset(), origins=frozenset())


def _status(rules: AccessRules, path: str = "/ws", **headers: str) -> int:
    """Return the refusal's status, or 0 where there is none."""
    head = RequestHead(method="GET", path=path, query="", headers=headers)
    _, refusal = rules.check(head, "10.0.0.7")
    return refusal.status if refusal else 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 0),
        ("127.0.0.1:8000", 0),
        ("[::1]:8000", 0),
        ("10.0.0.7:8000", 0),  # the address that was connected to
        ("lab.example", 0),
        ("LAB.EXAMPLE.:80", 0),
        ("10.0.0.8", 403),
        ("evil.example", 403),
        ("", 403),
        ("[", 403),
        ("lab.example.evil", 403),
        ("user@evil.example", 403),
    ],
)
def test_without_a_token_the_host_must_be_known(host: str, status: int) -> None:
    """Loopback names, the address itself and what the user allowed."""
    assert _status(OPEN, host=host) == status


def test_with_a_token_any_host_will_do() -> None:
    """A page that rebinds a name does not have the token."""
    bearer = "Bearer token"
    assert _status(GUARDED, host="evil.example", authorization=bearer) == 0


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer token", 0),
        ("BEARER  token  ", 0),
        ("Basic " + base64.b64encode(b"me:token").decode(), 0),
        ("Basic " + base64.b64encode(b"token:").decode(), 401),
        ("Basic %%%", 401),
        ("Basic " + base64.b64encode(b"\xff:\xff").decode(), 401),
        ("Bearer", 401),
        ("Bearer t", 401),
        ("Bearer tök\u00e9n", 401),
        ("token", 401),
        ("Digest token", 401),
        ("", 401),
    ],
)
def test_the_header_carries_the_token(authorization: str, status: int) -> None:
    """Bearer or Basic, whatever the case of the scheme and the user's name."""
    assert _status(GUARDED, authorization=authorization) == status


@pytest.mark.parametrize(
    ("offered", "status"),
    [
        ("envhost, envhost.bearer.dG9rZW4", 0),  # base64url of `token`, unpadded
        ("envhost.bearer.dG9rZW4=,other", 0),
        ("envhost.bearer.dG9rZQ", 401),
        ("envhost.bearer.", 401),
        ("envhost.bearer.token", 401),
        ("envhost.bearer.d", 401),
        ("envhost.bearer.\u00e9", 401),
        ("xenvhost.bearer.dG9rZW4", 401),
        ("envhost", 401),
        ("", 401),
    ],
)
def test_a_browsers_websocket_offers_the_token_as_a_subprotocol(offered: str, status: int) -> None:
    """The one header that a page can set there; no token stands in a URL."""
    assert _status(GUARDED, **{"sec-websocket-protocol": offered}) == status


def test_an_authorization_header_outweighs_a_subprotocol() -> None:
    """One wrong token is not mended by another way of giving it."""
    headers = {"authorization": "Bearer x", "sec-websocket-protocol": "envhost.bearer.dG9rZW4"}
    assert _status(GUARDED, **headers) == 401


@pytest.mark.parametrize(
    ("path", "status", "rest"),
    [
        ("/t/to%6Ben/ws", 0, "/ws"),
        ("/t/to%6Ben", 0, "/"),
        ("/t/to%6Ben/t/x/ws", 0, "/t/x/ws"),
        ("/t/wrong/ws", 401, "/ws"),
        ("/t//ws", 401, "/ws"),
        ("/t/", 401, "/"),
        ("/tt/ws", 401, "/tt/ws"),
    ],
)
def test_the_path_may_carry_the_token(path: str, status: int, rest: str) -> None:
    """The prefix is taken off once, whether or not it opens."""
    head = RequestHead(method="GET", path=path, query="", headers={})

    inner, refusal = GUARDED.check(head, "10.0.0.7")

    assert (refusal.status if refusal else 0, inner.path) == (status, rest)


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 0),
        ("https://LOCALHOST:8000", 0),
        ("null", 0),
        ("http://localhost", 403),
        ("http://localhost:8001", 403),
        ("http://evil.example", 403),
        ("http://[", 403),
        ("", 403),
    ],
)
def test_an_origin_must_be_ours_or_allowed(origin: str, status: int) -> None:
    """Its host and port are the request's own Host, or the whole is on the list."""
    assert _status(OPEN, host="localhost:8000", origin=origin) == status


def test_an_origin_is_checked_with_a_token_too() -> None:
    """A browser may hold the token in a cookie or in a URL."""
    assert _status(GUARDED, authorization="Bearer token", origin="http://evil.example") == 403


@given(st.text(), st.text(), st.text(), st.text(), st.text())
def test_no_head_makes_the_rules_raise(
    path: str, host: str, origin: str, auth: str, protocol: str
) -> None:
    """Whatever a client sends there is an answer, and it never opens a guarded server."""
    headers = {"host": host, "origin": origin, "authorization": auth}
    headers["sec-websocket-protocol"] = f"envhost.bearer.{protocol}"

    assert _status(GUARDED, f"/t/{path}", **headers) in {401, 403}
    assert _status(OPEN, path, **headers) in {0, 403}


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.7", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_loopback_is_what_only_this_machine_reaches(host: str, expected: bool) -> None:
    """Names other than localhost are not trusted to be."""
    assert is_loopback(host) is expected
