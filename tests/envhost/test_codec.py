"""Bytes in, messages or `ProtocolError` out; anything in, one line of JSON out."""

from __future__ import annotations

import contextlib
import enum
import json
import math
import string
from random import Random
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from envhost.errors import ProtocolError
from envhost.wire.codec import (
    decode_reply,
    decode_request,
    dump_json,
    encode_reply,
    encode_request,
    reset_options,
    shorten,
    text_action,
)
from envhost.wire.messages import (
    CloseRequest,
    ErrorReply,
    McpReply,
    McpRequest,
    ObservationReply,
    Request,
    ResetRequest,
    StateReply,
    StateRequest,
    StepRequest,
)

REQUESTS = (ResetRequest, StepRequest, StateRequest, CloseRequest, McpRequest)
FUZZ_FRAMES = 100_000
INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | INT64
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=5)
requests = st.one_of(
    st.builds(ResetRequest, json_objects),
    st.builds(StepRequest, json_objects),
    st.just(StateRequest()),
    st.just(CloseRequest()),
    st.builds(McpRequest, json_objects),
)


def _code(frame: str | bytes) -> str:
    with pytest.raises(ProtocolError) as caught:
        decode_request(frame)
    return caught.value.code


# -- requests ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ('{"type":"reset"}', ResetRequest({})),
        ('{"type":"reset","data":null}', ResetRequest({})),
        ('{"type":"reset","data":{"seed":3}}', ResetRequest({"seed": 3})),
        ('{"data":{"message":"x"},"type":"step"}', StepRequest({"message": "x"})),
        ('{"type":"step","data":{}}', StepRequest({})),
        ('{"type":"state"}', StateRequest()),
        ('{"type":"state","data":{}}', StateRequest()),
        ('{"type":"close","data":null}', CloseRequest()),
        ('{"type":"mcp","data":{"id":1}}', McpRequest({"id": 1})),
        (' {"type":"state"}\n', StateRequest()),
    ],
)
def test_a_valid_frame_is_its_request(frame: str, expected: Request) -> None:
    """Each shape that clients send, with and without the optional data."""
    assert decode_request(frame) == expected


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("", "INVALID_JSON"),
        ("{", "INVALID_JSON"),
        ("nul", "INVALID_JSON"),
        ('{"type":"state"} {}', "INVALID_JSON"),
        ("[" * 100_000, "INVALID_JSON"),
        ('{"a":' * 100_000, "INVALID_JSON"),
        ("1" * 5000, "INVALID_JSON"),
        ("[]", "VALIDATION_ERROR"),
        ("null", "VALIDATION_ERROR"),
        ("NaN", "VALIDATION_ERROR"),
        ('"reset"', "VALIDATION_ERROR"),
        (b'{"type":"reset"}', "VALIDATION_ERROR"),
        ("{}", "UNKNOWN_TYPE"),
        ('{"type":null}', "UNKNOWN_TYPE"),
        ('{"type":{}}', "UNKNOWN_TYPE"),
        ('{"type":["reset"]}', "UNKNOWN_TYPE"),
        ('{"type":"RESET"}', "UNKNOWN_TYPE"),
        ('{"type":"observation","data":{}}', "UNKNOWN_TYPE"),
        ('{"type":"step"}', "VALIDATION_ERROR"),
        ('{"type":"step","data":null}', "VALIDATION_ERROR"),
        ('{"type":"step","data":"x"}', "VALIDATION_ERROR"),
        ('{"type":"reset","data":[]}', "VALIDATION_ERROR"),
        ('{"type":"reset","data":0}', "VALIDATION_ERROR"),
        ('{"type":"state","data":{"a":1}}', "VALIDATION_ERROR"),
        ('{"type":"close","data":[]}', "VALIDATION_ERROR"),
        ('{"type":"mcp"}', "VALIDATION_ERROR"),
        ('{"type":"reset","seed":3}', "VALIDATION_ERROR"),
        ('{"type":"reset","data":{},"id":3}', "VALIDATION_ERROR"),
    ],
)
def test_an_invalid_frame_has_its_code(frame: str | bytes, code: str) -> None:
    """Not JSON, no known type, a bad envelope: three codes, and never another exception."""
    assert _code(frame) == code


def test_unknown_keys_are_named_and_few_of_many() -> None:
    """A complaint about a million keys is still a short one: no reply outgrows its request."""
    frame = json.dumps({"type": "reset", **{f"key{n}": n for n in range(10_000)}})

    with pytest.raises(ProtocolError) as caught:
        decode_request(frame)

    assert "key0" in caught.value.message
    assert len(encode_reply(ErrorReply("VALIDATION_ERROR", caught.value.message))) < 1000
    assert len(json.dumps(caught.value.errors)) < 1000


@given(requests)
def test_requests_survive_the_wire(request: Request) -> None:
    """Decoding what was encoded gives the same request, for all JSON values."""
    assert decode_request(encode_request(request).decode()) == request


