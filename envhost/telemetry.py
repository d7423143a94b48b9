"""What the server tells about itself: metrics, and log lines of the form `name key=value`.

Owns prometheus_client, the log format and the session id that every line carries. Nothing of a
model's text is logged above DEBUG, and control characters never reach a terminal unescaped.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import IO, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from .history import History

__all__ = [
    "Telemetry",
    "configure_logging",
    "log_event",
    "log_traceback",
    "printable",
    "programs_running",
    "recent_warnings",
    "session_id",
]

session_id: ContextVar[str] = ContextVar("session_id", default="")
"""Set before a session's nursery opens, so that every task of it inherits the id."""

recent_warnings: deque[tuple[float, str]] = deque(maxlen=50)
"""The last log lines that warn, each with its Unix time; every server's page reads them."""

_logger = logging.getLogger("envhost")
_PLAIN = re.compile(r"[\w.:/,+@%-]*", re.ASCII)
_SECONDS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)


class _Reading(Collector):
    """A counter that is read when somebody asks."""

    def __init__(self, name: str, text: str, read: Callable[[], float]) -> None:
        self._name = name
        self._text = text
        self._read = read

    def collect(self) -> list[Metric]:
        return [CounterMetricFamily(self._name, self._text, self._read())]


class Tally:
    """A count of what is under way now, entered and left as a context."""

    def __init__(self) -> None:
        self.value = 0

    def __enter__(self) -> None:
        self.value += 1

    def __exit__(self, *_: object) -> None:
        self.value -= 1


programs_running = Tally()
"""Programs that run at this moment, in this process; every server's metrics read it."""


class Telemetry:
    """The metrics of one server, in a registry of its own, and its recent history.

    Args:
        keeps_programs: Whether the history may hold programs' text.
    """

    def __init__(self, *, keeps_programs: bool = False) -> None:
        self.registry = CollectorRegistry()
        self.history = History(keeps_programs=keeps_programs)
        # Plain numbers where every message counts: a Counter's lock is felt there.
        self.received_bytes = 0
        self.sent_bytes = 0
        self._bytes("received_bytes", "Bytes of requests", lambda: self.received_bytes)
        self._bytes("sent_bytes", "Bytes of replies", lambda: self.sent_bytes)
        running = self._gauge("programs_running", "Programs that run now")
        running.set_function(lambda: programs_running.value)
        self.sessions_open = self._gauge("sessions_open", "Sessions that hold a slot")
        self.sessions_opened = self._counter("sessions_opened", "Sessions that got a slot")
        self.sessions_refused = self._counter("sessions_refused", "Sessions refused at capacity")
        self.sessions_closed = self._counter("sessions_closed", "Sessions ended", "reason")
        self.errors = self._counter("errors", "Error replies sent", "code")
        self.verdicts = self._counter("verdicts", "Programs judged", "verdict")
        self.abandoned = self._counter("closes_abandoned", "Environments whose close hung")
        self.reset_seconds = self._histogram("reset_seconds", "Seconds of a reset")
        self.step_seconds = self._histogram("step_seconds", "Seconds of a step")
        self.queue_seconds = self._histogram("queue_seconds", "Seconds a program waited to run")
        self.sandbox_seconds = self._histogram("sandbox_seconds", "Seconds a program ran")

    def _bytes(self, name: str, text: str, read: Callable[[], float]) -> None:
        self.registry.register(_Reading(f"envhost_{name}", text, read))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"envhost_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"envhost_{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"envhost_{name}", text, buckets=_SECONDS, registry=self.registry)

    def note_verdict(self, metadata: Mapping[str, Any]) -> None:
        """Count what a judged step's metadata tells; nothing for other environments' steps."""
        verdict = metadata.get("verdict")
        if verdict is None:
            return
        self.verdicts.labels(verdict).inc()
        self.queue_seconds.observe(metadata.get("queue_seconds") or 0.0)
        self.sandbox_seconds.observe(metadata.get("wall_seconds") or 0.0)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return every counter by its name, and in it by its label; `""` where there is none."""
        found: dict[str, dict[str, int]] = {}
        for metric in self.registry.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    label = ",".join(sample.labels.values())
                    name = sample.name.removeprefix("envhost_").removesuffix("_total")
                    found.setdefault(name, {})[label] = int(sample.value)
        return found

    def exposition(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


def log_event(event: str, level: int = logging.INFO, **fields: Any) -> None:
    """Log one event as `event key=value …`; the session id is added where there is one."""
    if not _logger.isEnabledFor(level):
        return
    line = event
    if current := session_id.get():
        line += f" session={current}"
    for key, value in fields.items():
        if value is not None:
            line += f" {key}={_shown(value)}"
    if level >= logging.WARNING:
        recent_warnings.append((time.time(), line))
    # What Logger.log does beyond this, finding the caller, takes as long as all the rest.
    _logger.handle(logging.LogRecord(_logger.name, level, "", 0, line, None, None))


def log_traceback(event: str, error: BaseException, **fields: Any) -> None:
    """Log an event with the traceback of the error that caused it."""
    log_event(event, logging.ERROR, **fields)
    _logger.error(f"traceback of {event}", exc_info=error)  # noqa: G004 - our formatter takes no args


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else ascii(text)


def printable(text: str) -> str:
    """Return a text with control characters escaped, fit for a terminal; line ends too."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class _Formatter(logging.Formatter):
    """`HH:MM:SS message`; the clock's text is made once a second, not once a line.

    Tracebacks are set off: an exception's text must not pass for log lines or steer a terminal.
    """

    _second = 0
    _clock = ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second = second
            self._clock = time.strftime("%H:%M:%S", time.localtime(second))
        line = f"{self._clock} {record.getMessage()}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line

    def formatException(self, *exc_info: Any) -> str:  # noqa: N802 - logging's own name
        lines = super().formatException(*exc_info).split("\n")
        return "\n".join(f"  | {printable(line)}" for line in lines)


def configure_logging(level: str, stream: IO[str] | None = None) -> None:
    """Send the log to a stream, standard error by default, one line an event."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Formatter())
    _logger.handlers[:] = [handler]
    _logger.setLevel(level.upper())
    _logger.propagate = False
