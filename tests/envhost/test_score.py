"""`python -m envhost score`: verdicts by hand, as the server would give them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Run = Callable[..., CompletedProcess[str]]

SUM = "print(sum(map(int, input().split())))\n"


@pytest.fixture
def problems(tmp_path: Path) -> str:
    """Two problems, each in a split of its own."""
    tests = {"inputs": ["1 2\n", "10 20 30\n"], "outputs": ["3\n", "60\n"]}
    rows = [
        {"problem_id": "sum", "split": "train", "problem": "add", "tests": tests},
        {"problem_id": "zero", "split": "test", "problem": "0", "tests": tests},
    ]
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def write(directory: Path, **programs: str) -> list[str]:
    paths = []
    for name, program in programs.items():
        path = directory / f"{name}.py"
        path.write_text(program)
        paths.append(str(path))
    return paths


def test_right_programs_end_with_0(tmp_path: Path, problems: str, run_envhost: Run) -> None:
    """One row a program, and status 0 where all of them are right."""
    (path,) = write(tmp_path, right=SUM)

    done = run_envhost("score", problems, path, "--row", "0")

    title, header, row = done.stdout.splitlines()
    assert title == "problem sum, 2 tests"
    assert header.split()[:3] == ["program", "verdict", "passed"]
    assert row.split()[1:5] == ["AC", "2", "of", "2"]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_wrong_program_ends_with_1(tmp_path: Path, problems: str, run_envhost: Run) -> None:
    """Verdicts stand in the order of the programs, with the first failed test and the error."""
    paths = write(tmp_path, right=SUM, wrong="print(3)", raises="raise ValueError('a\\x1b[2Jb')")

    done = run_envhost("score", problems, *paths, "--problem", "sum")

    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines[2:5]] == ["AC", "WA", "RE"]
    assert lines[3].split()[2:6] == ["1", "of", "2", "1"]
    assert lines[5].endswith(r"raises.py: ValueError: a\x1b[2Jb")
    assert "\x1b" not in done.stdout
    assert done.returncode == 1


def test_verbose_shows_every_test(tmp_path: Path, problems: str, run_envhost: Run) -> None:
    """With --verbose the tests after the first failed one are shown too."""
    (path,) = write(tmp_path, wrong="a = input()\nprint(60)")

    done = run_envhost("score", problems, path, "--row", "0", "-v")

    lines = [line.split() for line in done.stdout.splitlines()]
    tests = lines[lines.index(["test", "verdict", "CPU", "s", "wall", "s", "MiB"]) + 1 :]
    assert [line[:2] for line in tests] == [["0", "WA"], ["1", "AC"]]


def test_json_has_the_metadata(tmp_path: Path, problems: str, run_envhost: Run) -> None:
    """With --json each program is one object with the keys of the step's metadata."""
    paths = write(tmp_path, right=SUM, wrong="print(3)")

    done = run_envhost("score", problems, *paths, "--problem", "zero", "--json", "--verbose")

    right, wrong = map(json.loads, done.stdout.splitlines())
    assert (right["program"], right["problem_id"]) == (paths[0], "zero")
    assert (right["verdict"], right["tests_passed"], right["tests_total"]) == ("AC", 2, 2)
    assert [(test["test"], test["verdict"]) for test in wrong["tests"]] == [(0, "AC"), (1, "WA")]
    assert (wrong["verdict"], wrong["first_failed"], wrong["tests_run"]) == ("WA", 1, 2)


def test_verbose_runs_no_test_twice(tmp_path: Path, problems: str, run_envhost: Run) -> None:
    """What is shown test by test are the very runs that the verdict is made of."""
    plain = ["--env-config", '{"sandbox_type": "none"}', "--unsafe-no-sandbox"]
    with tempfile.TemporaryDirectory() as place:  # that the programs' user can reach
        Path(place).chmod(0o755)
        count = Path(place, "count")
        count.touch()
        count.chmod(0o666)
        (path,) = write(tmp_path, counts=f"open({str(count)!r}, 'a').write('x')\n{SUM}")

        done = run_envhost("score", problems, path, "--row", "0", "--verbose", *plain)

        assert done.returncode == 0, done.stdout
        assert count.read_text() == "xx"


def test_a_program_or_an_answer_from_standard_input(problems: str, run_envhost: Run) -> None:
    """The program - is read from standard input; with --answers the code is taken out of it."""
    program = run_envhost("score", problems, "-", "--row", "0", stdin=SUM)
    answer = run_envhost(
        "score", problems, "-", "--row", "0", "--answers", stdin=f"So:\n```python\n{SUM}```\n"
    )
    none = run_envhost("score", problems, "-", "--row", "0", "--answers", "--json", stdin="No.")

    assert (program.returncode, answer.returncode, none.returncode) == (0, 0, 1)
    assert json.loads(none.stdout)["verdict"] == "NC"


def test_the_options_are_the_servers(tmp_path: Path, problems: str, run_envhost: Run) -> None:
    """--env-config decides as it would for the server."""
    (path,) = write(tmp_path, spaced="print('', sum(map(int, input().split())))")

    lines = run_envhost("score", problems, path, "--row", "0")
    tokens = run_envhost(
        "score", problems, path, "--row", "0", "--env-config", '{"checker": "tokens"}'
    )

    assert (lines.returncode, tokens.returncode) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--row", "7"], "expected 0 to 0 in the train split, got 7"),
        (["--row", "0", "--problem", "sum"], "exclude each other"),
        (["--problem", "summ"], "did you mean sum?"),
        ([], "which of the 2 problems"),
        (["--row", "0", "--env-config", '{"max_test": 3}'], "did you mean max_tests?"),
        (["--row", "0", "--env-config", "[]"], "expected a JSON object"),
        (["--row", "0", "--env-config", '{"sandbox_type": "none"}'], "--unsafe-no-sandbox"),
    ],
)
def test_wrong_use_ends_with_2(
    tmp_path: Path, problems: str, run_envhost: Run, arguments: list[str], said: str
) -> None:
    """A mistake is one line that says what to do, before anything is judged."""
    (path,) = write(tmp_path, right=SUM)

    done = run_envhost("score", problems, path, *arguments)

    assert said in done.stderr
    assert (done.stderr.count("\n"), done.stdout, done.returncode) == (1, "", 2)


def test_a_missing_program_ends_with_2(tmp_path: Path, problems: str, run_envhost: Run) -> None:
    """A program that cannot be read is named."""
    done = run_envhost("score", problems, str(tmp_path / "none.py"), "--row", "0")

    assert "none.py: No such file" in done.stderr
    assert done.returncode == 2
