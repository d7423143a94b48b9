"""What environments return, brought into one shape."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import pytest
from PIL import Image

from envhost.environment import Observation, StepResult
from envhost.results import reset_result, step_result
from envhost.wire.codec import dump_json

TEXT = {"prompt": "hi", "truncated": False, "question": "", "answer": ""}


@pytest.mark.parametrize(
    ("value", "observation", "metadata"),
    [
        ("hi", TEXT, {}),
        (("hi", {"a": 1}), TEXT, {"a": 1}),
        (("hi",), TEXT, {}),
        (("hi", None), TEXT, {}),
        (({"prompt": "hi", "board": [1]}, {}), TEXT | {"board": [1]}, {}),
        ({"goal": "win", "text": "now"}, TEXT | {"prompt": "win\n\nnow", "goal": "win"}, {}),
        ({"problem": "1+1"}, TEXT | {"prompt": "1+1"}, {}),
        ({"board": [1]}, TEXT | {"prompt": ""}, {}),
        (7, TEXT | {"prompt": "7", "value": 7}, {}),
        (Observation({"prompt": "hi"}, {"a": 1}), {"prompt": "hi"}, {"a": 1}),
    ],
)
def test_a_reset_is_an_observation_with_or_without_an_info(
    value: Any, observation: dict[str, Any], metadata: dict[str, Any]
) -> None:
    """Texts, mappings and our own type."""
    result = reset_result(value)

    assert observation.items() <= dict(result.observation).items()
    assert result.metadata == metadata


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (("hi", 1, True, False, {"a": 1}), (1.0, True, False, {"a": 1})),
        (("hi", None, False, True, {}), (None, False, True, {})),
        (("hi", np.float32(0.5), np.bool_(True), False, None), (0.5, True, False, {})),
        (("hi", "2", 0, 0, {}), (2.0, False, False, {})),
        (("hi", 1, True, {}), (1.0, True, False, {})),
        (("hi", 1, True, {"TimeLimit.truncated": True}), (1.0, False, True, None)),
    ],
)
def test_a_step_is_a_tuple_of_five_or_four(value: Any, expected: tuple[Any, ...]) -> None:
    """Gymnasium's and Gym's, which tells a time limit in its info."""
    result = step_result(value)

    reward, terminated, truncated, metadata = expected
    assert (result.reward, result.terminated, result.truncated) == (reward, terminated, truncated)
    assert metadata is None or result.metadata == metadata
    assert result.observation["prompt"] == "hi"


def test_our_own_result_passes_as_it_is() -> None:
    """A `StepResult` is what it is."""
    mine = StepResult(observation={}, reward=None, terminated=False)

    assert step_result(mine) is mine


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (("hi", 1, True), "got a tuple of 3"),
        (["hi", 1, True, False, {}], "got list"),
        (None, "got NoneType"),
        (("hi", "much", True, False, {}), "expected a number as reward, got 'much'"),
        (("hi", [1], True, False, {}), r"got \[1\]"),
    ],
)
def test_anything_else_is_told(value: Any, words: str) -> None:
    """By what came."""
    with pytest.raises(TypeError, match=words):
        step_result(value)


def test_nothing_is_no_observation() -> None:
    """A reset that forgot its return."""
    with pytest.raises(TypeError, match="got NoneType"):
        reset_result(None)


def test_images_travel_as_pixels_or_data_urls() -> None:
    """Arrays become nested lists, PIL images the PNG that image processors take."""
    pixels = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    observation = {"text": "look", "screenshot": pixels, "image": Image.fromarray(pixels)}

    wire = json.loads(dump_json(reset_result((observation, {})).observation))

    assert wire["prompt"] == "look"
    assert wire["screenshot"] == pixels.tolist()
    head, _, data = wire["image"].partition(",")
    assert head == "data:image/png;base64"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), pixels)
