"""Episodes played with hand-written answers: exact tokens, rewards, failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fakes import FakePool, FakeSampler, LetterTokenizer, failed, letters, reset_result, step_result

from envhost.client import Result
from envhost.errors import EnvironmentFailed, RequestTimedOut
from rltrain.chat import Chat
from rltrain.collect import Collected, Collector
from rltrain.environments import Environments
from rltrain.rollout import Episode, Request, Sampling
from rltrain.sampler import Handover

SAMPLING = Sampling(temperature=1.0)


def episodes(count: int, *, is_evaluation: bool = False) -> list[Episode]:
    return [
        Episode(group=0, seed=5, is_evaluation=is_evaluation, sample_seed=100 * i)
        for i in range(count)
    ]


def play(
    script: Callable[[int, str, Any], Result],
    answer: Callable[[Request], Sequence[int]],
    *,
    count: int = 1,
    slots: int = 0,
    is_evaluation: bool = False,
    silent: Sequence[int] = (),
    **settings: Any,
) -> tuple[Collected, FakePool, FakeSampler]:
    """Play episodes; slots are one more than the episodes unless told."""
    pool = FakePool(script)
    pool.silent.update(silent)
    sampler = FakeSampler(answer)
    collector = Collector(
        sampler,
        Environments(pool, slots=slots or count + 1),
        Chat(LetterTokenizer()),
        **{
            "max_turns": 1,
            "max_output_tokens": 20,
            "context_length": 200,
            "request_timeout_seconds": 0.0,
            **settings,
        },
    )
    return collector.play(episodes(count, is_evaluation=is_evaluation), SAMPLING), pool, sampler


def one_shot(slot: int, kind: str, argument: Any) -> Result:
    """Prompt "q"; the reward is the answer's length."""
    if kind == "reset":
        return reset_result(slot, "q", problem_id="p1")
    return step_result(slot, "ok", float(len(argument)), verdict="AC")


def test_a_single_turn_is_prompt_and_answer() -> None:
    """Ids, mask and logprobs are exactly the prompt's and the sampled ones."""
    collected, pool, _ = play(one_shot, lambda request: [*letters("abc"), 2])

    (rollout,) = collected.rollouts
    prompt = letters("<s>u:q<e>\n<s>a:")
    assert rollout.transcript.token_ids == (*prompt, *letters("abc"), 2)
    assert rollout.transcript.action_mask == (False,) * len(prompt) + (True,) * 4
    assert rollout.transcript.behaviour_logprobs == (0.0,) * len(prompt) + (-0.5,) * 4
    assert rollout.reward == 3.0
    assert rollout.verdict == "AC"
    assert rollout.problem == "p1"
    assert collected.handover == Handover(seconds=1.5, memory_bytes={"train_end": 7})
    assert collected.sampled_tokens == 4
    assert pool.calls[-1] == (0, "step", "abc")


def test_turns_grow_by_exact_prefix() -> None:
    """Each prompt is the last one, the sampled tokens and the suffix; no token is made again."""

    def script(slot: int, kind: str, argument: Any) -> Result:
        if kind == "reset":
            return reset_result(slot, "q", system_prompt="sys")
        return step_result(slot, "no", 0.25, is_over=argument == "c")

    answers = [[*letters("a"), 2], letters("b" * 20), [*letters("c"), 2]]
    turn = iter(answers)
    collected, _, sampler = play(script, lambda request: next(turn), max_turns=9)

    (rollout,) = collected.rollouts
    first = letters("<s>s:sys<e>\n<s>u:q<e>\n<s>a:")
    after_stop = letters("\n<s>u:no<e>\n<s>a:")
    after_cut = letters("<e>\n<s>u:no<e>\n<s>a:")
    prompts = [list(request.prompt_ids) for request in sampler.requests]
    assert prompts[0] == first
    assert prompts[1] == first + answers[0] + after_stop
    assert prompts[2] == prompts[1] + answers[1] + after_cut
    assert list(rollout.transcript.token_ids) == prompts[2] + answers[2]
    assert rollout.transcript.sampled_tokens == 2 + 20 + 2
    assert [turn.finish for turn in rollout.turns] == ["stop", "length", "stop"]
    assert rollout.reward == 0.75
    assert len({request.seed for request in sampler.requests}) == 3


