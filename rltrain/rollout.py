"""What a step's work is made of: requests, completions, transcripts, rollouts and groups.

Plain lists and numbers, no tensors: everything here can be written to a file and read by eye.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import evolve, frozen

__all__ = ["Completion", "Episode", "Group", "Request", "Rollout", "Sampling", "Transcript", "Turn"]


@frozen(kw_only=True)
class Sampling:
    """How tokens are drawn; a temperature of 0 is greedy."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0


@frozen(kw_only=True)
class Request:
    """One completion asked of a sampler.

    `seed` alone decides the random numbers of the request, whatever else is sampled with it.
    """

    key: int
    prompt_ids: Sequence[int]
    max_tokens: int
    sampling: Sampling
    seed: int


@frozen(kw_only=True)
class Completion:
    """What a sampler gave: tokens, the behaviour policy's logprobs, and why it ended.

    A `stop` completion ends with its stop token; one cut by `length` has none.
    """

    key: int
    token_ids: Sequence[int]
    behaviour_logprobs: Sequence[float]
    finish: Literal["stop", "length"]


@frozen
class Transcript:
    """All tokens of one rollout: three sequences of equal length.

    `action_mask` is True where the policy sampled the token; elsewhere `behaviour_logprobs` is 0.
    """

    token_ids: tuple[int, ...] = ()
    action_mask: tuple[bool, ...] = ()
    behaviour_logprobs: tuple[float, ...] = ()

    def __attrs_post_init__(self) -> None:
        assert len(self.token_ids) == len(self.action_mask) == len(self.behaviour_logprobs)

    @property
    def sampled_tokens(self) -> int:
        """How many of the tokens the policy sampled."""
        return sum(self.action_mask)

    def given(self, token_ids: Sequence[int]) -> Transcript:
        """Return the transcript with tokens of the environment or template appended."""
        return Transcript(
            (*self.token_ids, *token_ids),
            (*self.action_mask, *([False] * len(token_ids))),
            (*self.behaviour_logprobs, *([0.0] * len(token_ids))),
        )

    def sampled(self, completion: Completion) -> Transcript:
        """Return the transcript with a completion appended, exactly as it was sampled."""
        return Transcript(
            (*self.token_ids, *completion.token_ids),
            (*self.action_mask, *([True] * len(completion.token_ids))),
            (*self.behaviour_logprobs, *completion.behaviour_logprobs),
        )


@frozen(kw_only=True)
class Episode:
    """What a slot is to play: members of a group share everything but `sample_seed`."""

    group: int
    seed: int | None
    row_index: int | None = None
    is_evaluation: bool = False
    sample_seed: int


@frozen(kw_only=True)
class Turn:
    """One answer and what became of it, as text."""

    completion: str
    finish: Literal["stop", "length"]
    verdict: str = ""
    observation: str = ""


@frozen(kw_only=True)
class Rollout:
    """One episode played to its end, or to its failure.

    A reward of None means *not scored*, and `failure` says why: such a rollout enters neither its
    group's baseline nor the loss.
    """

    episode: Episode
    prompt: str
    transcript: Transcript
    turns: tuple[Turn, ...]
    reward: float | None
    failure: str = ""
    problem: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the length limit ended its last answer."""
        return bool(self.turns) and self.turns[-1].finish == "length"

    @property
    def verdict(self) -> str:
        """The last turn's verdict, empty where the environment gives none."""
        return self.turns[-1].verdict if self.turns else ""

    def unscored(self, failure: str) -> Rollout:
        """Return the rollout without its reward."""
        return evolve(self, reward=None, failure=failure)


@frozen
class Group:
    """The rollouts of one problem, compared with each other."""

    index: int
    rollouts: tuple[Rollout, ...]

    @property
    def rewards(self) -> list[float | None]:
        """The members' rewards in their order; None where not scored."""
        return [rollout.reward for rollout in self.rollouts]
