"""The try-it panel: a session of its own, there when asked for and gone with the page."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from rawclient import RawClient, wait_for_log, wait_until
from server_process import ServerProcess

pytestmark = pytest.mark.slow

Start = Callable[..., ServerProcess]


def _rows(server: ServerProcess) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.url}/sessions", timeout=30) as reply:
        rows: list[dict[str, Any]] = json.load(reply)
        return rows


def _get_problem(page: Page, seed: int = 0) -> None:
    page.get_by_label("Seed").fill(str(seed))
    page.get_by_role("button", name="Get a problem").click()
    expect(page.locator("#try-state")).to_contain_text("A problem is here")


def _send(page: Page, program: str) -> None:
    page.get_by_label("Answer", exact=True).fill(f"My program:\n```python\n{program}\n```")
    page.get_by_role("button", name="Send the answer").click()
    expect(page.locator("#try-state")).to_contain_text("The episode is over")


def _facts(page: Page) -> dict[str, str]:
    names = page.locator("#result-facts dt").all_inner_texts()
    return dict(zip(names, page.locator("#result-facts dd").all_inner_texts(), strict=True))


def test_right_and_wrong_answers_get_their_verdicts(
    judging_server: ServerProcess, watch: Callable
) -> None:
    """Each with its reward and metadata, over one session that the page itself counts."""
    page = watch(judging_server).open()
    assert _rows(judging_server) == []
    _get_problem(page)
    expect(page.locator("#prompt")).to_contain_text("Read a number and print its double (train).")
    expect(page.locator("#sessions tr")).to_have_count(1)
    _send(page, "print(int(input()) * 2)")
    expect(page.locator("#result-verdict")).to_have_text("AC, right, reward 1")
    facts = _facts(page)
    assert (facts["tests passed"], facts["tests total"]) == ("2", "2")
    assert facts["isolation"].startswith("bwrap")

    _get_problem(page, 1)
    expect(page.locator("#result")).to_be_hidden()
    _send(page, "print(2)")
    expect(page.locator("#result-verdict")).to_have_text("WA, wrong answer, reward 0")
    facts = _facts(page)
    assert (facts["tests passed"], facts["first failed"]) == ("1", "1")
    (row,) = _rows(judging_server)
    assert (row["steps"], row["last_verdict"]) == (2, "WA")


def test_a_held_out_problem_can_be_asked_for(
    judging_server: ServerProcess, watch: Callable
) -> None:
    """The box chooses the other split."""
    page = watch(judging_server).open()
    page.get_by_label("held-out problem").check()
    _get_problem(page)

    expect(page.locator("#prompt")).to_contain_text("(test)")
    expect(page.locator("#try-state")).to_contain_text("split test")


def test_the_session_ends_with_the_page(judging_server: ServerProcess, watch: Callable) -> None:
    """Closing the tab and going elsewhere each free the slot; so does the button."""
    for leave in ("close", "go", "button"):
        watched = watch(judging_server)
        page = watched.open()
        _get_problem(page)
        wait_until(lambda: len(_rows(judging_server)) == 1)
        if leave == "close":
            page.close()
        elif leave == "go":
            page.goto("about:blank")
        else:
            page.get_by_role("button", name="Close the session").click()
            expect(page.locator("#try-state")).to_have_text("The session is closed.")
        wait_until(lambda: _rows(judging_server) == [])


def test_leaving_in_the_middle_of_a_step_ends_its_program(
    judging_server: ServerProcess, watch: Callable
) -> None:
    """The program sleeps, the tab is closed, and the session is gone long before it would end."""
    watched = watch(judging_server)
    page = watched.open()
    _get_problem(page)
    page.get_by_label("Answer", exact=True).fill("```python\nimport time; time.sleep(1000)\n```")
    page.get_by_role("button", name="Send the answer").click()
    wait_until(lambda: [row["activity"] for row in _rows(judging_server)] == ["step"])
    page.close()

    wait_until(lambda: _rows(judging_server) == [])


def test_a_session_at_rest_is_closed_after_five_minutes(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """A forgotten tab takes no slot; a request begins the time anew."""
    server = start_server(echo_entrypoint)
    watched = watch(server)
    watched.page.clock.install()
    page = watched.open()
    _get_problem(page)
    page.clock.run_for(270_000)
    _get_problem(page)
    page.clock.run_for(270_000)
    assert len(_rows(server)) == 1
    page.clock.run_for(31_000)

    expect(page.locator("#try-state")).to_contain_text("closed after five minutes")
    wait_for_log(server, r"session\.closed .*client closed")


def test_a_full_server_refuses_the_panel_in_words(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """It counts against the capacity like everybody else, and works again when there is room."""
    server = start_server(
        echo_entrypoint, "--max-concurrent-envs", "1", "--admission-wait", "0.1",
        "--refusal-hold", "0.1",
    )  # fmt: skip
    page = watch(server).open()
    with RawClient(server.port) as client:
        client.reset()
        page.get_by_role("button", name="Get a problem").click()
        expect(page.locator("#try-state")).to_contain_text("CAPACITY_REACHED")
        expect(page.locator("#try-state")).to_contain_text("--max-concurrent-envs")
    wait_until(lambda: _rows(server) == [])

    expect(page.locator("#close-session")).to_have_attribute("aria-disabled", "true")
    _get_problem(page)


def test_impatient_clicks_ask_once(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """One session, one reset, however often the button is pressed before the answer comes."""
    server = start_server(echo_entrypoint)
    page = watch(server).open()
    page.evaluate("""() => {
        for (let n = 0; n < 5; n++) document.querySelector("#reset-form button").click();
    }""")
    expect(page.locator("#try-state")).to_contain_text("A problem is here")

    assert len(_rows(server)) == 1
    assert len(wait_for_log(server, r" reset session=")) == 1


def test_a_closed_session_does_not_disturb_the_next(
    judging_server: ServerProcess, watch: Callable
) -> None:
    """Closed in the middle of a step, and another asked for at once."""
    page = watch(judging_server).open()
    _get_problem(page)
    page.get_by_label("Answer", exact=True).fill("```python\nwhile True: pass\n```")
    page.get_by_role("button", name="Send the answer").click()
    wait_until(lambda: [row["activity"] for row in _rows(judging_server)] == ["step"])
    page.get_by_role("button", name="Close the session").click()
    expect(page.locator("#try-state")).to_have_text("The session is closed.")
    _get_problem(page)
    _send(page, "print(int(input()) * 2)")

    expect(page.locator("#result-verdict")).to_contain_text("AC")


def test_an_episode_of_many_turns_goes_on(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """Each answer gets the next observation, until the environment says that it is over."""
    page = watch(start_server(echo_entrypoint)).open()
    _get_problem(page, 7)
    expect(page.locator("#prompt")).to_have_text("hello 7")
    for text in ("one", "three"):
        page.get_by_label("Answer", exact=True).fill(text)
        page.get_by_role("button", name="Send the answer").click()
        expect(page.locator("#prompt")).to_have_text(text)
        expect(page.locator("#result-verdict")).to_have_text(f"reward {len(text)}")
    page.get_by_label("Answer", exact=True).fill("end")
    page.get_by_role("button", name="Send the answer").click()

    expect(page.locator("#try-state")).to_contain_text("The episode is over")
    expect(page.locator("#judge")).to_have_attribute("aria-disabled", "true")


def test_an_error_of_the_environment_is_told(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """The reset fails, the words stand there, and the next reset works."""
    page = watch(start_server(echo_entrypoint)).open()
    page.get_by_label("Seed").fill("-1")
    page.get_by_role("button", name="Get a problem").click()
    expect(page.locator("#try-state")).to_contain_text("EXECUTION_ERROR: reset failed")
    expect(page.locator("#judge")).to_have_attribute("aria-disabled", "true")

    _get_problem(page, 3)


def test_a_server_that_ends_is_told(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """The session closes under the panel."""
    watched = watch(start_server(echo_entrypoint))
    page = watched.open()
    _get_problem(page)
    watched.server.stop()

    expect(page.locator("#try-state")).to_have_text("The server closed the session.")
    page.get_by_role("button", name="Get a problem").click()
    expect(page.locator("#try-state")).to_have_text("There is no connection to the server.")
    watched.complaints.clear()
