"""The HTTP pages beside the WebSocket: health, readiness, facts, metrics, live sessions, status.

Owns what each path answers. `/health` and `/readyz` tell nothing but their own state, since they
need no token; nothing of a model's text stands in any of them, but for the status page's failed
programs where programs are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from .admission import Slots
from .environment import EnvironmentFactory
from .session import Session
from .status_page import StatusPage
from .telemetry import Telemetry
from .wire.http import HttpReply, RequestHead

__all__ = ["OPEN_PATHS", "Pages"]

OPEN_PATHS = frozenset(("/health", "/readyz"))
"""Paths that need neither a token nor a known Host: load balancers and the tunnel's check."""

_STATELESS = frozenset(("/reset", "/step", "/state"))


@frozen(kw_only=True)
class Pages:
    """Answer plain HTTP requests about one server."""

    factory: EnvironmentFactory
    slots: Slots
    sessions: Mapping[str, Session]
    telemetry: Telemetry
    action_field: str
    is_draining: Callable[[], bool]
    status_page: StatusPage

    def answer(self, head: RequestHead) -> HttpReply:
        """Return the reply to a request that has been let in."""
        pages: dict[str, Callable[[], HttpReply]] = {
            "/": self.status_page.page,
            "/health": lambda: HttpReply.json({"status": "healthy"}),
            "/metadata": self._metadata,
            "/metrics": self._metrics,
            "/readyz": self._readyz,
            "/schema": self._schema,
            "/sessions": lambda: HttpReply.json([row.row() for row in self.sessions.values()]),
            "/status.json": lambda: HttpReply.json(self.status_page.status()),
        }
        page = pages.get(head.path)
        if page is None:
            hint = "; sessions live on the WebSocket at /ws" if head.path in _STATELESS else ""
            return HttpReply.text(404, f"no such page{hint}")
        if head.method not in {"GET", "HEAD"}:
            return HttpReply.text(405, "this page takes GET only", ("Allow", "GET, HEAD"))
        return page()

    def sign_in(self, head: RequestHead) -> HttpReply | None:
        """Return the page that asks for a token, if that is what a refused request was after."""
        wants_page = head.path == "/" and head.method in {"GET", "HEAD"} and not head.is_websocket
        return self.status_page.page(401) if wants_page else None

    def _readyz(self) -> HttpReply:
        if self.is_draining():
            return HttpReply.text(503, "draining")
        if self.slots.taken >= self.slots.total:
            return HttpReply.text(503, "full")
        return HttpReply.text(200, "ready")

    def _metadata(self) -> HttpReply:
        about = self.factory.describe()
        facts: dict[str, Any] = {
            "name": about.name,
            "description": about.description,
            "readme_content": None,
            "version": about.version,
            "author": None,
            "documentation_url": None,
            "max_concurrent_envs": self.slots.total,
            "active_sessions": self.slots.taken,
        }
        return HttpReply.json(facts)

    def _schema(self) -> HttpReply:
        text = {"type": "string"}
        observation = {
            "prompt": text,
            "truncated": {"type": "boolean"},
            "question": text,
            "answer": text,
        }
        state = {"episode_id": {"type": ["string", "null"]}, "step_count": {"type": "integer"}}
        schemas = {
            "action": _object({self.action_field: text}, self.action_field),
            "observation": _object(observation, "prompt"),
            "state": _object(state, "step_count"),
        }
        return HttpReply.json(schemas)

    def _metrics(self) -> HttpReply:
        return HttpReply(
            status=200,
            body=self.telemetry.exposition(),
            content_type="text/plain; version=0.0.4; charset=utf-8",
        )


def _object(properties: dict[str, Any], required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [required]}
