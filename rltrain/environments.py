"""Episodes on other machines: seeds, the slots and their sessions.

Owns which problem each group gets, and the pool of sessions. It is the only module that knows
envhost's client; a failure of a slot comes out as a `Reply` with `failure` set.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from attrs import field, frozen

from envhost.client import EnvClient, EnvPool, Result, capacity
from envhost.errors import EnvhostError

from .errors import SetupError
from .manifest import Environment
from .rollout import Episode
from .seeds import fixed_hash

__all__ = [
    "EnvironmentFacts",
    "Environments",
    "Pool",
    "Reply",
    "ask_facts",
    "evaluation_episodes",
    "read_token",
    "server_capacity",
    "training_episodes",
]


@frozen(kw_only=True)
class EnvironmentFacts:
    """What an environment says about its problems; None where it does not."""

    dataset_size: int | None = None
    evaluation_size: int | None = None


def training_episodes(
    *, run_seed: int, step: int, groups: int, group_size: int, dataset_size: int | None
) -> list[Episode]:
    """Return a step's episodes, one a slot: members of a group share seed and row.

    With a `dataset_size` rows come from a shuffle of all rows, a new one each epoch, so that every
    problem is seen once before any is seen twice. All of it is a function of the run's seed and
    the step: nothing has to be remembered to resume.
    """
    episodes = []
    for group in range(groups):
        row_index = None
        if dataset_size:
            epoch, place = divmod(step * groups + group, dataset_size)
            row_index = _shuffled_rows(run_seed, epoch, dataset_size)[place]
        episodes += [
            Episode(
                group=group,
                seed=fixed_hash(run_seed, step, group),
                row_index=row_index,
                sample_seed=fixed_hash(run_seed, step, group, member),
            )
            for member in range(group_size)
        ]
    return episodes


def _shuffled_rows(run_seed: int, epoch: int, size: int) -> list[int]:
    rows = list(range(size))
    random.Random(fixed_hash("rows", run_seed, epoch)).shuffle(rows)
    return rows


def evaluation_episodes(
    *, run_seed: int, loop: int | Literal["all"], evaluation_size: int | None
) -> list[Episode]:
    """Return the episodes of an evaluation: the same ones every time.

    Raises:
        SetupError: All held-out rows are asked for and the environment does not say how many.
    """
    if loop == "all":
        if not evaluation_size:
            raise SetupError(
                "training.eval_loop: all: the environment's state has no evaluation_size: give a "
                "number of episodes"
            )
        loop = evaluation_size
    return [
        Episode(
            group=index,
            seed=fixed_hash("evaluation", run_seed, index),
            row_index=index % evaluation_size if evaluation_size else None,
            is_evaluation=True,
            sample_seed=fixed_hash("evaluation", run_seed, index, "sample"),
        )
        for index in range(loop)
    ]


@frozen(kw_only=True)
class Reply:
    """What a slot's environment said; `failure` set means that nothing was scored."""

    slot: int
    kind: Literal["reset", "step"]
    text: str = ""
    reward: float | None = None
    is_over: bool = False
    info: Mapping[str, Any] = field(factory=dict)
    failure: str = ""


class Pool(Protocol):
    """What is needed of envhost's `EnvPool`."""

    def submit_reset(self, slot: int, *, seed: int | None = None, **options: Any) -> None:
        """Ask a slot to begin an episode."""

    def submit(self, slot: int, text: str) -> None:
        """Send a slot's answer."""

    def poll(self, timeout: float | None = 0.0) -> list[Result]:
        """Return what has arrived, after waiting for the first."""

    def close(self) -> None:
        """End all sessions."""


