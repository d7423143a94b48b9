"""Serve an echo environment with OpenEnv's own server; runs in a virtual environment of its own.

Usage: openenv_server.py PORT MAX_SESSIONS sync|async. Prints one line when it is about to listen.
"""

import sys

import uvicorn
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):
    """A text."""

    message: str


class EchoObservation(Observation):
    """What text clients read."""

    prompt: str = ""
    truncated: bool = False
    question: str = ""
    answer: str = ""


class SyncEcho(Environment):
    """Echo in a thread, as OpenEnv runs synchronous environments."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        """Begin with no steps."""
        super().__init__()
        self._state = State(episode_id=None, step_count=0)

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Begin an episode."""
        self._state = State(episode_id=episode_id, step_count=0)
        return EchoObservation(prompt=f"say something, seed {seed}", metadata={"seed": seed})

    def step(self, action, timeout_s=None, **kwargs):
        """Echo; `end` ends the episode."""
        if action.message == "raise":
            raise LookupError("no such answer")
        self._state.step_count += 1
        return EchoObservation(
            prompt=f"echo {action.message}",
            done=action.message == "end",
            reward=float(len(action.message)),
            metadata={"steps": self._state.step_count},
        )

    @property
    def state(self):
        """Return how many steps there were."""
        return self._state


class AsyncEcho(SyncEcho):
    """Echo in the event loop, without a thread."""

    async def reset_async(self, seed=None, episode_id=None, **kwargs):
        """Begin an episode."""
        return self.reset(seed, episode_id)

    async def step_async(self, action, timeout_s=None, **kwargs):
        """Echo."""
        return self.step(action)


def main():
    """Serve until killed."""
    port, sessions, kind = sys.argv[1:]
    environment = {"sync": SyncEcho, "async": AsyncEcho}[kind]
    app = create_fastapi_app(
        environment, EchoAction, EchoObservation, max_concurrent_envs=int(sessions)
    )
    print(f"Serving http://127.0.0.1:{port}", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning", backlog=4096)


if __name__ == "__main__":
    main()
