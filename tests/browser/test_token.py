"""How a browser presents the token: kept in its tab, sent in headers, written nowhere."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from rawclient import wait_for_log
from server_process import ServerProcess

pytestmark = pytest.mark.slow

TOKEN = "the-page's/token+with=signs"


def _sign_in(page: Page, token: str) -> None:
    page.get_by_label("Token", exact=True).fill(token)
    page.keyboard.press("Enter")


def test_the_token_opens_the_page_and_shows_nowhere(
    guarded_server: ServerProcess, watch: Callable
) -> None:
    """A wrong one is told; the right one opens; no address, cookie, page text or log has it."""
    watched = watch(guarded_server)
    page = watched.open()
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    expect(page.locator("#page")).to_be_hidden()
    assert watched.polls() == 0  # the page knew from its own status that it lacks the token
    _sign_in(page, "wrong")
    expect(page.locator("#token-error")).to_have_text("The server does not take this token.")
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    _sign_in(page, TOKEN)

    expect(page.locator("#sessions-open")).to_have_text("0 of 16")
    expect(page.locator("#main")).to_be_focused()
    assert watched.complaints  # the browser's own lines about 401
    assert all("401" in line for line in watched.complaints)
    watched.complaints.clear()
    written = TOKEN, base64.urlsafe_b64encode(TOKEN.encode()).decode().rstrip("=")
    for text in (
        page.content(),
        page.url,
        guarded_server.log(),
        *(r.url for r in watched.requests),
    ):
        assert not any(one in text for one in written)
    assert page.context.cookies() == []
    assert page.locator("#token").input_value() == ""


def test_the_tab_keeps_the_token_until_it_signs_out(
    guarded_server: ServerProcess, watch: Callable
) -> None:
    """A reload stays signed in, another tab is not, and signing out forgets."""
    watched = watch(guarded_server)
    page = watched.open()
    _sign_in(page, TOKEN)
    expect(page.locator("#page")).to_be_visible()
    page.reload()
    expect(page.locator("#page")).to_be_visible()
    other = page.context.new_page()
    other.goto(guarded_server.url)
    expect(other.locator("#sign-in")).to_be_visible()
    other.close()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token", exact=True)).to_be_focused()
    page.reload()

    expect(page.locator("#sign-in")).to_be_visible()
    assert page.evaluate("sessionStorage.length + localStorage.length") == 0
    watched.complaints.clear()


def test_the_panel_uses_the_token_too(guarded_server: ServerProcess, watch: Callable) -> None:
    """Its WebSocket is opened with the token as a subprotocol, and its address has none."""
    watched = watch(guarded_server)
    page = watched.open()
    _sign_in(page, TOKEN)
    with page.expect_websocket() as opened:
        page.get_by_role("button", name="Get a problem").click()

    expect(page.locator("#prompt")).to_have_text("hello 0")
    assert opened.value.url == guarded_server.url.replace("http", "ws") + "/ws"
    page.get_by_role("button", name="Sign out").click()
    expect(page.locator("#sign-in")).to_be_visible()
    wait_for_log(guarded_server, r"session\.closed .*client closed")
    watched.complaints.clear()


def test_a_prefix_in_the_address_works_as_for_any_client(
    guarded_server: ServerProcess, watch: Callable
) -> None:
    """`/t/TOKEN`, with and without the last slash; the panel goes the same way."""
    for end in ("/", ""):
        watched = watch(guarded_server)
        page = watched.open("/t/the-page's%2Ftoken+with=signs" + end)
        expect(page.locator("#page")).to_be_visible()
        page.get_by_role("button", name="Get a problem").click()
        expect(page.locator("#prompt")).to_have_text("hello 0")
        expect(page.get_by_role("button", name="Sign out")).to_be_hidden()


def test_a_wrong_prefix_can_be_mended_by_signing_in(
    guarded_server: ServerProcess, watch: Callable
) -> None:
    """The server would take the prefix before the header; the page leaves it out."""
    watched = watch(guarded_server)
    page = watched.open("/t/wrong/")
    _sign_in(page, TOKEN)

    expect(page.locator("#page")).to_be_visible()
    page.get_by_role("button", name="Get a problem").click()
    expect(page.locator("#prompt")).to_have_text("hello 0")
    watched.complaints.clear()


def test_all_of_it_works_over_tls(
    start_server: Callable[..., ServerProcess],
    echo_entrypoint: str,
    certificate: tuple[Path, Path],
    tmp_path: Path,
    watch: Callable,
) -> None:
    """Page, facts and the panel's WebSocket, which is then a secure one."""
    cert, key = map(str, certificate)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    server = start_server(
        echo_entrypoint, "--tls-cert", cert, "--tls-key", key,
        "--token-file", str(tmp_path / "token"),
    )  # fmt: skip
    watched = watch(server, ignore_https_errors=True)
    page = watched.open()
    _sign_in(page, TOKEN)
    with page.expect_websocket() as opened:
        page.get_by_role("button", name="Get a problem").click()

    expect(page.locator("#prompt")).to_have_text("hello 0")
    assert opened.value.url.startswith("wss://")
    watched.complaints.clear()


def test_a_token_that_ends_asks_again(guarded_server: ServerProcess, watch: Callable) -> None:
    """A server that came back with another token: the form is there, and nothing is polled on."""
    watched = watch(guarded_server)
    page = watched.open()
    _sign_in(page, TOKEN)
    expect(page.locator("#page")).to_be_visible()
    page.route("**/status.json", lambda route: route.fulfill(status=401, body="no"))

    expect(page.locator("#sign-in")).to_be_visible()
    expect(page.locator("#page")).to_be_hidden()
    assert page.evaluate("sessionStorage.length") == 0
    watched.complaints.clear()
