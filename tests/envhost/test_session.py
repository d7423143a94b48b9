"""One session over memory streams: every limit, every way to end, and what is left behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from peer import Closed, Peer, Script, bench, frame, text
from trio.testing import MockClock

from envhost.environment import Observation, StepResult, Traits
from envhost.errors import EpisodeError, NotScored, ProtocolError

RESET = {"type": "reset"}
STEP = {"type": "step", "data": {"message": "go"}}
STATE = {"type": "state"}

raised: list[Callable[[], BaseException]] = [
    lambda: SystemExit(3),
    KeyboardInterrupt,
    lambda: BaseExceptionGroup("many", [SystemExit(3), ValueError("one")]),
    GeneratorExit,
]


def _raising(make: Callable[[], BaseException]) -> Callable[[], Any]:
    async def act() -> Any:
        raise make()

    return act


def _returning(value: Any) -> Callable[[], Any]:
    async def act() -> Any:
        return value

    return act


async def _start(peer: Peer, name: str) -> None:
    """Send what makes the environment's method run."""
    before = {"build": [], "reset": [], "step": [RESET], "state": []}[name]
    for message in before:
        await peer.ask(message)
    if name != "build":
        await peer.send({"reset": RESET, "step": STEP, "state": STATE}[name])


# -- the ordinary course -------------------------------------------------------------------------


async def test_requests_are_answered_in_their_order(autojump_clock: MockClock) -> None:
    """Pipelined frames get their replies one by one; the state tells of the episode."""
    async with bench() as made:
        peer = await made.connect()
        reset = {"type": "reset", "data": {"seed": 3, "episode_id": "mine"}}
        await peer.send(STATE, reset, STEP, STEP, STATE, {"type": "close"})

        replies = [await peer.receive() for _ in range(5)]

        assert [reply["type"] for reply in replies] == [
            *("state", "observation", "observation", "observation", "state")
        ]
        assert replies[0]["data"] == {"tools": [], "episode_id": None, "step_count": 0}
        assert replies[1]["data"]["metadata"] == {"seed": 3}
        assert replies[4]["data"] == {"tools": [], "episode_id": "mine", "step_count": 2}
        assert await peer.close_code() == 1000
        await made.settle()
        assert made.closed_for("client closed") == 1


async def test_a_step_needs_a_running_episode(autojump_clock: MockClock) -> None:
    """Before the first reset and after the end the environment is not asked."""
    over = StepResult(observation={}, reward=0.5, terminated=True)
    async with bench(Script(step=_returning(over))) as made:
        peer = await made.connect()

        before = await peer.step()
        await peer.reset()
        last = await peer.step()
        after = await peer.step()

        assert last["data"]["done"] is True
        for reply in (before, after):
            assert reply["data"]["code"] == "EXECUTION_ERROR"
            assert "reset first" in reply["data"]["message"]
        assert made.script.events.count("step") == 1


async def test_truncated_stands_in_the_observation(autojump_clock: MockClock) -> None:
    """The end of an episode by truncation is done, and told where clients look for it."""
    cut = StepResult(observation={"prompt": ""}, reward=None, terminated=False, truncated=True)
    async with bench(Script(step=_returning(cut))) as made:
        peer = await made.connect()
        await peer.reset()

        data = (await peer.step())["data"]

        assert (data["done"], data["observation"]["truncated"]) == (True, True)


async def test_a_tool_probe_leaves_the_episode_alone(autojump_clock: MockClock) -> None:
    """Both forms of the probe get VALIDATION_ERROR and never reach the environment."""
    async with bench() as made:
        peer = await made.connect()
        await peer.reset()
        for action in (
            {"metadata": {}, "type": "list_tools"},
            {"metadata": {}, "type": "call_tool", "tool_name": "x", "arguments": {}},
        ):
            reply = await peer.ask({"type": "step", "data": action})
            assert reply["data"]["code"] == "VALIDATION_ERROR"
        reply = await peer.ask({"type": "mcp", "data": {"jsonrpc": "2.0", "id": 1}})
        assert reply["data"]["code"] == "VALIDATION_ERROR"

        assert "step" not in made.script.events
        assert (await peer.step())["data"]["reward"] == 1.0


