"""Requests answered by one environment: the boundary where whatever it raises becomes a reply.

Owns the state of the running episode. Knows no socket and no limit: a request comes in, a reply
goes out, and cancelling the caller cancels the environment's work.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import trio

from .environment import Environment, Observation, StepResult, traits_of
from .errors import EpisodeError, NotScored, ProtocolError
from .results import reset_result, step_result
from .telemetry import Telemetry, log_event, log_traceback, session_id
from .wire.codec import reset_options, shorten
from .wire.messages import (
    ErrorCode,
    ErrorReply,
    McpReply,
    McpRequest,
    ObservationReply,
    Reply,
    ResetRequest,
    StateReply,
    StateRequest,
    StepRequest,
)

__all__ = ["Episode", "failure_reply", "guarded", "limit_reply", "protocol_error_reply"]

T = TypeVar("T")
_NOT_SCORED = "not scored: "
_LABEL_LENGTH = 80
_TOOL_CALLS = frozenset(("list_tools", "call_tool"))


class Episode:
    """Answer requests with one environment, one at a time.

    Args:
        environment: The session's own environment; the caller closes it.
        telemetry: Where counts and times go.
    """

    def __init__(self, environment: Environment, telemetry: Telemetry) -> None:
        self.activity = "idle"
        self.episode_id: str | None = None
        self.step_count = 0
        self.steps = 0  # over all episodes of the session
        self.problem_id = ""
        self.last_verdict = ""
        self._running = False
        self._environment = environment
        self._traits = traits_of(environment)
        self._telemetry = telemetry
        self._dropped_told = False

    async def answer(
        self, request: ResetRequest | StepRequest | StateRequest | McpRequest
    ) -> Reply:
        """Return the reply to a request; no exception of the environment's comes out."""
        try:
            match request:
                case StepRequest():
                    return await self._step(request)
                case ResetRequest():
                    return await self._reset(request)
                case StateRequest():
                    return await self._state()
                case McpRequest():
                    return await self._mcp(request)
        except ProtocolError as error:
            return protocol_error_reply(error)
        except Exception as error:  # noqa: BLE001 - what it returned cannot be read
            self._running = False
            return failure_reply(self.activity, error)

    async def _reset(self, request: ResetRequest) -> Reply:
        self.activity = "reset"
        options = self._known_options(reset_options(request.options))
        started = trio.current_time()
        self._running = False
        result = await guarded("reset", partial(self._reset_once, options), Observation)
        seconds = trio.current_time() - started
        self._telemetry.reset_seconds.observe(seconds)
        if isinstance(result, ErrorReply):
            return result
        self.episode_id = request.options.get("episode_id") or secrets.token_hex(8)
        self.step_count = 0
        self._running = True
        facts = result.metadata
        self.problem_id = _label(facts.get("problem_id"))
        log_event(
            "reset",
            seed=facts.get("seed"),
            row=facts.get("row_index"),
            split=facts.get("split"),
            seconds=seconds,
        )
        return ObservationReply(
            observation=result.observation, reward=None, done=False, metadata=facts
        )

    async def _reset_once(self, options: Mapping[str, Any]) -> Observation:
        return reset_result(await self._environment.reset(**options))

    async def _step_once(self, action: Mapping[str, Any]) -> StepResult:
        return step_result(await self._environment.step(action))

    async def _mcp(self, request: McpRequest) -> Reply:
        self.activity = "mcp"
        answer: Any = getattr(self._environment, "mcp", None)
        if not self._traits.has_tools or answer is None:
            return ErrorReply("VALIDATION_ERROR", "this environment has no tools")
        response = await guarded("mcp", partial(answer, request.call), Mapping)
        return response if isinstance(response, ErrorReply) else McpReply(response)

    def limit_reached(self, limit_seconds: float) -> Reply:
        """Return the reply to a request that was cancelled at its limit; the episode is over."""
        what = self.activity
        self.activity = "idle"
        self._running = False
        return limit_reply(what, limit_seconds)

    def _known_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        accepted = self._traits.reset_options
        if accepted is None:
            return dict(options)
        unknown = options.keys() - accepted - {"episode_id"}
        if unknown and not self._dropped_told:
            self._dropped_told = True
            log_event("reset.options_dropped", names=shorten(sorted(unknown), 200))
        return {name: value for name, value in options.items() if name in accepted}

    async def _step(self, request: StepRequest) -> Reply:
        self.activity = "step"
        kind = (
            request.action.get("type") if self._traits.is_text or self._traits.has_tools else None
        )
        if kind in _TOOL_CALLS and not self._traits.has_tools:
            return ErrorReply("VALIDATION_ERROR", "this environment has no tools: send a message")
        is_listing = kind == "list_tools"  # which needs no episode, and is no step of one
        if not self._running and not is_listing:
            return ErrorReply("EXECUTION_ERROR", "no episode is running: reset first")
        started = trio.current_time()
        result = await guarded("step", partial(self._step_once, request.action), StepResult)
        seconds = trio.current_time() - started
        self._telemetry.step_seconds.observe(seconds)
        if is_listing:
            return result if isinstance(result, ErrorReply) else _listed(result)
        if isinstance(result, ErrorReply):
            # A bad action leaves the episode as it was; after any other failure it is over.
            self._running = result.code == "VALIDATION_ERROR"
            if result.message.startswith(_NOT_SCORED):
                self._note_verdict({"verdict": "IE"}, request)
            return result
        self.step_count += 1
        self.steps += 1
        self._running = not (result.terminated or result.truncated)
        self._telemetry.history.steps += 1
        if result.metadata.get("verdict") is not None:
            self._telemetry.note_verdict(result.metadata)
            self._note_verdict(result.metadata, request)
        log_event(
            "step",
            verdict=result.metadata.get("verdict"),
            tests=result.metadata.get("tests_run"),
            reward="none" if result.reward is None else result.reward,
            seconds=seconds,
        )
        observation = result.observation
        if result.truncated and not observation.get("truncated"):
            observation = {**observation, "truncated": True}
        return ObservationReply(
            observation=observation,
            reward=result.reward,
            done=not self._running,
            metadata=result.metadata,
        )

    def _note_verdict(self, metadata: Mapping[str, Any], request: StepRequest) -> None:
        self.last_verdict = _label(metadata["verdict"])
        self._telemetry.history.note_verdict(
            metadata,
            session=session_id.get(),
            problem_id=self.problem_id,
            answer=request.action.get("message"),
        )

    async def _state(self) -> Reply:
        self.activity = "state"
        state = await guarded("state", self._environment.state, Mapping)
        if isinstance(state, ErrorReply):
            return state
        # AgileRL takes the presence of `tools` as the mark of a text environment.
        ours: dict[str, Any] = {"tools": []} if self._traits.is_text else {}
        ours |= {"episode_id": self.episode_id, "step_count": self.step_count}
        return StateReply({**ours, **state})


