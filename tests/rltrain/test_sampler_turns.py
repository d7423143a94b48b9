"""Whose turn it is: the order in which memory changes hands, on a device that enforces it."""

from __future__ import annotations

import pytest

from rltrain.sampler.turns import Adapter, Turns

TRAINER, WEIGHTS, CACHE = 30, 40, 35
"""Sizes on a device of 80: trainer and engine do not fit, trainer and weights do."""


class Device:
    """Memory that refuses what does not fit."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: dict[str, int] = {}

    def take(self, name: str, size: int) -> None:
        assert name not in self.held, f"{name} is there already"
        self.held[name] = size
        assert self.used <= self.capacity, f"out of memory: {self.held}"

    def give(self, name: str) -> None:
        del self.held[name]

    @property
    def used(self) -> int:
        return sum(self.held.values())


class FakeEngine:
    """An engine with vLLM's rules; anything in the wrong order fails."""

    def __init__(self, device: Device) -> None:
        self.device = device
        device.take("weights", WEIGHTS)
        device.take("cache", CACHE)
        self.weights_are_true = True
        self.adapter: Adapter | None = None
        self.calls: list[str] = []
        self.fails_at = ""

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails_at:
            raise MemoryError(name)

    def sleep(self, level: int) -> None:
        self._call(f"sleep {level}")
        assert level in {1, 2}
        assert "weights" in self.device.held, "sleeps already"
        self.device.give("weights")
        if "cache" in self.device.held:
            self.device.give("cache")
        self.adapter = None
        self.weights_are_true = level == 1

    def release_cache(self) -> None:
        self._call("release cache")
        assert "weights" in self.device.held
        self.device.give("cache")

    def wake_up(self, tag: str) -> None:
        self._call(f"wake {tag}")
        if tag == "kv_cache":
            assert self.adapter is not None, "the adapter comes before the cache"
            self.device.take("cache", CACHE)
        else:
            self.device.take("weights", WEIGHTS)

    def reload_weights(self) -> None:
        self._call("reload")
        assert "weights" in self.device.held
        assert "cache" not in self.device.held, "the files are read before the cache takes memory"
        self.weights_are_true, self.adapter = True, None

    def add_adapter(self, adapter: Adapter) -> None:
        self._call(f"add {adapter.version}")
        assert "weights" in self.device.held
        self.adapter = adapter

    def generate(self, version: int) -> None:
        assert {"weights", "cache"} <= set(self.device.held), "asleep"
        assert self.weights_are_true, "the weights are rubbish"
        assert self.adapter == Adapter(version, f"/v{version}"), "a stale adapter"


class FakeTrainer:
    def __init__(self, device: Device, engine: FakeEngine) -> None:
        self.device = device
        self.engine = engine

    def leave(self) -> None:
        self.engine.calls.append("trainer leaves")
        self.device.give("trainer")

    def come_back(self) -> None:
        self.engine.calls.append("trainer back")
        self.device.take("trainer", TRAINER)

    def step(self) -> None:
        assert "trainer" in self.device.held, "the trainer is away"


def stage(level: int | None, capacity: int) -> tuple[Turns, FakeEngine, FakeTrainer]:
    device = Device(capacity)
    engine = FakeEngine(device)
    trainer = FakeTrainer(device, engine)
    if level in {None, 0}:
        device.take("trainer", TRAINER)
    turns = Turns(engine, trainer, level=level, memory_bytes=lambda: device.used)
    turns.train()
    return turns, engine, trainer


LEVELS = [(None, 105), (0, 105), (1, 80), (2, 80)]


@pytest.mark.parametrize(("level", "capacity"), LEVELS)
def test_each_level_keeps_the_order(level: int | None, capacity: int) -> None:
    """Three rounds: the trainer is there to train, all is awake to sample, the adapter is new."""
    turns, engine, trainer = stage(level, capacity)

    for version in (1, 2, 3):
        trainer.step()
        turns.generate(lambda version=version: Adapter(version, f"/v{version}"))
        engine.generate(version)
        turns.train()
    trainer.step()


def test_a_deep_sleep_goes_step_by_step() -> None:
    """Level 2, hand-written: the files are read between the weights' memory and the adapter."""
    turns, engine, _ = stage(2, 80)
    engine.calls.clear()

    turns.generate(lambda: Adapter(1, "/v1"))
    turns.train()

    assert engine.calls == [
        *("trainer leaves", "wake weights", "reload", "add 1", "wake kv_cache"),
        *("sleep 2", "trainer back"),
    ]


def test_without_sleep_only_the_adapter_moves() -> None:
    """Where nothing sleeps, nothing but the adapter changes."""
    turns, engine, _ = stage(None, 105)

    turns.generate(lambda: Adapter(1, "/v1"))
    turns.train()

    assert engine.calls == ["add 1"]


@pytest.mark.parametrize(
    ("level", "capacity", "expected"),
    [
        (None, 105, [105, 105, 105, 105]),
        (0, 105, [70, 105, 105, 70]),
        (1, 80, [30, 75, 75, 30]),
        (2, 80, [30, 75, 75, 30]),
    ],
)
def test_memory_is_measured_around_each_phase(
    level: int | None, capacity: int, expected: list[int]
) -> None:
    """Hand-computed: trainer 30, weights 40, cache 35."""
    turns, _, _ = stage(level, capacity)

    turns.generate(lambda: Adapter(1, "/v1"))
    turns.train()

    names = ("train_end", "generate_begin", "generate_end", "train_begin")
    assert turns.handover.memory_bytes == dict(zip(names, expected, strict=True))
    assert turns.handover.seconds >= 0


@pytest.mark.parametrize("fails_at", ["wake weights", "reload", "add 1", "wake kv_cache"])
def test_a_turn_that_fails_gives_the_device_back(fails_at: str) -> None:
    """Wherever waking up fails, the trainer is back afterwards, and the next turn works."""
    turns, engine, trainer = stage(2, 80)
    engine.fails_at = fails_at

    with pytest.raises(MemoryError):
        turns.generate(lambda: Adapter(1, "/v1"))
    turns.train()
    trainer.step()
    engine.fails_at = ""
    turns.generate(lambda: Adapter(2, "/v2"))
    engine.generate(2)


def test_the_adapter_is_written_while_the_trainer_is_there() -> None:
    """It is read from the trainer's own tensors."""
    turns, _, trainer = stage(1, 80)

    def write() -> Adapter:
        trainer.step()
        return Adapter(1, "/v1")

    turns.generate(write)


def test_the_engine_has_one_turn_at_a_time() -> None:
    """Two turns without the trainer's between them are a mistake of ours."""
    turns, _, _ = stage(1, 80)
    turns.generate(lambda: Adapter(1, "/v1"))

    with pytest.raises(AssertionError, match="already"):
        turns.generate(lambda: Adapter(2, "/v2"))