async def test_options_that_a_reset_cannot_take_are_dropped(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As OpenEnv does; the log tells it once a session, shortly, however many there are."""
    async with bench() as made:
        peer = await made.connect()
        with caplog.at_level(logging.INFO, "envhost"):
            await peer.reset(seed=1, **{f"option{n}": n for n in range(1000)})
            reply = await peer.reset(seed=2, other=1)

        assert reply["data"]["metadata"] == {"seed": 2}
        lines = [m for m in caplog.messages if m.startswith("reset.options_dropped")]
        assert len(lines) == 1
        assert len(lines[0]) < 400


# -- what environments raise and return ------------------------------------------------------------


@pytest.mark.parametrize("name", ["reset", "step", "state"])
@pytest.mark.parametrize("make", raised)
async def test_an_exit_ends_that_session_only(
    autojump_clock: MockClock, name: str, make: Callable[[], BaseException]
) -> None:
    """SystemExit and its kin out of an environment are a SESSION_ERROR; others step on."""
    async with bench() as made:
        other, peer = await made.connect(), await made.connect()
        await other.reset()
        await peer.reset()
        made.script.acts[name] = _raising(make)

        await _start(peer, name)
        reply = await peer.receive()

        assert reply["data"]["code"] == "SESSION_ERROR"
        assert await peer.close_code() == 1000
        del made.script.acts[name]
        assert (await other.step())["data"]["reward"] == 1.0
        await made.settle()
        assert made.slots.taken == 1


@pytest.mark.parametrize("make", [*raised, lambda: OSError("disk")])
async def test_a_factory_that_raises_leaks_no_slot(
    autojump_clock: MockClock, make: Callable[[], BaseException]
) -> None:
    """FACTORY_ERROR with the factory's name, time to read it, and the slot comes back."""
    async with bench(Script(build=_raising(make)), slots=1) as made:
        for _ in range(3):
            peer = await made.connect()
            reply = await peer.receive()
            assert reply["data"]["code"] == "FACTORY_ERROR"
            assert reply["data"]["factory_name"] == "script"
            assert await peer.close_code() == 1000
            await made.settle()
            assert made.slots.taken == 0


@pytest.mark.parametrize("make", [*raised, lambda: OSError("disk")])
async def test_a_close_that_raises_ends_nothing_else(
    autojump_clock: MockClock, make: Callable[[], BaseException]
) -> None:
    """Whatever comes out of close, the slot comes back and the session ends in order."""
    async with bench(Script(close=_raising(make))) as made:
        peer = await made.connect()
        await peer.reset()

        await peer.send({"type": "close"})

        assert await peer.close_code() == 1000
        await made.settle()
        assert made.slots.taken == 0


async def _exit_when_cancelled() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit(3)


@pytest.mark.parametrize("name", ["build", "reset", "step", "state"])
async def test_an_exit_beside_a_cancellation_ends_that_session_only(
    autojump_clock: MockClock, name: str
) -> None:
    """A disconnect that makes an environment raise SystemExit, in a group, is no more than that."""
    async with bench(Script(**{name: _exit_when_cancelled})) as made:
        peer = await made.connect()
        await _start(peer, name)
        await made.settle(name)

        await peer.drop()

        await made.settle()
        assert not made.sessions
        assert made.closed_for("disconnected") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reset", {"prompt": "a"}),
        ("reset", Observation({}, 3)),  # type: ignore[arg-type]
        ("reset", Observation(3)),  # type: ignore[arg-type]
        ("step", ({}, 1.0, True)),
        ("step", StepResult(observation=[1], reward=1.0, terminated=True)),  # type: ignore[arg-type]
        ("step", StepResult(observation={}, reward=1.0, terminated=True, metadata=[1])),  # type: ignore[arg-type]
        ("step", StepResult(observation={}, reward=1.0, terminated=True, metadata={"verdict": []})),
        ("state", [1]),
        ("state", "state"),
    ],
)
async def test_a_result_of_a_wrong_type_is_an_error_reply(
    autojump_clock: MockClock, name: str, value: Any
) -> None:
    """An environment's mistake is told to its user with type and place; the socket stays open."""
    async with bench(Script(**{name: _returning(value)})) as made:
        peer = await made.connect()
        await _start(peer, name)

        reply = await peer.receive()

        if reply["type"] == "error":
            assert reply["data"]["code"] == "EXECUTION_ERROR"
            assert "log reference" in reply["data"]["message"]
        del made.script.acts[name]
        assert (await peer.reset())["type"] == "observation"