def test_the_turn_budget_ends_an_episode() -> None:
    """After max_turns answers the rewards so far are the rollout's."""

    def script(slot: int, kind: str, argument: Any) -> Result:
        if kind == "reset":
            return reset_result(slot, "q")
        return step_result(slot, "more", 1.0, is_over=False)

    collected, _, sampler = play(script, lambda request: [*letters("a"), 2], max_turns=3)

    assert collected.rollouts[0].reward == 3.0
    assert len(sampler.requests) == 3


def test_a_full_context_ends_an_episode() -> None:
    """Where no token has room the episode ends scored, without the suffix that does not fit."""

    def script(slot: int, kind: str, argument: Any) -> Result:
        if kind == "reset":
            return reset_result(slot, "q")
        return step_result(slot, "x" * 30, 1.0, is_over=False)

    collected, _, _ = play(
        script, lambda request: [*letters("a"), 2], max_turns=9, context_length=40
    )

    (rollout,) = collected.rollouts
    assert rollout.reward == 1.0
    assert rollout.transcript.token_ids[-1] == 2


def test_answers_are_cut_to_the_context() -> None:
    """A request never asks for more tokens than the context has left."""
    prompt = letters("<s>u:q<e>\n<s>a:")
    collected, _, sampler = play(
        one_shot, lambda request: letters("a" * 20), context_length=len(prompt) + 5
    )

    assert sampler.requests[0].max_tokens == 5
    assert collected.rollouts[0].is_cut


def test_a_prompt_that_fills_the_context_is_not_scored() -> None:
    """It is the setting's fault, never the answer's."""
    collected, _, _ = play(one_shot, lambda request: [2], context_length=8)

    assert collected.rollouts[0].reward is None
    assert "fills the context of 8" in collected.rollouts[0].failure


@pytest.mark.parametrize(
    ("kind", "error"),
    [("reset", RequestTimedOut("no reply in 3 s")), ("step", EnvironmentFailed("not scored: IE"))],
)
def test_a_failed_slot_hits_no_other(kind: str, error: Any) -> None:
    """Its rollout has no reward but the reason; the others are scored."""

    def script(slot: int, what: str, argument: Any) -> Result:
        if slot == 1 and what == kind:
            return failed(slot, what, error)
        return one_shot(slot, what, argument)

    collected, _, _ = play(script, lambda request: [*letters("ab"), 2], count=3)

    assert [rollout.reward for rollout in collected.rollouts] == [2.0, None, 2.0]
    assert str(error) in collected.rollouts[1].failure


def test_no_reward_at_the_end_is_not_zero() -> None:
    """A last step without a reward is not scored."""

    def script(slot: int, kind: str, argument: Any) -> Result:
        return reset_result(slot, "q") if kind == "reset" else step_result(slot, "", None)

    collected, _, _ = play(script, lambda request: [2])

    assert collected.rollouts[0].reward is None


def test_a_silent_slot_is_given_up_at_the_deadline() -> None:
    """One deadline bounds the waiting; what is missing then is not scored."""
    collected, _, _ = play(
        one_shot,
        lambda request: [*letters("a"), 2],
        count=3,
        silent=[2],
        request_timeout_seconds=0.01,
    )

    assert [rollout.reward for rollout in collected.rollouts] == [1.0, 1.0, None]
    assert "no reply within" in collected.rollouts[2].failure


def test_evaluation_uses_all_slots_and_runs_on_through_them() -> None:
    """Seven episodes in three slots: each slot takes the next one when it is free."""
    collected, pool, _ = play(
        one_shot, lambda request: [*letters("a"), 2], count=7, slots=3, is_evaluation=True
    )

    assert [rollout.reward for rollout in collected.rollouts] == [1.0] * 7
    assert {slot for slot, _, _ in pool.calls} == {0, 1, 2}


def test_training_leaves_the_evaluation_slot_alone() -> None:
    """The last slot opens no session before the first evaluation."""
    _, pool, _ = play(one_shot, lambda request: [2], count=2)

    assert {slot for slot, _, _ in pool.calls} == {0, 1}


def test_an_answer_is_scored_while_others_are_sampled() -> None:
    """A finished answer has been sent before the next request is worked on."""
    order: list[str] = []

    def script(slot: int, kind: str, argument: Any) -> Result:
        if kind == "step":
            order.append(f"step {slot}")
        return one_shot(slot, kind, argument)

    def answer(request: Request) -> list[int]:
        order.append(f"sample {request.key}")
        return [*letters("a"), 2]

    play(script, answer, count=3)

    assert order == ["sample 0", "step 0", "sample 1", "step 1", "sample 2", "step 2"]
