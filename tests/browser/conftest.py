"""The distribution's Chromium, headless, driven from the test's own thread."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright
from server_process import ServerProcess

PATIENCE_MS = 30_000  # generous: a full machine must not fail a test of something else
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
RECORD_VIOLATIONS = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
        window.violations.push(event.effectiveDirective + " " + event.blockedURI));
"""
TOKEN = "the-page's/token+with=signs"

expect.set_options(timeout=PATIENCE_MS)


class Watched:
    """A page, and all that it asked for and complained about."""

    def __init__(self, page: Page, server: ServerProcess) -> None:
        self.page = page
        self.server = server
        self.requests: list[Request] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.requests.append(request))  # noqa: PLW0108 - it marks its handler
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text))

    def open(self, path: str = "/") -> Page:
        """Go to the server and wait until the page shows facts or asks for the token."""
        self.page.goto(self.server.url + path)
        self.page.wait_for_selector("#page:not([hidden]), #sign-in:not([hidden])")
        return self.page

    def polls(self) -> int:
        """Return how often the facts were asked for."""
        return sum(request.url.endswith("/status.json") for request in self.requests)

    def violations(self) -> list[str]:
        """Return what the policy stopped."""
        found: list[str] = self.page.evaluate("window.violations")
        return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return a browser that a module's tests share; pages share nothing.

    No longer than a module, since Playwright holds this thread's asyncio loop until it ends.
    """
    path = shutil.which("chromium")
    assert path, "no chromium: scripts/test.sh installs it (apt-get install chromium)"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture
def watch(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Return a function that gives a fresh page for a server; its options are the context's.

    Afterwards every page must have asked nobody but its server, and broken no policy, unless the
    test says what it expects by emptying the lists.
    """
    pages: list[Watched] = []

    def make(server: ServerProcess, **options: Any) -> Watched:
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(RECORD_VIOLATIONS)
        pages.append(Watched(context.new_page(), server))
        return pages[-1]

    yield make
    for watched in pages:
        if not watched.page.is_closed() and watched.page.url != "about:blank":
            assert watched.violations() == []
        watched.page.context.close()
        foreign = [
            request.url
            for request in watched.requests
            if not request.url.startswith((watched.server.url, "data:"))
        ]
        assert foreign == []
        assert watched.complaints == []


@pytest.fixture(scope="module")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a data set's path: double a number, one problem to train on and one held out."""
    path = tmp_path_factory.mktemp("data") / "doubling.jsonl"
    tests = {"inputs": ["1\n", "20\n"], "outputs": ["2\n", "40\n"]}
    rows = [
        {
            "problem": f"Read a number and print its double ({split}).",
            "tests": tests,
            "split": split,
        }
        for split in ("train", "test")
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def judging_server(
    start_shared_server: Callable[..., ServerProcess], doubling: str
) -> ServerProcess:
    """Return a server that judges programs."""
    config = json.dumps({"dataset": doubling, "cpu_limit_seconds": 2})
    return start_shared_server("--env-config", config, "--max-concurrent-envs", "4")


@pytest.fixture(scope="module")
def guarded_server(
    start_shared_server: Callable[..., ServerProcess],
    echo_entrypoint: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> ServerProcess:
    """Return a server that asks for a token."""
    path = tmp_path_factory.mktemp("token") / "token"
    path.write_text(TOKEN)
    path.chmod(0o600)
    return start_shared_server(echo_entrypoint, "--token-file", str(path))


@pytest.fixture(scope="session")
def hostile_entrypoint() -> str:
    """Return the entrypoint of an environment whose every word is an injection."""
    return f"{Path(__file__).parent / 'hostile_env.py'}:make"