async def test_a_reset_that_lacks_an_argument_is_an_error_reply(autojump_clock: MockClock) -> None:
    """A required argument that the client left out is named, and the session goes on."""

    class Demanding:
        async def reset(self, *, level: int) -> Observation:
            return Observation({"level": level})

        async def close(self) -> None:
            made.script.living -= 1

    async with bench(Script(build=_returning(Demanding()))) as made:
        peer = await made.connect()

        reply = await peer.reset()

        assert reply["data"]["code"] == "EXECUTION_ERROR"
        assert "'level'" in reply["data"]["message"]
        assert (await peer.reset(level=3))["data"]["observation"]["level"] == 3


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (NotScored("worker lost", {"verdict": "IE"}), "EXECUTION_ERROR", "not scored: worker lost"),
        (EpisodeError("reset first"), "EXECUTION_ERROR", "reset first"),
        (ProtocolError("VALIDATION_ERROR", "too long"), "VALIDATION_ERROR", "too long"),
        (ValueError("odd\x1b[31m"), "EXECUTION_ERROR", "ValueError: odd"),
    ],
)
async def test_an_exception_is_a_reply_and_never_a_reward(
    autojump_clock: MockClock, error: Exception, code: str, words: str
) -> None:
    """Each kind has its code and its words; a bad action alone leaves the episode running."""
    async with bench(Script(step=_raising(lambda: error))) as made:
        peer = await made.connect()
        await peer.reset()

        data = (await peer.step())["data"]

        assert (data["code"], "reward" in data) == (code, False)
        assert words in data["message"]
        del made.script.acts["step"]
        again = await peer.step()
        assert (again["type"] == "observation") == (code == "VALIDATION_ERROR")


async def test_a_reply_that_no_json_can_hold_is_an_error_reply(autojump_clock: MockClock) -> None:
    """An observation that contains itself is told as such."""
    circle: dict[str, Any] = {}
    circle["self"] = circle
    async with bench(Script(reset=_returning(Observation(circle)))) as made:
        peer = await made.connect()

        reply = await peer.reset()

        assert reply["data"]["code"] == "EXECUTION_ERROR"
        assert "nesting" in reply["data"]["message"]


# -- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reset", "step", "state"])
async def test_a_request_over_its_limit_is_cancelled_and_told(
    autojump_clock: MockClock, name: str
) -> None:
    """The environment's work ends, the reply names the limit, the socket stays open."""
    script = Script(**{name: trio.sleep_forever})
    async with bench(script, **{f"{name}_seconds": 5.0}) as made:
        peer = await made.connect()
        started = trio.current_time()
        await _start(peer, name)

        data = (await peer.receive())["data"]

        assert 5.0 <= trio.current_time() - started < 5.3
        assert data["code"] == "EXECUTION_ERROR"
        assert data["message"] == f"{name} took longer than its limit of 5 s"
        assert script.events[-1] == f"{name} cancelled"
        del script.acts[name]
        assert "reset first" in (await peer.step())["data"]["message"]
        await peer.reset()
        assert (await peer.step())["data"]["reward"] == 1.0


