"""A seed means the same first observation in every session and every process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from envhost.client import EnvPool

pytestmark = pytest.mark.slow

SESSIONS = 64
BUNDLED = [
    ("envhost.envs.code:make", {"dataset": "bundled:lists"}),
    ("envhost.envs.code:make", {"dataset": "bundled:classics"}),
    ("envhost.envs.repeat:Repeat", {}),
]


def _first_observations(url: str, seed: int) -> set[str]:
    with EnvPool([url], SESSIONS, request_timeout_seconds=120) as pool:
        for slot in range(SESSIONS):
            pool.submit_reset(slot, seed=seed)
        results = list(pool.results())
    assert [result.error for result in results if result.error] == []
    return {result.prompt_or_observation for result in results}


@pytest.mark.parametrize(("entrypoint", "options"), BUNDLED)
def test_bundled_environments_begin_alike(
    start_server: Callable[..., Any], entrypoint: str, options: dict[str, Any]
) -> None:
    """Sixty-four sessions at once, on two servers; another seed begins otherwise."""
    config = ("--env-config", json.dumps(options), "--max-concurrent-envs", str(SESSIONS))
    servers = [start_server(entrypoint, *config) for _ in range(2)]

    seen = [_first_observations(server.url, 5) for server in servers]
    others = {text for seed in range(6, 9) for text in _first_observations(servers[0].url, seed)}

    assert len(seen[0]) == 1
    assert seen[0] == seen[1]
    assert others != seen[0]
