"""What the server tells about itself: metrics, and log lines of the form `name key=value`.

Owns prometheus_client, the log format and the session id that every line carries. Nothing of a
model's text is logged above DEBUG, and control characters never reach a terminal unescaped.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from typing import IO, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = [
    "Telemetry",
    "configure_logging",
    "log_event",
    "log_traceback",
    "printable",
    "session_id",
]

session_id: ContextVar[str] = ContextVar("session_id", default="")
"""Set before a session's nursery opens, so that every task of it inherits the id."""

_logger = logging.getLogger("envhost")
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)


class Telemetry:
    """The metrics of one server, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sessions_open = self._gauge("sessions_open", "Sessions that hold a slot")
        self.sessions_opened = self._counter("sessions_opened", "Sessions that got a slot")
        self.sessions_refused = self._counter("sessions_refused", "Sessions refused at capacity")
        self.sessions_closed = self._counter("sessions_closed", "Sessions ended", "reason")
        self.requests = self._counter("requests", "Requests answered", "type")
        self.errors = self._counter("errors", "Error replies sent", "code")
        self.verdicts = self._counter("verdicts", "Programs judged", "verdict")
        self.abandoned = self._counter("closes_abandoned", "Environments whose close hung")
        self.received_bytes = self._counter("received_bytes", "Bytes of requests")
        self.sent_bytes = self._counter("sent_bytes", "Bytes of replies")
        self.reset_seconds = self._histogram("reset_seconds", "Seconds of a reset")
        self.step_seconds = self._histogram("step_seconds", "Seconds of a step")
        self.queue_seconds = self._histogram("queue_seconds", "Seconds a program waited to run")
        self.sandbox_seconds = self._histogram("sandbox_seconds", "Seconds a program ran")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"envhost_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"envhost_{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"envhost_{name}", text, buckets=_SECONDS, registry=self.registry)

    def note_request(self, kind: str, seconds: float) -> None:
        """Count a reset or a step and the seconds it took."""
        self.requests.labels(kind).inc()
        (self.reset_seconds if kind == "reset" else self.step_seconds).observe(seconds)

    def note_verdict(self, metadata: Mapping[str, Any]) -> None:
        """Count what a judged step's metadata tells; nothing for other environments' steps."""
        verdict = metadata.get("verdict")
        if verdict is None:
            return
        self.verdicts.labels(verdict).inc()
        self.queue_seconds.observe(metadata.get("queue_seconds") or 0.0)
        self.sandbox_seconds.observe(metadata.get("wall_seconds") or 0.0)

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def log_event(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log one event as `event key=value …`; the session id is added where there is one."""
    if not _logger.isEnabledFor(level):
        return
    parts = [event]
    if current := session_id.get():
        parts.append(f"session={current}")
    parts += [f"{key}={_shown(value)}" for key, value in fields.items() if value is not None]
    _logger.log(level, "%s", " ".join(parts))


def log_traceback(event: str, error: BaseException, **fields: Any) -> None:
    """Log an event with the traceback of the error that caused it."""
    log_event(event, logging.ERROR, **fields)
    _logger.error("traceback of %s", event, exc_info=error)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    if text and text.isascii() and text.isprintable() and " " not in text and '"' not in text:
        return text
    return ascii(text)


def printable(text: str) -> str:
    """Return a text with control characters escaped, fit for a terminal; line ends too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def configure_logging(level: str, stream: IO[str] | None = None) -> None:
    """Send the log to a stream, standard error by default, one line an event."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    _logger.handlers[:] = [handler]
    _logger.setLevel(level.upper())
    _logger.propagate = False