async def test_construction_over_its_limit_is_a_factory_error(autojump_clock: MockClock) -> None:
    """The half-made environment is cancelled and the slot comes back."""
    async with bench(Script(build=trio.sleep_forever), construction_seconds=5.0) as made:
        peer = await made.connect()

        data = (await peer.receive())["data"]

        assert data["code"] == "FACTORY_ERROR"
        assert "limit of 5 s" in data["message"]
        assert made.script.events == ["build", "build cancelled"]
        assert await peer.close_code() == 1000


async def test_a_hanging_close_is_abandoned_and_counted(autojump_clock: MockClock) -> None:
    """The slot is held for the close's limit and not longer."""
    async with bench(Script(close=trio.sleep_forever), close_seconds=5.0) as made:
        peer = await made.connect()
        await peer.reset()
        await peer.drop()

        await trio.sleep(4.9)
        assert made.slots.taken == 1
        await trio.sleep(0.2)
        assert made.slots.taken == 0
        assert made.telemetry.registry.get_sample_value("envhost_closes_abandoned_total") == 1


async def test_the_idle_limit_closes_socket_and_environment(autojump_clock: MockClock) -> None:
    """It runs between requests only, and a request starts it anew."""

    async def think() -> None:
        await trio.sleep(20.0)

    async with bench(Script(step=think), idle_seconds=5.0) as made:
        peer = await made.connect()
        await peer.reset()
        await trio.sleep(4.0)
        await peer.step()
        await trio.sleep(4.0)
        await peer.ask(STATE)
        started = trio.current_time()

        assert await peer.close_code() == 1001

        assert 5.0 <= trio.current_time() - started < 5.3
        assert made.script.events[-1] == "close"


async def test_the_lifetime_limit_waits_for_the_running_request(autojump_clock: MockClock) -> None:
    """A session that is too old is closed when its request is answered."""

    async def think() -> None:
        await trio.sleep(20.0)

    async with bench(Script(step=think), lifetime_seconds=5.0) as made:
        peer = await made.connect()
        await peer.reset()

        assert (await peer.step())["data"]["reward"] == 1.0
        assert await peer.close_code() == 1001


async def test_a_client_that_takes_no_reply_is_left(autojump_clock: MockClock) -> None:
    """A reply that cannot be sent within its limit ends the session and its environment."""
    async with bench(send_seconds=5.0, ping_interval_seconds=0.0) as made:
        peer = await made.connect(trio.testing.lockstep_stream_pair)
        await peer.send(RESET)

        await trio.sleep(4.9)
        assert made.slots.taken == 1
        await trio.sleep(1.5)
        assert made.slots.taken == 0
        assert made.closed_for("client does not take its reply") == 1


async def test_a_client_that_never_answers_a_ping_is_gone(autojump_clock: MockClock) -> None:
    """Interval and timeout pass, then the session ends, in mid-step too."""
    limits = {"ping_interval_seconds": 5.0, "ping_timeout_seconds": 10.0}
    async with bench(Script(step=trio.sleep_forever), **limits) as made:
        peer = await made.connect(answers_pings=False)
        await peer.reset()
        await peer.send(STEP)

        with trio.fail_after(16.0):
            assert await peer.close_code() is None

        assert peer.pings >= 2
        assert made.closed_for("ping timeout") == 1
        assert made.script.events[-2:] == ["step cancelled", "close"]


async def test_a_client_that_answers_pings_lives(autojump_clock: MockClock) -> None:
    """However long a step takes."""

    async def think() -> None:
        await trio.sleep(1000.0)

    limits = {"ping_interval_seconds": 5.0, "ping_timeout_seconds": 10.0}
    async with bench(Script(step=think), **limits) as made:
        peer = await made.connect()
        await peer.reset()

        assert (await peer.step())["data"]["reward"] == 1.0
        assert peer.pings > 100


