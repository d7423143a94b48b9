"""`python -m envhost probe`: a server seen from the other side: does it answer, how fast, how many?

Owns the questions and how the answers are shown; what to do about a failure is `hints`' to say.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, TextIO

import click

from ..client import EnvClient, EnvPool, Result
from ..errors import EnvhostError
from ..remote import Remote, server_facts
from ..settings import read_token
from ..telemetry import printable
from .hints import findings, with_hint

__all__ = ["probe"]

_ROUND_TRIPS = 20
_PROMPT_LENGTH = 200
# A program that every judge can run; it prints what hardly any problem asks for.
_ANSWER = "```python\nprint('probe')\n```"


@click.command(short_help="Look at a server from here: reach it, open sessions, time them.")
@click.argument("url")
@click.option(
    "--sessions", type=click.IntRange(1), default=1, help="Sessions to open at once.  [default: 1]"
)
@click.option("--steps", type=click.IntRange(0), default=0, help="Steps in each.  [default: 0]")
@click.option("--seed", type=int, default=0, help="Seed of the first reset.  [default: 0]")
@click.option(
    "--answer", type=click.File(), help="What steps send: a file's text, - for standard input."
)
@click.option(
    "--timeout", type=float, default=300.0, help="Seconds a reply may take.  [default: 300]"
)
@click.option("--token-file", help="File with the server's token.")
@click.option("--ca-file", help="PEM file of the authority behind the server's certificate.")
def probe(
    url: str,
    sessions: int,
    steps: int,
    seed: int,
    answer: TextIO | None,
    timeout: float,
    token_file: str | None,
    ca_file: str | None,
) -> None:
    """Reach the server at URL, open sessions and reset each; with --steps or --answer, step them.

    Run it where the trainer will run: it goes the trainer's way, through the tunnel. Exit status 0:
    all of it worked; 1: a session failed; 2: the server cannot be used at all.
    """
    token = read_token(token_file) if token_file else None
    settings: dict[str, Any] = {
        "token": token,
        "ca_file": ca_file,
        "request_timeout_seconds": timeout,
        "retry_seconds": 0.0,
    }
    try:
        total = _reach(Remote.parse(url, token=token, ca_file=ca_file))
        _time_the_way(url, settings)
    except EnvhostError as error:
        raise with_hint(error, url) from error
    with EnvPool(url, sessions, **settings) as pool:
        visits = _Visits(
            pool,
            steps=max(steps, int(answer is not None)),
            answer=_ANSWER if answer is None else answer.read(),
        )
        visits.run(sessions, seed)
    _show(visits, sessions)
    for line in findings(
        failures=visits.failures,
        rewards=visits.rewards,
        isolation=visits.facts.get("isolation"),
        sessions=sessions,
        total=total,
    ):
        click.echo(printable(line), err=True)
    sys.exit(1 if visits.failures else 0)


# -- the questions ----------------------------------------------------------------------------


def _reach(remote: Remote) -> int | None:
    """Ask for the server's facts and show them; return its cap, None where it does not tell."""
    started = time.perf_counter()
    facts = server_facts(remote)
    seconds = time.perf_counter() - started
    total, taken = facts.get("max_concurrent_envs"), facts.get("active_sessions")
    if total is not None:
        click.echo(printable(f"server: {taken} of {total} sessions open"))
    click.echo(printable(f"reached: {facts.get('name')} at {remote} in {_milliseconds(seconds)}"))
    return total if isinstance(total, int) else None


def _time_the_way(url: str, settings: dict[str, Any]) -> None:
    """Show what a message costs that the server answers at once: the way there and back."""
    with EnvClient(url, **settings) as client:
        client.state()
        times = []
        for _ in range(_ROUND_TRIPS):
            started = time.perf_counter()
            client.state()
            times.append(time.perf_counter() - started)
    click.echo(f"round trip: {_summary(times)}")


class _Visits:
    """Sessions side by side, each reset and then stepped so often.

    Args:
        pool: The sessions.
        steps: Steps of each; a session whose episode ends is reset in between.
        answer: What each step sends.
    """

    def __init__(self, pool: EnvPool, *, steps: int, answer: str) -> None:
        self.failures: list[EnvhostError] = []
        self.reset_seconds: list[float] = []
        self.step_seconds: list[float] = []
        self.stepping_seconds = 0.0
        self.rewards: list[float | None] = []
        self.verdicts: Counter[str] = Counter()
        self.prompt = ""
        self.facts: dict[str, Any] = {}
        self._pool = pool
        self._answer = answer
        self._steps = steps
        self._left: dict[int, int] = {}
        self._asked_at: dict[int, float] = {}
        self._seeds: dict[int, int] = {}

    def run(self, sessions: int, seed: int) -> None:
        """Open them all at once and play each to its end; one that fails stops alone."""
        for slot in range(sessions):
            self._seeds[slot] = seed + slot
            self._left[slot] = self._steps
            self._reset(slot)
        began = time.perf_counter()
        while self._pool.pending:
            for result in self._pool.poll(None):
                self._take(result, time.perf_counter())
                if result.kind == "step":
                    self.stepping_seconds = time.perf_counter() - began

    def _reset(self, slot: int) -> None:
        self._asked_at[slot] = time.perf_counter()
        self._pool.submit_reset(slot, seed=self._seeds[slot])

    def _take(self, result: Result, now: float) -> None:
        slot = result.slot
        seconds = now - self._asked_at[slot]
        if result.error is not None:
            self.failures.append(result.error)
            return
        if result.kind == "reset":
            self.reset_seconds.append(seconds)
            if slot == 0:
                self.prompt, self.facts = result.prompt_or_observation, result.info
        else:
            self.step_seconds.append(seconds)
            self.rewards.append(result.reward)
            self.verdicts[str(result.info.get("verdict", "none"))] += 1
            self._left[slot] -= 1
        if not self._left[slot]:
            return
        if result.terminated or result.truncated:
            self._reset(slot)
        else:
            self._asked_at[slot] = time.perf_counter()
            self._pool.submit(slot, self._answer)


# -- the answers ------------------------------------------------------------------------------


def _show(visits: _Visits, sessions: int) -> None:
    click.echo(f"sessions: {sessions - len(visits.failures)} of {sessions} without a failure")
    if visits.reset_seconds:
        click.echo(f"reset: {_summary(visits.reset_seconds)}")
    if visits.step_seconds:
        count, seconds = len(visits.step_seconds), visits.stepping_seconds
        click.echo(f"step: {_summary(visits.step_seconds)}; {count / seconds:.1f} a second in all")
        verdicts = ", ".join(f"{name} {count}" for name, count in visits.verdicts.most_common())
        rewards = [reward for reward in visits.rewards if reward is not None]
        mean = f"{statistics.fmean(rewards):.3g}" if rewards else "none"
        click.echo(printable(f"verdicts: {verdicts}; mean reward {mean}"))
    facts = {key: value for key, value in visits.facts.items() if key != "observation"}
    if visits.facts:
        click.echo(printable(f"metadata: {facts}"))
        click.echo(printable(f"prompt: {visits.prompt[:_PROMPT_LENGTH]}"))


def _summary(seconds: Sequence[float]) -> str:
    if len(seconds) == 1:
        return _milliseconds(seconds[0])
    middle, most = statistics.median(seconds), max(seconds)
    return f"{_milliseconds(middle)} median, {_milliseconds(most)} at most, of {len(seconds)}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"