class Environments:
    """The slots of a run; each opens its session at its first episode and keeps it.

    The last slots are for evaluation alone, so their sessions open at the first one.

    Args:
        pool: The sessions.
        slots: How many there are, those for evaluation included.
        evaluation_slots: How many of them are for evaluation alone.
    """

    def __init__(self, pool: Pool, *, slots: int, evaluation_slots: int = 1) -> None:
        self._pool = pool
        self.slots = slots
        self.training_slots = slots - evaluation_slots
        self._due = [0] * slots
        self._stale = [0] * slots

    @classmethod
    def connect(
        cls, environment: Environment, urls: Sequence[str], *, slots: int, evaluation_slots: int
    ) -> Self:
        """Return the slots over the servers at these URLs; nothing is opened yet."""
        pool = EnvPool(
            list(urls),
            slots,
            token=read_token(environment),
            ca_file=environment.env_ca_file,
            request_timeout_seconds=environment.request_timeout_s,
            action_field=environment.action_field,
        )
        return cls(pool, slots=slots, evaluation_slots=evaluation_slots)

    @property
    def replies_due(self) -> int:
        """How many replies are still to come."""
        return sum(self._due) - sum(self._stale)

    def reset(self, slot: int, episode: Episode) -> None:
        """Begin an episode in a slot; return at once."""
        options: dict[str, Any] = {}
        if episode.row_index is not None:
            options["row_index"] = episode.row_index
        if episode.is_evaluation:
            options["evaluation"] = True
        self._due[slot] += 1
        self._pool.submit_reset(slot, seed=episode.seed, **options)

    def step(self, slot: int, text: str) -> None:
        """Send a slot's answer; return at once."""
        self._due[slot] += 1
        self._pool.submit(slot, text)

    def abandon(self, slot: int) -> None:
        """Take no more notice of what the slot still owes; its next episode starts afresh."""
        self._stale[slot] = self._due[slot]

    def poll(self, timeout_seconds: float | None) -> list[Reply]:
        """Return the replies that have arrived; wait so long for the first, None for ever."""
        replies = []
        for result in self._pool.poll(timeout_seconds):
            self._due[result.slot] -= 1
            if self._stale[result.slot]:
                self._stale[result.slot] -= 1  # replies come in the order of the requests
            else:
                replies.append(_reply(result))
        return replies

    def close(self) -> None:
        """End all sessions."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _reply(result: Result) -> Reply:
    failure = ""
    if result.error is not None:
        failure = f"{type(result.error).__name__}: {result.error}"
    return Reply(
        slot=result.slot,
        kind=result.kind,
        text=result.prompt_or_observation,
        reward=result.reward,
        is_over=result.terminated or result.truncated,
        info=result.info,
        failure=failure,
    )


def read_token(environment: Environment) -> str | None:
    """Return the servers' token from the manifest's file; None leaves it to ENVHOST_TOKEN.

    Raises:
        SetupError: The file cannot be read, or is empty.
    """
    if environment.env_token_file is None:
        return None
    try:
        token = Path(environment.env_token_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"environment.env_token_file: {error}") from None
    if not token:
        raise SetupError(f"environment.env_token_file: {environment.env_token_file} is empty")
    return token


def server_capacity(environment: Environment, url: str) -> tuple[int | None, int | None]:
    """Return how many sessions a server allows and holds; None where it does not say.

    Raises:
        SetupError: It cannot be reached, or does not let us in.
    """
    try:
        return capacity(url, token=read_token(environment), ca_file=environment.env_ca_file)
    except EnvhostError as error:
        raise SetupError(f"environment server: {error}") from error


def ask_facts(environment: Environment, url: str) -> EnvironmentFacts:
    """Open a session, ask for its state, and close it.

    Raises:
        SetupError: There is no session to be had.
    """
    client = EnvClient(
        url,
        token=read_token(environment),
        ca_file=environment.env_ca_file,
        request_timeout_seconds=environment.request_timeout_s,
    )
    try:
        with client:
            state = client.state()
    except EnvhostError as error:
        raise SetupError(f"environment server: {error}") from error
    return EnvironmentFacts(
        dataset_size=_size(state, "dataset_size"), evaluation_size=_size(state, "evaluation_size")
    )


def _size(state: Mapping[str, Any], key: str) -> int | None:
    value = state.get(key)
    return value if isinstance(value, int) and value > 0 else None