async def test_pings_can_be_off(autojump_clock: MockClock) -> None:
    """With an interval of 0 no ping is sent and nobody is given up."""
    async with bench(ping_interval_seconds=0.0) as made:
        peer = await made.connect(answers_pings=False)
        await peer.reset()
        await trio.sleep(500.0)

        assert (await peer.step())["data"]["reward"] == 1.0
        assert peer.pings == 0


async def test_a_ping_due_as_the_session_ends_harms_nobody(autojump_clock: MockClock) -> None:
    """The watcher may call on a session whose nursery is already closing."""
    async with bench(Script(close=trio.sleep_forever), ping_interval_seconds=1.0) as made:
        peer = await made.connect()
        await peer.reset()
        (session,) = made.sessions
        await peer.drop()
        await made.settle("close")

        for seconds in range(100):
            session.tend(trio.current_time() + seconds)

        await trio.sleep(11.0)
        assert not made.sessions
        session.tend(trio.current_time() + 1000)
        assert made.closed_for("disconnected") == 1


async def test_a_client_ping_is_answered_in_mid_step(autojump_clock: MockClock) -> None:
    """The receive task runs all the time."""
    async with bench(Script(step=trio.sleep_forever), step_seconds=5.0) as made:
        peer = await made.connect()
        await peer.reset()
        await peer.send(STEP)
        await made.settle("step")
        started = trio.current_time()

        await peer.stream.send_all(frame(0x9, b"are you there"))
        await made.settle()

        assert trio.current_time() == started
        await peer.receive()
        assert peer.pongs == [b"are you there"]


async def test_too_many_requests_ahead_end_the_session(autojump_clock: MockClock) -> None:
    """The queue is bounded: one request more is 1008, and the running step is cancelled."""
    async with bench(Script(step=trio.sleep_forever), queued_requests=8) as made:
        peer = await made.connect()
        await peer.reset()
        await peer.send(STEP)
        await made.settle("step")
        await peer.send(*[STATE] * 8)
        await made.settle()
        assert made.slots.taken == 1

        await peer.send(STATE)

        assert await peer.close_code() == 1008
        await trio.sleep(1.1)
        assert made.closed_for("too many requests ahead") == 1
        assert "state" not in made.script.events


async def test_too_many_bytes_ahead_end_the_session(autojump_clock: MockClock) -> None:
    """Requests that wait may hold twice the size of one message, however few they are."""
    async with bench(Script(step=trio.sleep_forever), message_bytes=1000) as made:
        peer = await made.connect()
        await peer.reset()
        await peer.send(STEP)
        await made.settle("step")

        for _ in range(3):
            await peer.send({"type": "step", "data": {"message": "x" * 900}})

        assert await peer.close_code() == 1009


@pytest.mark.parametrize("parts", [1, 3, 50])
async def test_a_message_above_its_size_ends_the_session(
    autojump_clock: MockClock, parts: int
) -> None:
    """1009, whether it comes in one frame or in many; one byte less is taken."""
    async with bench(message_bytes=1000) as made:
        envelope = len(text({"type": "step", "data": {"message": ""}})) - 6
        for extra, is_taken in ((0, True), (1, False)):
            peer = await made.connect()
            await peer.reset()
            message = {"type": "step", "data": {"message": "x" * (1000 - envelope + extra)}}
            payload = text(message)[8:]
            assert len(payload) == 1000 + extra

            await peer.stream.send_all(_fragments(payload, parts))

            if is_taken:
                assert (await peer.receive())["data"]["reward"] == 1.0
            else:
                assert await peer.close_code() == 1009


def _fragments(payload: bytes, parts: int) -> bytes:
    size = -(-len(payload) // parts)
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)]
    frames = [
        frame(0x1 if n == 0 else 0x0, piece, final=n == len(pieces) - 1)
        for n, piece in enumerate(pieces)
    ]
    return b"".join(frames)


# -- frames ----------------------------------------------------------------------------------------


