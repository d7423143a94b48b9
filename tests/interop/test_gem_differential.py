"""Our verdicts and GEM's, over hundreds of programs: the same, but where GEM is known to be wrong.

GEM finds no python in a virtual environment, so that every reward would be 0.0: it runs under the
base interpreter, with its packages on the path.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from gem_cases import Disagreement, Pair, as_json, disagreements, pairs

from envhost.envs.code_options import checked_options
from envhost.errors import ConfigError
from envhost.judge.loading import load_problems

GEM = Path(__file__).parent / "peers" / "gem_judge.py"
LIMIT_SECONDS = 230
CANARY = Pair("canary", "print(sum(map(int, input().split())))", (("20 22\n", "42\n"),))
# Its output is compared with that of fewer tests than it has inputs.
UNEQUAL = {"answer": "```python\nprint(1)\n```", "tests": {"inputs": ["", ""], "outputs": ["1\n"]}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="gem-llm needs Python 3.11"),
]


@contextmanager
def gem_process(packages: str, cases: Path) -> Iterator[subprocess.Popen[str]]:
    """Run GEM over a file of cases in a process group that is killed as a whole.

    GEM leaves sandboxed processes behind after a timeout; they stay in the group.
    """
    process = subprocess.Popen(
        [Path(sys.base_prefix) / "bin" / "python3", GEM, cases],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=cases.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(cases.parent), "PYTHONPATH": packages},
        process_group=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture(scope="session")
def gem_rewards(
    tmp_path_factory: pytest.TempPathFactory, gem_packages: str
) -> dict[str, float | str]:
    """GEM's outcome of every case, by the case's name; all are asked for in one go."""
    asked = [CANARY, *(case.pair for case in disagreements()), *pairs()]
    cases = tmp_path_factory.mktemp("gem") / "cases.json"
    cases.write_text(json.dumps([*json.loads(as_json(asked)), UNEQUAL]))
    names = [*(pair.name for pair in asked), "unequal"]
    assert len(set(names)) == len(names)
    with gem_process(gem_packages, cases) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin as stdin:
            stdin.write("what the server's own standard input has\n")
        with kill_after(process, LIMIT_SECONDS):
            outcomes = [json.loads(line) for line in process.stdout]
    assert outcomes[:1] == [1.0], "GEM calls a known-right program wrong: nothing can be compared"
    assert len(outcomes) == len(names), f"GEM scored {len(outcomes)} of {len(names)} in time"
    return dict(zip(names, outcomes, strict=True))


@contextmanager
def kill_after(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Kill a process group that takes too long, so that its output ends."""

    def expire(*_: object) -> None:
        os.killpg(process.pid, signal.SIGKILL)

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


async def our_verdicts(asked: list[Pair]) -> dict[str, str]:
    """Return our verdict of each pair, by its name, as the server would give it by default."""
    verdicts: dict[str, str] = {}
    options = checked_options({}, unsafe_no_sandbox=False)
    async with options.open_judge(options.load_problems()) as judge, trio.open_nursery() as nursery:

        async def one(pair: Pair) -> None:
            # GEM strips what it takes out of an answer.
            verdict = await judge.judge(pair.problem(), pair.program.strip(), max_tests=12)
            verdicts[pair.name] = verdict.name

        for pair in asked:
            nursery.start_soon(one, pair)
    return verdicts


async def test_both_agree_on_right_and_wrong(gem_rewards: dict[str, float | str]) -> None:
    """Over three hundred programs and more, AC is where GEM gives 1.0 and nowhere else."""
    asked = pairs()

    verdicts = await our_verdicts(asked)

    differing = {
        name: (verdict, gem_rewards[name])
        for name, verdict in verdicts.items()
        if gem_rewards[name] != float(verdict == "AC")
    }
    right = sum(verdict == "AC" for verdict in verdicts.values())
    assert len(verdicts) >= 300
    assert 100 < right < len(verdicts) - 100
    assert differing == {}


@pytest.mark.parametrize("case", disagreements(), ids=lambda case: case.pair.name)
async def test_where_gem_is_wrong(case: Disagreement, gem_rewards: dict[str, float | str]) -> None:
    """We give the right verdict where GEM does not; the case says why it is the right one."""
    verdicts = await our_verdicts([case.pair])

    assert verdicts == {case.pair.name: case.ours}, case.why
    assert gem_rewards[case.pair.name] == case.theirs
    assert float(case.ours == "AC") != case.theirs


def test_unequal_numbers_of_inputs_and_outputs(
    gem_rewards: dict[str, float | str], tmp_path: Path
) -> None:
    """GEM passes a program by the tests that have an output; we drop the broken row."""
    path = tmp_path / "unequal.jsonl"
    path.write_text(json.dumps({"problem": "", "tests": UNEQUAL["tests"]}))

    with pytest.raises(ConfigError, match="unequal numbers of inputs and outputs"):
        load_problems(str(path))

    assert gem_rewards["unequal"] == 1.0
