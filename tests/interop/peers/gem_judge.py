"""Score answers with GEM's own code environment in its bwrap mode; runs under a base interpreter.

Usage: gem_judge.py CASES.json, a list of `{"answer": …, "tests": {"inputs": …, "outputs": …}}`.
Prints a JSON line for each, as soon as it is known: the reward, or the name of what `step` raised.
Standard input is left to the programs, which read it where a test's input is empty.
"""

import json
import sys
from pathlib import Path

from datasets import Dataset
from gem.envs.code_env import CodeEnv

NOTHING = Dataset.from_list([{"problem": "", "tests": "{}"}])

env = CodeEnv(dataset_name="taco", dataset=NOTHING, sandbox_type="bwrap", max_workers=4)
for case in json.loads(Path(sys.argv[1]).read_text()):
    env.tests = case["tests"]
    try:
        outcome = env.step(case["answer"])[1]
    except Exception as error:  # noqa: BLE001 - what it raises is what is asked
        outcome = type(error).__name__
    print(json.dumps(outcome), flush=True)