async def test_fragments_are_joined_around_pings_and_empty_frames(
    autojump_clock: MockClock,
) -> None:
    """A message may come in pieces, cut inside a character, with control frames between."""
    async with bench() as made:
        peer = await made.connect()
        payload = '{"type":"reset","data":{"seed":3,"x":"é"}}'.encode()
        cut = payload.index("é".encode()) + 1

        await peer.stream.send_all(frame(0x1, b"", final=False))
        await peer.stream.send_all(frame(0x0, payload[:cut], final=False))
        await peer.stream.send_all(frame(0x9, b"!"))
        await peer.stream.send_all(frame(0x0, b"", final=False) * 1000)
        await peer.stream.send_all(frame(0x0, payload[cut:]))

        assert (await peer.receive())["data"]["metadata"] == {"seed": 3}
        assert peer.pongs == [b"!"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(0x1, b"\xff\xfe"), 1007),
        (frame(0x1, "\ud800".encode("utf-8", "surrogatepass")), 1007),
        (frame(0x3, b""), 1002),
        (frame(0x0, b"a"), 1002),
        (frame(0x1, b"a", final=False) + frame(0x1, b"b"), 1002),
        (frame(0x9, b"x" * 126), 1002),
        (frame(0x9, b"", final=False), 1002),
        (b"\x81\x00", 1002),  # not masked
        (b"\xf1\x80\x00\x00\x00\x00", 1002),  # reserved bits
        (frame(0x8, b"\x03"), 1002),
    ],
)
async def test_a_frame_against_the_protocol_ends_the_session(
    autojump_clock: MockClock, data: bytes, code: int
) -> None:
    """At once, also right behind a good frame and from a client that then falls silent."""
    async with bench(ping_interval_seconds=0.0) as made:
        peer = await made.connect()
        await peer.reset()

        await peer.stream.send_all(text(STEP) + data)

        assert await peer.close_code() == code
        await trio.sleep(3.0)
        assert made.slots.taken == 0


async def test_a_binary_frame_is_answered_and_the_socket_stays_open(
    autojump_clock: MockClock,
) -> None:
    """VALIDATION_ERROR, and the next text frame is served."""
    async with bench() as made:
        peer = await made.connect()
        await peer.stream.send_all(frame(0x2, text(RESET)))

        assert (await peer.receive())["data"]["code"] == "VALIDATION_ERROR"
        assert (await peer.reset())["type"] == "observation"


