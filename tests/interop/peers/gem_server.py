"""Serve GEM's own code environment with OpenEnv's server, for a benchmark.

Usage: gem_server.py PORT MAX_SESSIONS TESTS.json, the latter as `{"inputs": […], "outputs": […]}`.
Runs under a base interpreter with the packages on its path: in a virtual environment GEM scores
every program 0, which is refused here. Prints one line when it is about to listen. GEM makes its
files in the working directory.
"""

import json
import sys
from pathlib import Path

import uvicorn
from datasets import Dataset
from gem.envs.code_env import CodeEnv
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State

NOTHING = Dataset.from_list([{"problem": "", "tests": "{}"}])
TESTS = json.loads(Path(sys.argv[3]).read_text())


class CodeAction(Action):
    """A model's answer."""

    message: str


class CodeObservation(Observation):
    """What text clients read."""

    prompt: str = ""


class GemCode(Environment):
    """One problem, judged as GEM does out of the box, in a thread of OpenEnv's."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        """Make GEM's environment."""
        super().__init__()
        self._env = CodeEnv(dataset_name="taco", dataset=NOTHING, sandbox_type="bwrap")

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Begin an episode."""
        self._env.tests = TESTS
        return CodeObservation()

    def step(self, action, timeout_s=None, **kwargs):
        """Judge an answer."""
        _, reward, done, _, _ = self._env.step(action.message)
        return CodeObservation(done=done, reward=float(reward))

    @property
    def state(self):
        """Return nothing of interest."""
        return State(episode_id=None, step_count=0)


def main():
    """Serve until killed."""
    port, sessions, _ = sys.argv[1:]
    known = GemCode()
    known.reset()
    right = "```python\nprint(sum(map(int, open(0).read().split())))\n```"
    if known.step(CodeAction(message=right)).reward != 1.0:
        sys.exit("GEM calls a known-right program wrong: is this a base interpreter?")
    app = create_fastapi_app(
        GemCode, CodeAction, CodeObservation, max_concurrent_envs=int(sessions)
    )
    print(f"Serving http://127.0.0.1:{port}", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
