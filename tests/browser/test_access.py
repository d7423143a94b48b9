"""Everybody can use the page: by keyboard, by screen reader, on a phone, in the dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Page, expect
from rawclient import RawClient
from server_process import ServerProcess

pytestmark = pytest.mark.slow

SCHEMES = ("light", "dark")
WALK = [
    "Skip to the content", "pause", "sessions-table", "failures-table", "slowest-table",
    "seed", "evaluation", "Get a problem", "answer", "judge", "close-session",
]  # fmt: skip

# The contrast of every visible text with what lies under it, by WCAG 2's formula.
CONTRASTS = """() => {
    const parse = (color) => {
        const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
        return [r, g, b, a];
    };
    const over = ([r, g, b, a], [x, y, z]) =>
        [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
    const ground = (node) => {
        if (!node) return [255, 255, 255, 1];
        const color = parse(getComputedStyle(node).backgroundColor);
        return color[3] === 1 ? color : over(color, ground(node.parentElement));
    };
    const light = ([r, g, b]) => [r, g, b].map((value) => value / 255)
        .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const found = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
        if (node.closest("[aria-disabled=true], .away, .skip, script, style, noscript")) continue;
        const under = ground(node), ink = over(parse(getComputedStyle(node).color), under);
        const [a, b] = [light(ink), light(under)];
        found.push([walker.currentNode.data.trim().slice(0, 40),
            (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
    }
    return found;
}"""

# The same for what is no text: a variable's colour on a card.
COLOURS = """(names) => names.map((name) => {
    const light = (variable) => {
        const probe = document.createElement("p");
        document.body.append(probe);
        probe.style.color = "var(--" + variable + ")";
        const rgb = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
        probe.remove();
        return rgb.map((value) => value / 255)
            .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    };
    const [a, b] = [light(name), light("card")];
    return [name, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
})"""

# What axe-core calls label, button-name, duplicate-id, aria-valid-attr-value, scope, image-alt.
FAULTS = """() => {
    const faults = [], seen = new Set();
    const say = (what, node) => faults.push(what + ": " + node.outerHTML.slice(0, 80));
    for (const node of document.querySelectorAll("[id]")) {
        if (seen.has(node.id)) say("id twice", node);
        seen.add(node.id);
    }
    for (const name of ["aria-labelledby", "aria-describedby", "for"])
        for (const node of document.querySelectorAll("[" + name + "]"))
            for (const id of node.getAttribute(name).split(/\\s+/))
                if (!document.getElementById(id)) say(name + " leads nowhere", node);
    for (const node of document.querySelectorAll("input, textarea, select"))
        if (!node.labels.length) say("no label", node);
    for (const node of document.querySelectorAll("button"))
        if (!node.textContent.trim()) say("no name", node);
    const named = "[role=img], [role=region], [role=group], [role=meter], [role=list], section";
    for (const node of document.querySelectorAll(named))
        if (!node.hasAttribute("aria-label") && !node.hasAttribute("aria-labelledby"))
            say("no name", node);
    for (const node of document.querySelectorAll("th")) if (!node.scope) say("no scope", node);
    for (const node of document.querySelectorAll("[tabindex]"))
        if (node.tabIndex > 0) say("own tab order", node);
    for (const node of document.querySelectorAll(".scroll, pre"))
        if (node.checkVisibility() && !node.closest("details") && node.tabIndex !== 0)
            say("scrolls for the mouse only", node);
    const levels = [...document.querySelectorAll("h1, h2, h3")].map((node) => +node.tagName[1]);
    levels.forEach((level, i) => { if (level > (levels[i - 1] || 0) + 1) faults.push("level"); });
    if (levels.filter((level) => level === 1).length !== 1) faults.push("one h1 is wanted");
    return faults;
}"""


@pytest.fixture(scope="module")
def busy_server(judging_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server with open sessions, verdicts and failures to show."""
    with ExitStack() as stack:
        for answer in ("```\nprint(int(input()) * 2)\n```", "```\nprint(1)\n```", "none"):
            client = stack.enter_context(RawClient(judging_server.port))
            client.reset()
            client.send({"type": "step", "data": {"message": answer}})
            client.receive()
        yield judging_server


def _focused(page: Page) -> str:
    name: str = page.evaluate(
        "(node => node.id || node.textContent.trim())(document.activeElement)"
    )
    return name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_text_stands_out(busy_server: ServerProcess, watch: Callable, scheme: str) -> None:
    """At least 4.5 to 1, in both colour schemes, with every part of the page filled."""
    page = watch(busy_server, color_scheme=scheme).open()
    page.get_by_role("button", name="Get a problem").click()
    expect(page.locator("#prompt")).to_be_visible()
    page.get_by_label("Answer", exact=True).fill("none")
    page.get_by_role("button", name="Send the answer").click()
    expect(page.locator("#result")).to_be_visible()
    contrasts = page.evaluate(CONTRASTS)

    assert len(contrasts) > 60
    assert [pair for pair in contrasts if pair[1] < 4.5] == []


@pytest.mark.parametrize("scheme", SCHEMES)
def test_bars_and_borders_stand_out(
    busy_server: ServerProcess, watch: Callable, scheme: str
) -> None:
    """At least 3 to 1 on a card: each verdict's colour, and the border of what can be used."""
    page = watch(busy_server, color_scheme=scheme).open()
    names = ["right", "wrong", "slow", "idle", "big", "loud", "raised", "broken", "none", "ours"]
    contrasts = page.evaluate(COLOURS, [*names, "control", "accent"])

    assert [pair for pair in contrasts if pair[1] < 3] == []


def test_the_scheme_follows_the_reader(busy_server: ServerProcess, watch: Callable) -> None:
    """Dark where the reader wants dark, also when that changes."""
    page = watch(busy_server, color_scheme="light").open()
    ground = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    assert min(page.evaluate(ground)) > 200
    page.emulate_media(color_scheme="dark")

    assert max(page.evaluate(ground)) < 60


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_width_scrolls_sideways(busy_server: ServerProcess, watch: Callable, width: int) -> None:
    """From the narrowest phone on; nothing that can be tapped is smaller than a finger."""
    page = watch(busy_server, viewport={"width": width, "height": 800}).open()
    expect(page.locator("#sessions tr")).to_have_count(3)

    assert page.evaluate("document.documentElement.scrollWidth") == width
    for button in page.locator("button:visible, input[type=number]").all():
        box = button.bounding_box()
        assert box is not None
        assert min(box["height"], box["width"]) >= 24


def test_the_page_is_free_of_usual_faults(busy_server: ServerProcess, watch: Callable) -> None:
    """Labels, names, references, heading levels, table headers, places that scroll."""
    page = watch(busy_server).open()
    page.get_by_role("button", name="Get a problem").click()
    expect(page.locator("#prompt")).to_be_visible()

    assert page.evaluate(FAULTS) == []
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_screen_reader_finds_its_way(busy_server: ServerProcess, watch: Callable) -> None:
    """Landmarks, names and values as the accessibility tree has them."""
    page = watch(busy_server).open()
    expect(page.locator("#sessions tr")).to_have_count(3)
    tree = page.locator("body").aria_snapshot()

    for line in (
        r"- banner:", r"- main:", r"- contentinfo:", r'heading "envhost code:.*" \[level=1\]',
        r"- status: Live", r'meter "Sessions open"', r'img "The last \d+ minutes: .*AC 1, WA 1.*"',
        r'region "Live sessions"', r'group "Live sessions"', r'columnheader "Doing"',
        r'row ".* idle .* NC .*"',
        r'list "All verdicts since the start"', r'textbox "Answer"', r'spinbutton "Seed"',
        r'checkbox "held-out problem"', r'button "Send the answer" \[disabled\]',
    ):  # fmt: skip
        assert re.search(line, tree), f"{line}\n{tree}"


def test_what_changes_is_announced_politely(busy_server: ServerProcess, watch: Callable) -> None:
    """Three places speak: the state, the panel's state and its result; figures stay silent."""
    page = watch(busy_server).open()
    loud = page.locator("[aria-live], [role=status], [role=alert]")
    ids = loud.evaluate_all("nodes => nodes.map(node => node.id)")

    assert ids == ["state", "token-error", "try-state", "result"]
    assert page.locator("#result").get_attribute("aria-live") == "polite"
    page.evaluate("""() => {
        window.changes = 0;
        const what = {childList: true, characterData: true, subtree: true};
        const observer = new MutationObserver(() => { window.changes += 1; });
        observer.observe(document.getElementById("state"), what);
    }""")
    with page.expect_response("**/status.json"):
        pass
    expect(page.locator("#state")).to_have_text("Live")
    assert page.evaluate("window.changes") == 0  # what stays the same is not said again


def test_the_keyboard_reaches_everything_in_order(
    busy_server: ServerProcess, watch: Callable
) -> None:
    """In the order of the page, each with an outline that can be seen; the skip link works."""
    page = watch(busy_server).open()
    expect(page.locator("#sessions tr")).to_have_count(3)
    walked = []
    for _ in WALK:
        page.keyboard.press("Tab")
        walked.append(_focused(page))
        outline = page.evaluate(
            "(style => [style.outlineStyle, parseFloat(style.outlineWidth)])"
            "(getComputedStyle(document.activeElement))"
        )
        assert outline[0] != "none"
        assert outline[1] >= 2
    assert walked == WALK

    page.locator(".skip").focus()
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_the_panel_works_by_keyboard_alone(busy_server: ServerProcess, watch: Callable) -> None:
    """A seed, a problem, an answer, its verdict: no mouse, and the focus is never lost."""
    page = watch(busy_server).open()
    page.locator("#seed").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("5")
    page.keyboard.press("Enter")
    expect(page.locator("#prompt")).to_be_visible()
    assert page.evaluate("document.activeElement.id") == "seed"
    for _ in range(4):  # the box, the button, the problem's text, the answer
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "answer"
    page.keyboard.type("```\nprint(int(input()) * 2)\n```")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page.locator("#result-verdict")).to_contain_text("AC")
    assert page.evaluate("document.activeElement.id") == "judge"


def test_paused_and_hidden_pages_ask_for_nothing(
    busy_server: ServerProcess, watch: Callable
) -> None:
    """On the page's own clock: a minute of each, and every two seconds otherwise."""
    watched = watch(busy_server)
    watched.page.clock.install()
    page = watched.open()

    def polls_in(milliseconds: int) -> int:
        before = watched.polls()
        for _ in range(milliseconds // 1000):
            page.clock.run_for(1000)
        return watched.polls() - before

    pause = page.get_by_role("button", name="Pause updates")
    pause.click()
    expect(page.locator("#state")).to_have_text("Paused")
    assert pause.get_attribute("aria-pressed") == "true"
    assert polls_in(60_000) == 0
    pause.click()
    expect(page.locator("#state")).to_have_text("Live")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    event = "document.dispatchEvent(new Event('visibilitychange'));"
    page.evaluate(hide % "true" + event)
    assert polls_in(60_000) == 0
    with page.expect_response("**/status.json"):
        page.evaluate(hide % "false" + event)
    with page.expect_response("**/status.json"):
        page.clock.run_for(2000)