async def test_random_bytes_after_the_handshake_leave_no_trace(
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A thousand clients that send garbage, whole frames of it or mutated ones: no traceback."""
    random = Random(7)
    good = [text(RESET), text(STEP), text(STATE), frame(0x9, b"x"), frame(0x8, b"\x03\xe8")]
    async with bench(slots=1000, refusal_hold_seconds=0.1) as made:
        for _ in range(1000):
            peer = await made.connect()
            data = bytearray(b"".join(random.choices(good, k=random.randrange(5))))
            for _ in range(random.randrange(4)):
                if data:
                    data[random.randrange(len(data))] = random.randrange(256)
            if random.random() < 0.5:
                data += random.randbytes(random.randrange(60))
            await peer.stream.send_all(bytes(data))
            if random.random() < 0.5:
                await peer.drop()
            else:
                made.nursery.start_soon(peer.close_code)
        await trio.sleep(5.0)
        assert not [record for record in caplog.records if record.exc_info]
        assert "step" in made.script.events


# -- disconnects -----------------------------------------------------------------------------------


@pytest.mark.parametrize("queued", [0, 20])
@pytest.mark.parametrize("name", ["build", "reset", "step", "state"])
async def test_a_disconnect_cancels_at_once(
    autojump_clock: MockClock, name: str, queued: int
) -> None:
    """Construction, reset, step and state end with the socket, however much waits behind them."""
    async with bench(Script(**{name: trio.sleep_forever})) as made:
        peer = await made.connect()
        await _start(peer, name)
        await made.settle(name)
        await peer.send(*[STATE] * queued)
        started = trio.current_time()
        states = made.script.events.count("state")

        await peer.drop()
        await made.settle(f"{name} cancelled")

        assert trio.current_time() == started
        assert made.script.events.count("state") == states
        assert not made.sessions
        assert ("close" in made.script.events) == (name != "build")
        assert made.slots.taken == 0


async def test_a_polite_goodbye_in_mid_step_cancels_too(autojump_clock: MockClock) -> None:
    """A close frame is as good as a lost socket; the client need not wait for the step."""
    async with bench(Script(step=trio.sleep_forever)) as made:
        peer = await made.connect()
        await peer.reset()
        await peer.send(STEP)
        await made.settle("step")

        await peer.stream.send_all(frame(0x8, b"\x03\xe8"))

        assert await peer.close_code() == 1000
        await made.settle("step cancelled")
        assert made.closed_for("client closed") == 1


async def test_the_environment_is_closed_exactly_once(autojump_clock: MockClock) -> None:
    """However the session ends."""
    endings: list[Callable[[Peer], Any]] = [
        lambda peer: peer.drop(),
        lambda peer: peer.send({"type": "close"}),
        lambda peer: peer.stream.send_all(frame(0x8, b"")),
        lambda peer: peer.stream.send_all(frame(0x3, b"")),
        lambda peer: peer.step(),
    ]
    async with bench() as made:
        for number, end in enumerate(endings, start=1):
            peer = await made.connect()
            await peer.reset()
            made.script.acts["step"] = _raising(lambda: SystemExit(1))
            await end(peer)
            await trio.sleep(10.0)
            assert made.script.events.count("close") == number


# -- admission -------------------------------------------------------------------------------------


async def test_a_newcomer_waits_for_a_slot_in_order(autojump_clock: MockClock) -> None:
    """First come, first served, within the waiting time."""
    async with bench(slots=1, admission_wait_seconds=5.0) as made:
        first = await made.connect()
        await first.reset()
        order: list[int] = []

        async def come(number: int, peer: Peer) -> None:
            await peer.reset()
            order.append(number)
            await peer.drop()

        async with trio.open_nursery() as nursery:
            for number in range(5):
                peer = await made.connect()
                await made.settle()
                nursery.start_soon(come, number, peer)
            await trio.sleep(4.0)
            assert order == []
            await first.drop()

        assert order == [0, 1, 2, 3, 4]
        assert made.script.most == 1


async def test_a_full_server_refuses_after_the_wait_and_holds(autojump_clock: MockClock) -> None:
    """The refusal says how many and what to raise; the socket stays until a frame, or the hold."""
    async with bench(slots=1, admission_wait_seconds=5.0, refusal_hold_seconds=2.0) as made:
        first = await made.connect()
        await first.reset()
        started = trio.current_time()
        silent, speaking = await made.connect(), await made.connect()

        refusal = await silent.receive()
        assert refusal["data"]["code"] == "CAPACITY_REACHED"
        assert refusal["data"]["message"].startswith("Server at capacity: 1/1 sessions active.")
        assert trio.current_time() - started == pytest.approx(5.0, abs=0.2)

        assert (await speaking.reset())["data"]["code"] == "CAPACITY_REACHED"
        assert await speaking.close_code() == 1000
        assert trio.current_time() - started == pytest.approx(5.0, abs=0.2)

        assert await silent.close_code() == 1000
        assert trio.current_time() - started == pytest.approx(7.0, abs=0.2)


async def test_without_a_wait_a_free_slot_is_taken(autojump_clock: MockClock) -> None:
    """A waiting time of 0 s refuses at a full server only."""
    async with bench(slots=1, admission_wait_seconds=0.0) as made:
        first = await made.connect()
        assert (await first.reset())["type"] == "observation"
        second = await made.connect()
        assert (await second.reset())["data"]["code"] == "CAPACITY_REACHED"


async def test_one_who_leaves_the_queue_costs_no_slot(autojump_clock: MockClock) -> None:
    """Waiting sessions that disconnect are forgotten."""
    async with bench(slots=1) as made:
        first = await made.connect()
        await first.reset()
        waiting = [await made.connect() for _ in range(10)]
        await made.settle()
        for peer in waiting[:9]:
            await peer.drop()
        await first.drop()

        assert (await waiting[9].reset())["type"] == "observation"
        assert made.script.events.count("build") == 2


async def test_no_more_environments_live_than_the_cap(autojump_clock: MockClock) -> None:
    """Slots are held from before construction until after close, both of them slow."""

    async def pause() -> None:
        await trio.sleep(1.0)

    script = Script(build=pause, close=pause)
    async with bench(script, slots=3, admission_wait_seconds=1000.0) as made:

        async def visit() -> None:
            peer = await made.connect()
            await peer.reset()
            await peer.drop()

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(visit)
        assert made.script.most == 3


# -- the end of the server ---------------------------------------------------------------------


async def test_draining_ends_idle_sessions_and_waits_for_steps(autojump_clock: MockClock) -> None:
    """Idle: 1001 at once. In mid-step: the reply first. Requests behind it are not begun."""

    async def think() -> None:
        await trio.sleep(5.0)

    async with bench(Script(step=think)) as made:
        idle, busy = await made.connect(), await made.connect()
        await idle.reset()
        await busy.reset()
        await busy.send(STEP, STATE)
        await made.settle("step")

        for session in made.sessions:
            session.drain()

        assert await idle.close_code() == 1001
        assert (await busy.receive())["data"]["reward"] == 1.0
        with pytest.raises(Closed) as closed:
            await busy.receive()
        assert closed.value.code == 1001
        assert "state" not in made.script.events


async def test_cancelling_a_session_closes_its_environment(autojump_clock: MockClock) -> None:
    """The server's last word: the step is cancelled and close still has its time."""

    async def pause() -> None:
        await trio.sleep(1.0)

    script = Script(step=trio.sleep_forever, close=pause)
    async with bench(script) as made:
        peer = await made.connect()
        await peer.reset()
        await peer.send(STEP)
        await made.settle("step")
    assert script.events == ["build", "reset", "step", "step cancelled", "close"]


# -- tools ----------------------------------------------------------------------------------------


class _Toolbox:
    """An environment with tools, of the native protocol."""

    traits = Traits(reset_options=frozenset(), is_text=False, has_tools=True)

    async def reset(self) -> Any:
        return {"tools": ["hammer"]}, {}

    async def step(self, action: Any) -> Any:
        return {"did": action["type"]}, 1, False, False, {}

    async def state(self) -> dict[str, Any]:
        return {"step_count": 40}

    async def mcp(self, call: Any) -> dict[str, Any]:
        return {"id": call["id"], "result": "bang"}

    async def close(self) -> None:
        pass


async def test_tools_are_reached_by_steps_and_by_mcp(autojump_clock: MockClock) -> None:
    """Listing needs no episode and is no step of one; the state is the environment's own."""

    async def build() -> Any:
        script.living -= 1  # not one of the script's
        return _Toolbox()

    script = Script(build=build)
    async with bench(script) as made:
        peer = await made.connect()
        listed = await peer.ask({"type": "step", "data": {"type": "list_tools"}})
        early = await peer.ask({"type": "step", "data": {"type": "call_tool"}})
        await peer.reset()
        called = await peer.ask({"type": "step", "data": {"type": "call_tool"}})
        answered = await peer.ask({"type": "mcp", "data": {"id": 3}})
        state = await peer.ask(STATE)
        await peer.drop()
        await made.settle()

    assert listed["data"]["observation"]["did"] == "list_tools"
    assert (listed["data"]["reward"], listed["data"]["done"]) == (None, False)
    assert "reset first" in early["data"]["message"]
    assert (called["data"]["observation"]["did"], called["data"]["reward"]) == ("call_tool", 1.0)
    assert answered == {"type": "mcp", "data": {"id": 3, "result": "bang"}}
    assert state["data"]["step_count"] == 40
    assert "tools" not in state["data"]