@given(json_values | st.text() | st.binary())
def test_any_frame_is_a_request_or_a_protocol_error(value: Any) -> None:
    """Text, bytes and any JSON document: nothing but a request or a ProtocolError comes out."""
    frame = value if isinstance(value, str | bytes) else json.dumps(value)
    with contextlib.suppress(ProtocolError):
        assert isinstance(decode_request(frame), REQUESTS)


def test_a_hundred_thousand_random_frames() -> None:
    """Mutated requests and garbage, the same in each run: a request or a ProtocolError."""
    random = Random(20)
    bases = [
        '{"type":"reset","data":{"seed":3,"episode_id":"a","evaluation":true}}',
        '{"type":"step","data":{"message":"print(1)\\n\\u00e9\\ud83d\\ude00"}}',
        '{"type":"state"}',
        '{"type":"close","data":null}',
        '{"type":"mcp","data":{"jsonrpc":"2.0","id":1,"method":"tools/list"}}',
        '{"type":"step","data":{"a":[1,2.5e10,-0,true,null,{"b":[]}]}}',
    ]
    alphabet = string.printable + "\x00\u00e9\u2028\U0001f600"
    outcomes = {"request": 0, "INVALID_JSON": 0, "UNKNOWN_TYPE": 0, "VALIDATION_ERROR": 0}
    for _ in range(FUZZ_FRAMES):
        frame = _mutated(random, random.choice(bases), alphabet)
        try:
            request = decode_request(frame)
        except ProtocolError as error:
            outcomes[error.code] += 1
        else:
            assert isinstance(request, REQUESTS)
            outcomes["request"] += 1
    assert all(count > FUZZ_FRAMES // 1000 for count in outcomes.values()), outcomes


def _mutated(random: Random, frame: str, alphabet: str) -> str | bytes:
    kind = random.random()
    if kind < 0.05:
        return "".join(random.choices(alphabet, k=random.randrange(40)))
    if kind < 0.07:
        return random.randbytes(random.randrange(40))
    for _ in range(random.randrange(4)):
        at = random.randrange(len(frame) + 1)
        match random.randrange(5):
            case 0:  # put a character in
                frame = frame[:at] + random.choice(alphabet) + frame[at:]
            case 1:  # take one out
                frame = frame[:at] + frame[at + 1 :]
            case 2:  # replace one
                frame = frame[:at] + random.choice(alphabet) + frame[at + 1 :]
            case 3:  # put another value for a value
                values = ("NaN", "1e999", "[]", "{}", "null", '"\\ud800"', "-1", "9" * 30, "tru")
                old = random.choice(('"reset"', '"step"', "null", "3", "true", "{", '"a"'))
                frame = frame.replace(old, random.choice(values), 1)
            case _:  # repeat a part
                frame = frame[:at] + frame[at : at + random.randrange(20)] + frame[at:]
    return frame


# -- reset's arguments and actions ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", "7"),
        ("seed", 1.0),
        ("seed", True),
        ("seed", math.nan),
        ("row_index", [0]),
        ("evaluation", 1),
        ("evaluation", "yes"),
        ("episode_id", 7),
    ],
)
def test_a_reset_argument_of_a_wrong_type_is_named(name: str, value: Any) -> None:
    """Strict: no text for a number, no number for a boolean, no float for an integer."""
    with pytest.raises(ProtocolError, match=f"data.{name}: expected") as caught:
        reset_options({name: value, "other": object()})

    assert caught.value.errors[0]["loc"] == ["data", name]


def test_reset_arguments_pass() -> None:
    """Null is as good as absent, and what is not known passes unseen."""
    options = {"seed": 2**70, "row_index": None, "evaluation": True, "episode_id": "a", "x": [1]}

    assert reset_options(options) == options


def test_a_text_action_is_the_text() -> None:
    """The configured field's string; anything else names the field and what came."""
    assert text_action({"message": "é", "metadata": {}}, "message") == "é"
    for action in ({}, {"text": "a"}, {"message": 3}, {"message": None}, {"message": ["a"]}):
        with pytest.raises(ProtocolError, match="message") as caught:
            text_action(action, "message")
        assert caught.value.code == "VALIDATION_ERROR"


# -- replies -------------------------------------------------------------------------------------


def _observed(**observation: Any) -> dict[str, Any]:
    reply = ObservationReply(observation=observation, reward=None, done=False)
    value: dict[str, Any] = json.loads(encode_reply(reply))["data"]["observation"]
    return value