def _listed(result: StepResult) -> ObservationReply:
    return ObservationReply(
        observation=result.observation, reward=None, done=False, metadata=result.metadata
    )


def _label(value: object) -> str:
    """Return what an environment calls by a name, short enough to show; empty for None."""
    return "" if value is None else str(value)[:_LABEL_LENGTH]


async def guarded(
    what: str, call: Callable[[], Awaitable[T]], expected: type[Any]
) -> T | ErrorReply:
    """Run one call of an environment; whatever it raises becomes an error reply.

    So does a result that is no instance of `expected`.
    """
    try:
        result = await call()
    except trio.Cancelled:
        raise
    except ProtocolError as error:
        return protocol_error_reply(error)
    except EpisodeError as error:
        return ErrorReply("EXECUTION_ERROR", str(error))
    except NotScored as error:
        log_event(f"{what}.not_scored", logging.WARNING, why=error)
        extra = {"metadata": error.metadata} if error.metadata else {}
        return ErrorReply("EXECUTION_ERROR", f"{_NOT_SCORED}{error}", extra)
    except BaseException as error:
        failure = _without_cancelled(error)
        if failure is None:
            raise
        reply = failure_reply(what, failure)
        await trio.lowlevel.checkpoint_if_cancelled()  # what was taken out of a group
        return reply
    if isinstance(result, expected):
        return result
    wrong = TypeError(f"expected {expected.__name__}, got {type(result).__name__}")
    return failure_reply(what, wrong)


def _without_cancelled(error: BaseException) -> BaseException | None:
    """Return what of an error is not our own cancellation."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1]
    return error


def limit_reply(what: str, limit_seconds: float) -> ErrorReply:
    """Log that a call was cancelled at its limit, and return the reply that says so."""
    log_event(f"{what}.limit", logging.WARNING, limit_seconds=limit_seconds)
    message = f"{what} took longer than its limit of {limit_seconds:g} s"
    return ErrorReply("EXECUTION_ERROR", message)


def failure_reply(what: str, error: BaseException) -> ErrorReply:
    """Log an error with its traceback and return a reply that names the place in the log."""
    reference = secrets.token_hex(3)
    log_traceback(f"{what}.failed", error, ref=reference)
    message = f"{what} failed with {type(error).__name__}: {error} (log reference {reference})"
    # SystemExit, KeyboardInterrupt: the environment wants to end, and ends its own session.
    ends_session = not isinstance(error, Exception)
    return ErrorReply("SESSION_ERROR" if ends_session else "EXECUTION_ERROR", message)


def protocol_error_reply(error: ProtocolError) -> ErrorReply:
    """Return the reply that tells a client of its own mistake."""
    extra = {"errors": error.errors} if error.errors else {}
    return ErrorReply(cast("ErrorCode", error.code), error.message, extra)
