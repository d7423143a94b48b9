"""From a data set's name to its problems: JSON lines and folders, splits, ids, what is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from envhost.errors import ConfigError
from envhost.judge import scan
from envhost.judge.loading import Request, load_problems, prepare
from envhost.judge.problems import Columns, Problem
from envhost.judge.problems import Test as Case

Write = Callable[..., str]
TESTS = {"inputs": ["1\n", "2\n"], "outputs": ["1\n", "4\n"]}


def row(text: str, **more: Any) -> dict[str, Any]:
    """Return a row with two tests."""
    return {"problem": text, "tests": json.dumps(TESTS)} | more


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes rows as a JSON-lines file and returns its path."""

    def to_file(*rows: Mapping[str, Any]) -> str:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return str(path)

    return to_file


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep what passes find out of the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "envhost" / "scans"


def texts(problems: list[Problem] | Any) -> list[str]:
    """Return the texts of problems."""
    return [problem.text for problem in problems]


def test_a_prompt_is_that_of_its_problem(write: Write) -> None:
    """Reading a row without its tests gives the same id and text as reading it whole."""
    loaded = load_problems(write(*(row(f"text {n} ü") for n in range(40)), row("x", problem_id=7)))
    for split in ("train", "test"):
        whole = [(each.problem_id, each.text) for each in loaded.rows(split)]
        assert [(each.problem_id, each.text) for each in loaded.prompts(split)] == whole
    assert len(loaded.training) + len(loaded.evaluation) == 41
    assert "7" in {each.problem_id for each in [*loaded.training, *loaded.evaluation]}


def test_sessions_share_a_problem(write: Write) -> None:
    """While somebody holds a problem, the next reader gets the very same."""
    loaded = load_problems(write(row("a"), row("b")), evaluation_fraction=0)
    held = loaded.training[1]
    assert loaded.training[1] is held
    assert held.tests == (Case("1\n", "1\n"), Case("2\n", "4\n"))


def test_columns_of_other_names(write: Write) -> None:
    """`question_key` and `test_key` say where text and tests are."""
    path = write({"question": "why", "cases": TESTS}, {"problem": "not here", "tests": TESTS})
    request = Request(dataset=path, columns=Columns("question", "cases"))
    loaded = load_problems(request, evaluation_fraction=0)
    assert texts(loaded.training) == ["why"]
    assert loaded.prompt("train", 0).text == "why"
    assert "dropped 1 rows: 1 without a problem text" in loaded.report


def test_the_first_rows_alone(write: Write) -> None:
    """`max_rows` counts the rows of the file, usable or not."""
    path = write(row("a"), {"problem": "broken"}, row("c"), row("d"))
    loaded = load_problems(Request(dataset=path, max_rows=3), evaluation_fraction=0)
    assert texts(loaded.training) == ["a", "c"]


def test_a_held_out_text_is_never_trained_on(write: Write) -> None:
    """A row whose text is in the held-out split is dropped from the other, and it is told."""
    path = write(
        row("same  text", split="train"),
        row("other", split="train"),
        row("same text", split="test"),
    )
    loaded = load_problems(path)
    assert texts(loaded.training) == ["other"]
    assert texts(loaded.evaluation) == ["same text"]
    assert "1 whose text is held out too" in loaded.report
    assert loaded.dropped == (("rows.jsonl/0", "whose text is held out too"),)


def test_splits_by_their_names(write: Write) -> None:
    """`split` and `evaluation_split` choose among what the column says; the rest is left out."""
    path = write(*(row(name, split=name) for name in ("train", "valid", "test", "easy")))
    request = Request(dataset=path, split="easy", evaluation_split="valid")
    loaded = load_problems(request)
    assert texts(loaded.training) == ["easy"]
    assert texts(loaded.evaluation) == ["valid"]
    assert "dropped 2 rows: 1 of the split train, 1 of the split test" in loaded.report


def test_a_split_that_is_not_there(write: Write) -> None:
    """A held-out split of no rows is refused, not served empty."""
    request = Request(dataset=write(row("a")), evaluation_split="valid")
    with pytest.raises(ConfigError, match="no rows in a split 'valid'"):
        load_problems(request)


def test_a_revision_of_a_file(write: Write) -> None:
    """Files have no revisions."""
    with pytest.raises(ConfigError, match="a revision is of the hub, and this is a path"):
        load_problems(Request(dataset=write(row("a")), revision="main"))


def make_folder(folder: Path, *, text: str | None = "A problem.\n", **files: str) -> None:
    """Make a folder of a problem; `_10_in` is the content of `10.in`."""
    folder.mkdir(parents=True)
    if text is not None:
        (folder / "problem.md").write_text(text)
    for name, content in files.items():
        (folder / name.strip("_").replace("_", ".")).write_text(content)


def test_folders_of_tests(tmp_path: Path) -> None:
    """A folder for each problem; tests go by number, and a lonely half drops the problem."""
    root = tmp_path / "contest"
    make_folder(
        root / "squares", _10_in="10\n", _10_out="100\n", _9_in="9\n", _9_out="81\n", checker_py="x"
    )
    make_folder(root / "lonely", _1_in="1\n", _1_out="1\n", _2_in="2\n")
    make_folder(root / "untold", text=None, _1_in="1\n", _1_out="1\n")

    loaded = load_problems(str(root), evaluation_fraction=0)

    assert list(loaded.training) == [
        Problem(
            problem_id="squares",
            text="A problem.\n",
            tests=(Case("9\n", "81\n"), Case("10\n", "100\n")),
            checker="x",
        )
    ]
    assert loaded.prompt("train", 0).problem_id == "squares"
    assert {*loaded.dropped} == {
        ("lonely", "with unequal numbers of inputs and outputs"),
        ("untold", "without a problem text"),
    }
    assert texts(load_problems(str(root / "squares"), evaluation_fraction=0).training) == [
        "A problem.\n"
    ]


def test_a_long_pass_is_done_once(
    write: Write, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pass found is kept until the file changes, and a broken copy is no harm."""
    monkeypatch.setattr(scan, "_WORTH_KEEPING_SECONDS", 0.0)
    passes: list[int] = []
    look = scan._scan

    def counted(*arguments: Any) -> scan.Scan:
        passes.append(1)
        return look(*arguments)

    monkeypatch.setattr(scan, "_scan", counted)
    path = write(row("a"), {"problem": "broken"}, row("c"))

    first, second = load_problems(path), load_problems(path)
    assert len(passes) == 1
    assert first.report == second.report
    assert first.dropped == second.dropped
    assert texts(first.training) == texts(second.training)

    write(row("a"), row("c"), row("d"))
    assert "3 training" in load_problems(path, evaluation_fraction=0).report
    for kept in cache.iterdir():
        kept.write_text("{")
    assert "3 training" in load_problems(path, evaluation_fraction=0).report
    assert len(passes) == 3


def test_progress_is_told(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass says how many rows it has looked at, usable or not."""
    monkeypatch.setattr(scan, "_PROGRESS_SECONDS", 0.0)
    told: list[tuple[str, int]] = []
    request = Request(dataset=write(row("a"), {"problem": "broken"}, row("c")))
    prepare(request, lambda *progress: told.append(progress))
    assert told == [("reading", 1), ("reading", 2), ("reading", 3)]


def test_short_passes_are_not_kept(write: Write, cache: Path) -> None:
    """What takes no time leaves nothing behind."""
    load_problems(write(row("a")))
    assert not cache.exists()
