"""What the page shows, that it follows what happens, and that no text becomes anything else."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_env import BAIT
from playwright.sync_api import Page, expect
from rawclient import RawClient
from server_process import ServerProcess

pytestmark = pytest.mark.slow

Start = Callable[..., ServerProcess]
RIGHT = "```python\nprint(int(input()) * 2)\n```"
WRONG = "```python\nprint(2)\n```"


def _judge(client: RawClient, answer: str) -> str:
    client.send({"type": "reset", "data": {"seed": 0}})
    client.receive()
    client.send({"type": "step", "data": {"message": answer}})
    verdict: str = client.receive()["data"]["metadata"]["verdict"]
    return verdict


def _texts(page: Page, selector: str) -> list[str]:
    return page.locator(selector).all_inner_texts()


def test_sessions_come_and_go_by_themselves(judging_server: ServerProcess, watch: Callable) -> None:
    """Nobody reloads the page: a session appears with its problem and is gone when closed."""
    page = watch(judging_server).open()
    expect(page.locator("#no-sessions")).to_be_visible()
    expect(page.locator("#sessions-open")).to_have_text("0 of 4")

    with RawClient(judging_server.port) as client:
        client.send({"type": "reset", "data": {"seed": 0}})
        client.receive()
        row = page.locator("#sessions tr")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("idle")
        expect(row).to_contain_text("doubling.jsonl/0")
        expect(page.locator("#sessions-open")).to_have_text("1 of 4")
        expect(page.locator("#capacity")).to_have_attribute("aria-valuenow", "1")
        expect(page.locator("#capacity")).to_have_attribute("aria-valuemax", "4")

    expect(page.locator("#sessions tr")).to_have_count(0)
    expect(page.locator("#no-sessions")).to_be_visible()
    assert page.title().startswith("0/4 · envhost code:")


def test_verdicts_are_counted_and_failures_listed(
    judging_server: ServerProcess, watch: Callable
) -> None:
    """Two right answers, one wrong one and one without code."""
    page = watch(judging_server).open()
    with RawClient(judging_server.port) as client:
        said = [_judge(client, answer) for answer in (RIGHT, WRONG, RIGHT, "no idea")]
        assert said == ["AC", "WA", "AC", "NC"]
        expect(page.locator("#sessions tr .is-verdict")).to_have_text("NC")

    expect(page.locator("#legend li")).to_have_text(
        ["AC right · 2", "WA wrong answer · 1", "NC no code in it · 1"]
    )
    expect(page.locator("#solved")).to_have_text("50.0 % of 4")
    expect(page.locator("#chart")).to_have_attribute(
        "aria-label", re.compile(r"^The last \d+ minutes: AC 2, WA 1, NC 1$")
    )
    assert page.locator("#chart rect.v-AC").count() >= 1
    rows = [re.split(r"\s*\t\s*", text)[1:] for text in _texts(page, "#failures tr")]
    assert rows == [["NC", "doubling.jsonl/0", "0 of 2"], ["WA", "doubling.jsonl/0", "1 of 2"]]
    expect(page.locator("#slowest tr")).to_have_count(1)
    assert _texts(page, "#slowest tr")[0].split("\t")[:2] == ["doubling.jsonl/0", "3"]
    expect(page.locator("#isolation")).to_contain_text("bwrap")
    expect(page.locator("#no-programs")).to_be_visible()
    expect(page.locator("#page")).not_to_contain_text("print(2)")


def test_steps_without_verdicts_are_shown_too(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """An environment that judges nothing has bars of steps."""
    server = start_server(echo_entrypoint)
    page = watch(server).open()
    with RawClient(server.port) as client:
        client.reset()
        for _ in range(3):
            client.send({"type": "step", "data": {"message": "hi"}})
            client.receive()
        expect(page.locator("#steps")).to_have_text("3")

    expect(page.locator("#timeline-title")).to_have_text("Steps over time")
    assert page.locator("#chart rect.v-steps").count() >= 1
    expect(page.locator("#solved")).to_have_text("–")


def test_conditions_and_warnings_are_told(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """A refused session stands above everything, and in the log's last warnings."""
    server = start_server(echo_entrypoint, "--max-concurrent-envs", "1", "--admission-wait", "0.1")
    page = watch(server).open()
    expect(page.locator("#conditions")).to_be_hidden()
    with RawClient(server.port) as first:
        first.reset()
        with RawClient(server.port) as second:
            assert second.receive()["data"]["code"] == "CAPACITY_REACHED"
        expect(page.locator("#conditions")).to_contain_text("Sessions refused: 1.")
        expect(page.locator("#state")).to_have_text("Full")

    expect(page.locator("#warnings li")).to_have_text(re.compile("session.refused"))
    expect(page.locator("#state")).to_have_text("Live")


