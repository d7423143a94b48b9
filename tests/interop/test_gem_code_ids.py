"""Code ids of GEM's registry, served by our own environment where GEM is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import serve

from envhost.client import EnvClient
from envhost.envs.code_options import checked_options
from envhost.envs.gem_code import gem_code

ROOT = Path(__file__).resolve().parent.parent.parent
REGISTER = """
import gem

gem.register(
    "code:Mine",
    "gem.envs.code_env:CodeEnv",
    dataset_name={path!r},
    question_key="question",
    test_key="cases",
    max_tests=1,
)
"""
ROW = {"question": "double it", "cases": {"inputs": ["2\n", "30\n"], "outputs": ["5\n", "60\n"]}}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="gem-llm needs Python 3.11"),
]

SIGNATURE = """
import inspect, json
from gem.envs.code_env import CodeEnv

print(json.dumps(list(inspect.signature(CodeEnv).parameters)))
"""
ARGUMENTS = {
    "dataset_name": "some/where",
    "split": "train",
    "dataset": "rows.jsonl",
    "question_key": "q",
    "test_key": "t",
    "seed": 0,
    "max_workers": 5,
    "max_tests": 12,
    "verbose": False,
    "sandbox_type": "bwrap",
}


def test_every_argument_of_the_reference_has_a_meaning(gem_python: str) -> None:
    """Each named parameter of GEM's `CodeEnv` is taken; the rest, which it drops, is checked."""
    told = subprocess.run(
        [gem_python, "-c", SIGNATURE], stdout=subprocess.PIPE, text=True, check=True
    )
    *named, others = json.loads(told.stdout)

    assert sorted(named) == sorted(ARGUMENTS)
    assert others == "_"
    for name in named:
        found = gem_code({"env_id": "code:Taco8k", name: ARGUMENTS[name]})
        assert found is not None
        checked_options(found.options, unsafe_no_sandbox=False)


def test_an_id_that_a_file_registers(gem_python: str, tmp_path: Path) -> None:
    """The registered arguments decide: the data set, its columns, how many tests."""
    rows, mine = tmp_path / "rows.jsonl", tmp_path / "mine.py"
    rows.write_text(json.dumps(ROW) + "\n")
    mine.write_text(REGISTER.format(path=str(rows)))
    config = json.dumps({"env_id": "code:Mine", "evaluation_fraction": 0})
    arguments = (f"{mine}:gem.make", "--env-config", config)

    with (
        serve(tmp_path, *arguments, python=gem_python, cwd=ROOT) as server,
        EnvClient(server.url) as env,
    ):
        prompt, _ = env.reset(seed=0)
        _, reward, _, _, info = env.step("```python\nprint(int(input()) * 2)\n```")

    assert prompt == "double it"
    assert (reward, info["verdict"], info["tests_total"]) == (1.0, "AC", 1)
