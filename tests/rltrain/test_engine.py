"""Engines, beyond what `test_ranks` compares: refusals and the way from one to another."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rltrain import engine as engine_module  # noqa: E402
from rltrain.deepspeed_config import DeepSpeedSettings  # noqa: E402
from rltrain.engine import check_deepspeed  # noqa: E402
from rltrain.errors import SetupError  # noqa: E402

pytestmark = pytest.mark.train

SETTINGS = DeepSpeedSettings(stage=1, source="algorithm.deepspeed", options={})


def test_deepspeed_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for and not installed: where that was said, and what to do; else no matter."""
    monkeypatch.setattr(engine_module, "find_spec", lambda _: None)

    with pytest.raises(SetupError, match=r"algorithm\.deepspeed: DeepSpeed is not installed: pip"):
        check_deepspeed(SETTINGS)
    check_deepspeed(None)
