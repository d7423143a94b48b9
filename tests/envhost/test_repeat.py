"""The game of several turns."""

from __future__ import annotations

from typing import Any

import pytest

from envhost.envs.repeat import COLOURS, Repeat
from envhost.errors import ConfigError, EpisodeError, ProtocolError


async def play(game: Repeat, *answers: str) -> list[tuple[str, float | None, bool]]:
    """Return what was said to each answer, its reward, and whether the game was over."""
    results = [await game.step({"message": answer}) for answer in answers]
    return [(str(r.observation["prompt"]), r.reward, r.terminated) for r in results]


async def test_right_answers_add_up_to_one() -> None:
    """Every turn names one more colour; the rewards of a whole game are 1."""
    game = Repeat(turns=2)
    first, second = str((await game.reset(seed=5)).metadata["problem_id"]).split()

    assert await play(game, first, f" {first}  {second}\n") == [
        (f"and {second}", 0.5, False),
        ("right", 0.5, True),
    ]


@pytest.mark.parametrize("answer", ["", "purple", "red red red", "RED"])
async def test_a_wrong_answer_ends_the_game(answer: str) -> None:
    """No reward, and no further turn."""
    game = Repeat()
    await game.reset(seed=1)

    assert await play(game, answer) == [("wrong", 0.0, True)]
    with pytest.raises(EpisodeError):
        await game.step({"message": answer})


async def test_a_seed_is_one_sequence_everywhere() -> None:
    """Two games with one seed are the same; neighbouring seeds are not."""
    problems = [(await Repeat().reset(seed=seed)).metadata["problem_id"] for seed in (7, 7, 8)]

    assert problems[0] == problems[1] != problems[2]


async def test_training_and_evaluation_share_no_sequence() -> None:
    """Every sequence of colours is in one split, once."""
    game = Repeat(turns=2)
    state: Any = await game.state()
    seen = [
        (await game.reset(row_index=row, evaluation=evaluation)).metadata["problem_id"]
        for evaluation, size in ((False, "dataset_size"), (True, "evaluation_size"))
        for row in range(state[size])
    ]

    assert len(seen) == len(set(seen)) == len(COLOURS) ** 2
    assert state["evaluation_size"] == 8


async def test_a_row_out_of_range_is_refused() -> None:
    """The message has the range."""
    with pytest.raises(ProtocolError, match="expected 0 to 447, got 448"):
        await Repeat().reset(row_index=448)


def test_the_number_of_turns_is_bounded() -> None:
    """0 and 6 turns are refused."""
    for turns in (0, 6):
        with pytest.raises(ConfigError, match=f"expected 1 to 5, got {turns}"):
            Repeat(turns=turns)
