"""README and docs tell the truth: commands run, links lead somewhere, tables match the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from attrs import fields
from docs_pages import OWN_TESTS, ROOT, Block, blocks, pages, script
from ports import free_port

from envhost.config import Limits
from envhost.telemetry import Telemetry

# Why a block may be left out: a person has to have this.
NEEDS = {
    "a GPU",
    "another machine",
    "Docker",
    "Kubernetes",
    "root",
    "systemd",
    "a fresh install",
    "data from a hub",
}
LOOKS_LIKE_A_COMMAND = re.compile(r"^(\$ )?(python3?|pip|sudo|scripts/|curl|docker|kubectl|ssh) ")
LANGUAGES = {"", "sh", "python", "text", "yaml", "json", "ini", "html"}


def all_blocks() -> list[Block]:
    """Return the blocks of every page."""
    return [block for page in pages() if page not in OWN_TESTS for block in blocks(page)]


def test_every_block_is_run_or_says_why_not() -> None:
    """A command without a language would be neither; a reason is one of a short list."""
    for block in all_blocks():
        assert block.language in LANGUAGES, block
        kind, argument = block.marker or ("", "")
        if kind == "needs":
            assert argument in NEEDS, block
        elif not kind and not block.commands and block.language not in {"python", "text"}:
            found = [line for line in block.text.splitlines() if LOOKS_LIKE_A_COMMAND.match(line)]
            assert not found, f"{block}: mark it as sh, or as text if it is no command: {found}"


def test_what_another_test_runs_is_run_there() -> None:
    """The file that a block names has the program of each of its commands."""
    for block in all_blocks():
        if block.marker is None or block.marker[0] != "run by":
            continue
        runner = (ROOT / block.marker[1]).read_text()
        for command in block.commands.splitlines():
            # The words that name a program of ours: -m MODULE, or a script.
            words = re.findall(r"scripts/\S+|rltrain|envhost|pip|pytest", command)
            assert not words or any(Path(word).name in runner for word in words), (block, command)


def test_a_page_with_a_test_of_its_own_is_read_there() -> None:
    """The test that stands for it names its file."""
    for page in OWN_TESTS.keys() & set(pages()):
        assert Path(page).name in (ROOT / OWN_TESTS[page]).read_text()


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in pages() if script(page, 0)])
def test_a_page_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    """Each command ends with status 0, in a copy of the repository and a home of its own."""
    copy = tmp_path / "repository"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    for name in names.splitlines():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    commands = tmp_path / "commands.sh"
    commands.write_text(script(page, free_port()))
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(copy),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }

    ended = subprocess.run(
        ["bash", commands],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout


def test_links_lead_somewhere() -> None:
    """Each relative link of a page names a file, and each `#part` a heading of it."""
    for page in pages():
        text = (ROOT / page).read_text()
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"https?:", target):
                continue
            name, _, part = target.partition("#")
            path = (ROOT / page).parent / name if name else ROOT / page
            assert path.exists(), f"{page}: {target}"
            if part:
                headings = re.findall(r"(?m)^#+ (.+)$", path.read_text())
                slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
                assert part in slugs, f"{page}: {target}"


def test_every_page_can_be_found() -> None:
    """README or another page links to it."""
    linked = {
        os.path.normpath((Path(page).parent / target).as_posix())
        for page in pages()
        for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text())
    }
    assert set(pages()) - {"README.md"} <= linked


def test_every_limit_is_told_of() -> None:
    """Each option that bounds something stands in the page of limits, and its key in the class."""
    text = (ROOT / "docs" / "limits.md").read_text()
    for attribute in fields(Limits):
        option = attribute.metadata["option"]
        assert f"`{option}`" in text, option
    for key in re.findall(r"\(`(\w+_(?:seconds|bytes))`\)", text):
        assert key in {attribute.name for attribute in fields(Limits)}, key


# -- operations ------------------------------------------------------------------------------------


def metric_names() -> set[str]:
    """Return the names of the metrics that a server has, as a query gives them."""
    names = set()
    for metric in Telemetry().registry.collect():
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        names |= {metric.name + suffix for suffix in suffixes.get(metric.type, [""])}
    return names


def test_the_page_of_operations_names_every_metric() -> None:
    """The table has those that there are, and no other."""
    rows = re.findall(r"(?m)^\| `(envhost_\w+)`", (ROOT / "docs" / "operations.md").read_text())
    kinds = re.compile(r"_(bucket|sum|count)$")
    assert set(rows) == {kinds.sub("", name) for name in metric_names()}


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    """Every name in an expression; and each alert says what to do."""
    groups = yaml.safe_load((ROOT / "docs" / "deploy" / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert rules
    for rule in rules:
        asked = set(re.findall(r"envhost_\w+", rule["expr"]))
        assert asked <= metric_names(), rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]