def test_metadata_stands_in_both_places() -> None:
    """Old clients read it beside the observation, newer ones inside."""
    reply = ObservationReply(
        observation={"prompt": "p"}, reward=1.0, done=True, metadata={"verdict": "AC"}
    )

    data = json.loads(encode_reply(reply))["data"]

    assert data["metadata"] == data["observation"]["metadata"] == {"verdict": "AC"}
    assert (data["reward"], data["done"]) == (1.0, True)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_no_number_is_null(reward: float) -> None:
    """NaN and infinities are never on the wire, whichever of the two writers is at work."""
    for text in ("a", "\ud800"):
        reply = ObservationReply(observation={"t": text, "x": [reward]}, reward=reward, done=True)

        data = json.loads(encode_reply(reply), parse_constant=pytest.fail)["data"]

        assert data["reward"] is None
        assert data["observation"]["x"] == [None]


@frozen
class _Point:
    x: int
    y: Any


class _Array:
    def tolist(self) -> list[int]:
        return [1, 2]


class _Colour(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({3}, [3]),
        ((1, 2), [1, 2]),
        (frozenset(("a",)), ["a"]),
        (_Point(1, {2}), {"x": 1, "y": [2]}),
        (_Array(), [1, 2]),
        (_Colour.RED, "red"),
        (ValueError("odd"), "odd"),
        (b"\xff", "/w=="),
        ({1: "a", None: "b"}, {"1": "a", "null": "b"}),
        (2**70, 2**70),
        ("\ud800", "\ud800"),
        ({"\udfff": [{1}]}, {"\udfff": [[1]]}),
        ([_Point(2**70, "\ud800")], [{"x": 2**70, "y": "\ud800"}]),
    ],
)
def test_what_is_no_json_becomes_json(value: Any, expected: Any) -> None:
    """Sets, attrs objects, arrays, enums, exceptions, big integers and lone surrogates."""
    assert json.loads(dump_json(value)) == expected


def test_a_value_nested_too_deeply_is_an_error_at_once() -> None:
    """A value that contains itself, even twice, is told in no time, not written for ever."""
    circle: list[Any] = []
    circle.extend((circle, circle))

    for value in (circle, {"a": circle}, _nested(2000)):
        with pytest.raises(ValueError, match="levels of nesting"):
            dump_json(value)
    assert json.loads(dump_json(_nested(90))) == _nested(90)


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@given(
    st.one_of(
        st.builds(StateReply, json_objects),
        st.builds(McpReply, json_objects),
        st.builds(
            ErrorReply,
            st.sampled_from(["EXECUTION_ERROR", "SESSION_ERROR"]),
            st.text(),
            st.fixed_dictionaries({"extra": json_values}),
        ),
    )
)
def test_replies_survive_the_wire(reply: StateReply | McpReply | ErrorReply) -> None:
    """Decoding what was encoded gives the same reply."""
    assert decode_reply(encode_reply(reply).decode()) == reply


@given(json_objects, st.none() | st.booleans() | st.floats(allow_nan=False), st.booleans())
def test_observations_survive_the_wire(
    observation: dict[str, Any], reward: float | None, done: bool
) -> None:
    """All but the metadata, which is added to the observation, and infinities."""
    reply = ObservationReply(observation=observation, reward=reward, done=done, metadata={"a": 1})

    decoded = decode_reply(encode_reply(reply).decode())

    assert isinstance(decoded, ObservationReply)
    finite = reward is None or math.isfinite(reward)
    assert decoded.reward == (reward if finite else None)
    assert decoded.done is done
    assert decoded.metadata == {"a": 1}
    assert decoded.observation == {**observation, "metadata": {"a": 1}}


@settings(max_examples=300)
@given(json_values | st.text() | st.binary())
def test_any_answer_is_a_reply_or_a_protocol_error(value: Any) -> None:
    """Whatever a server sends, our client gets a reply or a ProtocolError."""
    frame = value if isinstance(value, str | bytes) else json.dumps(value)
    with contextlib.suppress(ProtocolError):
        decode_reply(frame)


@pytest.mark.parametrize(
    ("data", "reward"),
    [
        ({"observation": {}, "reward": 1}, 1),
        ({"observation": {}, "reward": True}, True),
        ({"observation": {}, "reward": None}, None),
        ({"observation": None}, None),
        ({}, None),
    ],
)
def test_a_lenient_reader_of_observations(data: dict[str, Any], reward: float | None) -> None:
    """What other servers leave out is absent, not an error."""
    reply = decode_reply(json.dumps({"type": "observation", "data": data}))

    assert isinstance(reply, ObservationReply)
    assert reply.reward == reward


def test_a_reward_that_is_a_text_is_refused() -> None:
    """A reward is a number, or the frame is no reply."""
    with pytest.raises(ProtocolError, match=r"data\.reward"):
        decode_reply('{"type":"observation","data":{"observation":{},"reward":"1"}}')


@given(st.text() | json_values)
def test_a_shortened_value_is_short_and_printable(value: Any) -> None:
    """ASCII, no control characters, at most the width."""
    text = shorten(value, 30)

    assert len(text) <= 30
    assert text.isascii()
    assert text.isprintable()
