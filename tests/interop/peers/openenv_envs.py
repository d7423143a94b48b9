"""OpenEnv environments with typed actions and with tools, and OpenEnv's own server for them.

Usage as a program: openenv_envs.py PORT Columns|Tools. Prints one line when it is about to listen.
"""

import random
import sys

import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Move(Action):
    """A column."""

    column: int


class Board(Observation):
    """Columns that were played."""

    columns: list[int] = Field(default_factory=list)
    start: int = 0


class Score(State):
    """What was counted."""

    total: int = 0


class Columns(Environment[Move, Board, Score]):
    """Add up columns."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        """Begin with nothing."""
        super().__init__()
        self._state = Score()
        self._board = Board()

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Begin an episode where the seed says."""
        self._state = Score(episode_id=episode_id)
        self._board = Board(start=random.Random(seed).randint(0, 99))
        return self._board

    def step(self, action, timeout_s=None, **kwargs):
        """Play a column; 9 ends the episode."""
        self._state.step_count += 1
        self._state.total += action.column
        columns = [*self._board.columns, action.column]
        self._board = Board(
            columns=columns,
            start=self._board.start,
            reward=float(action.column),
            done=action.column == 9,
            metadata={"moves": len(columns)},
        )
        return self._board

    @property
    def state(self):
        """Return the score."""
        return self._state


class Tools(MCPEnvironment):
    """Add and count with tools."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        """Make the tools."""
        server = FastMCP("tools")
        self._calls = 0

        @server.tool
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            self._calls += 1
            return a + b

        @server.tool
        def fail() -> str:
            """Fail."""
            raise LookupError("no such thing")

        super().__init__(server)

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Begin an episode."""
        self._calls = 0
        return Observation(metadata={"hello": "tools"})

    def _step_impl(self, action, timeout_s=None, **kwargs):
        return Observation()

    @property
    def state(self):
        """Return how many calls there were."""
        return State(step_count=self._calls)


def main():
    """Serve until killed."""
    port, name = sys.argv[1:]
    kinds = {
        "Columns": (Columns, Move, Board),
        "Tools": (Tools, CallToolAction, CallToolObservation),
    }
    app = create_fastapi_app(*kinds[name], max_concurrent_envs=4)
    print(f"Serving http://127.0.0.1:{port}", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main()
