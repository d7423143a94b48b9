"""The page for a person who wants to see what goes on: `GET /`, and the facts behind it.

Owns what the page is told (`status`) and the policy under which a browser shows it. The page
itself is one static file, `page/status.html`, the same for everybody: it holds no facts, asks for
the token where one is needed, and fetches `/status.json` with it.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import re
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import trio
from attrs import asdict, frozen

from .admission import Slots
from .config import ServerConfig
from .environment import EnvironmentFactory
from .history import BIN_SECONDS
from .session import Session
from .telemetry import Telemetry, programs_running, recent_warnings
from .wire.auth import is_loopback
from .wire.http import HttpReply

__all__ = ["StatusPage"]

_ROWS = 100
_SLOWEST = 8
_WARNINGS = 12
_INLINE = re.compile(rb"<(style|script)>(.*?)</\1>", re.DOTALL)


@frozen(kw_only=True)
class StatusPage:
    """The page of one server; `started_at` is `time.monotonic`'s."""

    config: ServerConfig
    factory: EnvironmentFactory
    slots: Slots
    sessions: Mapping[str, Session]
    telemetry: Telemetry
    is_draining: Callable[[], bool]
    started_at: float

    @staticmethod
    def page(status: int = 200) -> HttpReply:
        """Return the page, 401 for somebody who has still to give the token."""
        headers = _headers()
        if status == 401:
            headers += (("WWW-Authenticate", 'Bearer realm="envhost"'),)
        return HttpReply(
            status=status,
            body=_html(),
            content_type="text/html; charset=utf-8",
            headers=headers,
        )

    def status(self) -> dict[str, Any]:
        """Return the facts: `GET /status.json`."""
        now = trio.current_time()
        about = self.factory.describe()
        history = self.telemetry.history
        return {
            "name": about.name,
            "description": about.description,
            "notes": about.notes,
            "isolation": about.isolation,
            "action_field": self.config.action_field,
            "keeps_programs": history.keeps_programs,
            "unix_time": time.time(),
            "uptime_seconds": time.monotonic() - self.started_at,
            "draining": self.is_draining(),
            "sessions_open": self.slots.taken,
            "sessions_total": self.slots.total,
            "sessions_listed": len(self.sessions),  # those that wait for a slot, too
            "sessions": self._rows(),
            "programs_running": programs_running.value,
            "steps": history.steps,
            "steps_per_second": history.steps_per_second(now),
            "verdicts": dict(history.verdicts),
            **self._timeline(),
            "slowest": [asdict(problem) for problem in history.slowest(_SLOWEST)],
            "failures": [asdict(failure) for failure in history.failures()],
            "conditions": self._conditions(about.isolation),
            "warnings": _last_warnings(),
        }

    def _timeline(self) -> dict[str, Any]:
        bins = self.telemetry.history.bins()
        return {
            "bin_seconds": BIN_SECONDS,
            "bins": [{"steps": one.steps, "verdicts": one.verdicts} for one in bins],
        }

    def _rows(self) -> list[dict[str, Any]]:
        """Return the sessions, those at work first; no more than a page can show."""
        shown = heapq.nsmallest(_ROWS, self.sessions.values(), key=lambda s: s.activity == "idle")
        # An episode's id is the client's own text, of any length; the page has no use for it.
        return [
            {name: value for name, value in session.row().items() if name != "episode_id"}
            for session in shown
        ]

    def _conditions(self, isolation: str) -> list[str]:
        """Return what an operator should know now, in words that say what to do."""
        counts = self.telemetry.counts()
        refused = counts["sessions_refused"][""]
        abandoned = counts["closes_abandoned"][""]
        unscored = self.telemetry.history.verdicts["IE"]
        errors = max(0, sum(counts.get("errors", {}).values()) - unscored)
        host = self.config.host
        is_open = self.config.token is None and not is_loopback(host)
        is_full = self.slots.taken >= self.slots.total
        is_bare = isolation.startswith("none")
        found = (
            (self.is_draining(), "The server is ending: sessions at rest are closed."),
            (is_bare, "Programs are not isolated: they run with the server's own rights."),
            (is_open, f"Whoever can reach {host} may run programs here: no token is asked for."),
            (is_full, "Every slot is taken: newcomers wait, then are refused."),
            (refused, f"Sessions refused: {refused}. Raise --max-concurrent-envs, or open fewer."),
            (unscored, f"Answers that could not be judged: {unscored}. The log says why."),
            (abandoned, f"Environments that hung while they were closed: {abandoned}."),
            (errors, f"Error replies sent: {errors}. The log says which."),
        )
        return [text for holds, text in found if holds]


def _last_warnings() -> list[dict[str, Any]]:
    """Return the last log lines that warn, newest first, equal ones once."""
    lines: dict[str, dict[str, Any]] = {}
    for unix_time, text in reversed(recent_warnings):
        line = lines.setdefault(text, {"text": text, "unix_time": unix_time, "times": 0})
        line["times"] += 1
    return list(lines.values())[:_WARNINGS]


@cache
def _html() -> bytes:
    return files(__package__).joinpath("page/status.html").read_bytes()


@cache
def _headers() -> tuple[tuple[str, str], ...]:
    """Return the headers of the page: its own script and style may run, and nothing else."""
    hashes = {
        name.decode(): base64.b64encode(hashlib.sha256(text).digest()).decode()
        for name, text in _INLINE.findall(_html())
    }
    policy = (
        "default-src 'none'",
        f"script-src 'sha256-{hashes['script']}'",
        f"style-src 'sha256-{hashes['style']}'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
    return (
        ("Content-Security-Policy", "; ".join(policy)),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Referrer-Policy", "no-referrer"),
    )