def test_a_lost_server_is_told_and_found_again(
    start_server: Start, echo_entrypoint: str, watch: Callable
) -> None:
    """The page stays, says that there is no answer, and goes on when there is one."""
    watched = watch(start_server(echo_entrypoint))
    page = watched.open()
    watched.server.stop()

    expect(page.locator("#state")).to_contain_text("No answer from the server")

    start_server(echo_entrypoint, "--port", str(watched.server.port))
    expect(page.locator("#state")).to_have_text("Live")
    watched.complaints.clear()  # the browser's own lines about the requests that failed


def test_no_text_becomes_part_of_the_page(
    start_server: Start, hostile_entrypoint: str, tmp_path: Path, watch: Callable
) -> None:
    """Whoever wrote it: it stands there as it was written, and nothing of it runs."""
    server = start_server(hostile_entrypoint, "--record", str(tmp_path / "record"))
    page = watch(server, viewport={"width": 390, "height": 844}).open()
    with RawClient(server.port) as client:
        client.send({"type": "reset", "data": {"episode_id": BAIT}})
        client.receive()
        client.send({"type": "step", "data": {"message": BAIT}})
        client.receive()
        expect(page.locator("#failures summary")).to_have_count(1)
        page.locator("#failures summary").click()
        page.locator("#reset-form button").click()
        expect(page.locator("#prompt")).to_be_visible()
        page.locator("#answer").fill(BAIT)
        page.locator("#judge").click()
        expect(page.locator("#result")).to_be_visible()
        expect(page.locator("#sessions tr")).to_have_count(2)

    shown = BAIT.replace("\x00", "")
    places = (
        "#name",
        "#footer",
        "#isolation",
        "#notes",
        "#prompt",
        "#failures pre",
        "#result-facts",
    )
    for place in places:
        text = page.locator(place).first.text_content() or ""
        assert shown[:40] in text, place
    assert page.locator("img, iframe, object, embed, base, main script, #page style").count() == 0
    assert page.evaluate("window.hacked === undefined && window[7] === undefined")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_policy_would_stop_what_got_in(judging_server: ServerProcess, watch: Callable) -> None:
    """A handler, a script, a style, a picture and a request elsewhere, put there by hand."""
    watched = watch(judging_server)
    page = watched.open()
    page.evaluate("""async () => {
        const add = (tag, attributes) => {
            const node = document.createElement(tag);
            for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
            document.body.append(node);
            return node;
        };
        const run = (attempt) => { try { attempt(); } catch { /* Trusted Types throw */ } };
        run(() => add("img", {src: "http://127.0.0.1:9/x.png"}));
        run(() => add("img", {src: "data:,", onerror: "window.hacked = 1"}));
        run(() => { document.body.insertAdjacentHTML("beforeend", "<b onclick='1'>x</b>"); });
        run(() => { add("script", {}).text = "window.hacked = 1"; });
        run(() => { add("style", {}).textContent = "body { display: none }"; });
        run(() => { add("iframe", {src: "https://evil.example/"}); });
        await fetch("http://127.0.0.1:9/").catch(() => {});
        await new Promise((resolve) => setTimeout(resolve, 100));
    }""")

    stopped = {violation.split()[0] for violation in watched.violations()}
    wanted = {"img-src", "style-src-elem", "frame-src", "connect-src"}
    assert stopped >= {*wanted, "require-trusted-types-for"}
    assert page.evaluate("window.hacked === undefined")
    assert page.locator("main").is_visible()
    page.evaluate("window.violations.length = 0")
    watched.complaints.clear()
    watched.requests.clear()


def test_nobody_may_frame_the_page(judging_server: ServerProcess, watch: Callable) -> None:
    """A click on the panel is always meant."""
    watched = watch(judging_server)
    watched.page.set_content(f'<iframe src="{judging_server.url}/"></iframe>')

    assert watched.page.frames[-1].locator("#main").count() == 0
    assert any("frame-ancestors" in complaint for complaint in watched.complaints)
    watched.complaints.clear()
