"""Sampler × environments → scored rollouts: scoring overlaps generation.

Owns the life of an episode: reset, prompt, answer, step, next turn, end or failure. A completion
goes to its environment the moment it ends, while others are still being sampled; a slot that fails
is not scored and stops nobody else.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

from attrs import evolve, field, frozen

from .chat import Chat
from .environments import Environments, Reply
from .rollout import Completion, Episode, Request, Rollout, Sampling, Transcript, Turn
from .sampler import Handover, Sampler

__all__ = ["Collected", "Collector", "joined_rounds"]


@frozen(kw_only=True)
class Collected:
    """Rollouts in the order of their episodes, and where the time went.

    `score_seconds` is the time in which there was nothing to sample and all waited for
    environments; scoring that ran beside sampling costs nothing. `handover` is what it took to get
    from training to sampling and back.
    """

    rollouts: tuple[Rollout, ...]
    sampled_tokens: int
    generate_seconds: float
    score_seconds: float
    handover: Handover = field(factory=Handover)


def joined_rounds(parts: Sequence[Collected]) -> Collected:
    """Return what the ranks collected as one; its times are those of the rank that took longest."""
    slowest = max(parts, key=lambda part: part.generate_seconds + part.score_seconds)
    return Collected(
        rollouts=tuple(rollout for part in parts for rollout in part.rollouts),
        sampled_tokens=sum(part.sampled_tokens for part in parts),
        generate_seconds=slowest.generate_seconds,
        score_seconds=slowest.score_seconds,
        handover=slowest.handover,
    )


class Collector:
    """Plays episodes with a sampler in environments.

    Args:
        sampler: Where completions come from.
        environments: The slots.
        chat: Text to tokens.
        max_turns: Answers an episode may take.
        max_output_tokens: Tokens of one answer at most; None leaves it to the context.
        context_length: Tokens of a whole transcript at most.
        request_timeout_seconds: Bound of one message; 0 is none. All waiting of one `play` is
            bounded by this times the messages of an episode.
    """

    def __init__(
        self,
        sampler: Sampler,
        environments: Environments,
        chat: Chat,
        *,
        max_turns: int,
        max_output_tokens: int | None,
        context_length: int,
        request_timeout_seconds: float,
    ) -> None:
        self.sampler = sampler
        self.environments = environments
        self.chat = chat
        self.max_turns = max_turns
        self.max_output_tokens = max_output_tokens or context_length
        self.context_length = context_length
        self.patience_seconds = (request_timeout_seconds or float("inf")) * (max_turns + 1)

    def play(self, episodes: Sequence[Episode], sampling: Sampling) -> Collected:
        """Play all episodes, as many at once as there are slots, and return their rollouts."""
        with self.sampler.serving():
            collected = _Phase(self, episodes, sampling).run()
        return evolve(collected, handover=self.sampler.handover)


class _Play:
    """One running episode."""

    def __init__(self, key: int, episode: Episode) -> None:
        self.key = key
        self.episode = episode
        self.prompt = ""
        self.problem = ""
        self.transcript = Transcript()
        self.turns: list[Turn] = []
        self.answer: Completion | None = None
        self.reward: float = 0.0


class _Phase:
    """All the episodes of one `play`, in their slots."""

    def __init__(
        self, collector: Collector, episodes: Sequence[Episode], sampling: Sampling
    ) -> None:
        self._collector = collector
        self._sampler, self._environments = collector.sampler, collector.environments
        self._sampling = sampling
        self._waiting = deque(_Play(key, episode) for key, episode in enumerate(episodes))
        self._in_slot: dict[int, _Play] = {}
        self._slot_of: dict[int, int] = {}
        self._done: dict[int, Rollout] = {}

    def run(self) -> Collected:
        started = time.monotonic()
        waited_seconds = 0.0
        is_evaluation = any(play.episode.is_evaluation for play in self._waiting)
        environments = self._environments
        for slot in range(environments.slots if is_evaluation else environments.training_slots):
            self._begin_next(slot)
        while self._in_slot:
            is_sampling = self._sampler.can_advance(
                is_more_coming=self._environments.replies_due > 0
            )
            if is_sampling:
                for completion in self._sampler.advance():
                    self._answer(completion)
                replies = self._environments.poll(0.0)
            else:
                assert self._environments.replies_due, "nothing to sample and nothing to wait for"
                before = time.monotonic()
                replies = self._environments.poll(self._patience(waited_seconds))
                waited_seconds += time.monotonic() - before
                if not replies and waited_seconds >= self._collector.patience_seconds:
                    self._give_up(waited_seconds)
            for reply in replies:
                self._take(reply)
        rollouts = tuple(self._done[key] for key in sorted(self._done))
        return Collected(
            rollouts=rollouts,
            sampled_tokens=sum(rollout.transcript.sampled_tokens for rollout in rollouts),
            generate_seconds=time.monotonic() - started - waited_seconds,
            score_seconds=waited_seconds,
        )

    def _patience(self, waited_seconds: float) -> float | None:
        left = self._collector.patience_seconds - waited_seconds
        return None if left == float("inf") else max(left, 0.001)

    def _begin_next(self, slot: int) -> None:
        if not self._waiting:
            return
        play = self._waiting.popleft()
        self._in_slot[slot] = play
        self._slot_of[play.key] = slot
        self._environments.reset(slot, play.episode)

    def _take(self, reply: Reply) -> None:
        """Go on with the episode that a reply belongs to."""
        play = self._in_slot[reply.slot]
        if reply.failure:
            self._end(play, reply.failure)
        elif reply.kind == "reset":
            self._prompt(play, reply)
        else:
            self._score(play, reply)

    def _prompt(self, play: _Play, reply: Reply) -> None:
        play.prompt = reply.text
        play.problem = str(reply.info.get("problem_id", ""))
        system = reply.info.get("system_prompt")
        ids = self._collector.chat.prompt_ids(
            reply.text, system=system if isinstance(system, str) else None
        )
        play.transcript = play.transcript.given(ids)
        if not self._ask(play):
            limit = self._collector.context_length
            self._end(play, f"prompt of {len(ids)} tokens fills the context of {limit}")

    def _ask(self, play: _Play) -> bool:
        """Ask for the next answer; return False where the context has no room for one."""
        room = self._collector.context_length - len(play.transcript.token_ids)
        if room < 1:
            return False
        self._sampler.submit(
            Request(
                key=play.key,
                prompt_ids=play.transcript.token_ids,
                max_tokens=min(room, self._collector.max_output_tokens),
                sampling=self._sampling,
                seed=play.episode.sample_seed + len(play.turns),
            )
        )
        return True

    def _answer(self, completion: Completion) -> None:
        """Send an answer to its environment at once."""
        slot = self._slot_of[completion.key]
        play = self._in_slot[slot]
        play.answer = completion
        play.transcript = play.transcript.sampled(completion)
        self._environments.step(slot, self._collector.chat.text(completion.token_ids))

    def _score(self, play: _Play, reply: Reply) -> None:
        assert play.answer is not None
        play.turns.append(
            Turn(
                completion=self._collector.chat.text(play.answer.token_ids),
                finish=play.answer.finish,
                verdict=str(reply.info.get("verdict", "")),
                observation=reply.text,
            )
        )
        is_last = reply.is_over or len(play.turns) == self._collector.max_turns
        if reply.reward is not None:
            play.reward += reply.reward
        elif is_last:
            self._end(play, "the environment gave no reward")
            return
        if not is_last:
            suffix = self._collector.chat.suffix_ids(play.transcript.token_ids[-1], reply.text)
            before, play.transcript = play.transcript, play.transcript.given(suffix)
            if self._ask(play):
                return
            play.transcript = before  # the context is full: the episode ends with this answer
        self._end(play)

    def _end(self, play: _Play, failure: str = "") -> None:
        """Keep an episode's rollout, scored or not, and let its slot begin the next one."""
        self._done[play.key] = Rollout(
            episode=play.episode,
            prompt=play.prompt,
            problem=play.problem,
            transcript=play.transcript,
            turns=tuple(play.turns),
            reward=None if failure else play.reward,
            failure=failure,
        )
        slot = self._slot_of.pop(play.key)
        del self._in_slot[slot]
        self._begin_next(slot)

    def _give_up(self, waited_seconds: float) -> None:
        """Leave all that still runs unscored: the phase's deadline has passed."""
        self._sampler.abort()
        self._waiting.clear()
        for slot, play in list(self._in_slot.items()):
            self._environments.abandon(slot)
            self._end(play, f"no reply within {waited_seconds:.0f} s of waiting")
