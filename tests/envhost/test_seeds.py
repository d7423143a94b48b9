"""Seeds of the bundled problems: one prompt each, wherever it is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from server_process import ServerProcess

from envhost.client import EnvPool
from envhost.judge.loading import load_problems

SESSIONS = 64


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["bundled:lists", "bundled:classics"])
def test_a_seed_is_one_prompt_everywhere(
    start_server: Callable[..., ServerProcess], dataset: str
) -> None:
    """64 sessions of two servers, all at once, get for a seed what it means in this process."""
    config = json.dumps({"dataset": dataset, "cells": "cold"})
    arguments = ("--max-concurrent-envs", "32", "--env-config", config)
    urls = [start_server(*arguments).url, start_server(*arguments).url]
    problems = load_problems(dataset)

    for seed in (0, 7, 2**40):
        with EnvPool(urls, SESSIONS) as pool:
            for slot in range(SESSIONS):
                pool.submit_reset(slot, seed=seed)
            results = list(pool.results())

        prompt = problems.prompt("train", problems.row_of_seed("train", seed))
        assert [result.error for result in results] == [None] * SESSIONS
        assert {result.prompt_or_observation for result in results} == {prompt.text}
        assert {result.info["problem_id"] for result in results} == {prompt.problem_id}
