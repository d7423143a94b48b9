"""The trainer's tensors to the host and back: the same objects, values and sharing."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from rltrain.batch import TrainingRow, make_batch  # noqa: E402
from rltrain.engine import Engine  # noqa: E402
from rltrain.manifest import Algorithm, Network  # noqa: E402
from rltrain.parking import Parking  # noqa: E402
from rltrain.policy import Policy, load_policy  # noqa: E402
from rltrain.ranks import Ranks  # noqa: E402
from rltrain.rollout import Transcript  # noqa: E402

pytestmark = pytest.mark.train

CPU = torch.device("cpu")


def test_tensors_that_share_memory_go_on_sharing_it() -> None:
    """Views and strides of one block stay views of one block, in new memory each way."""
    block = torch.arange(12.0)
    view, transposed = block[2:8], block.view(3, 4).T
    before = block.data_ptr()
    parking = Parking([block, view, transposed], list, device=CPU)

    parking.leave()
    parked = block.data_ptr()
    parking.come_back()

    assert len({before, parked, block.data_ptr()}) == 3
    assert view.tolist() == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert transposed.tolist()[1] == [1.0, 5.0, 9.0]
    block[2] = 99.0
    assert view[0] == 99.0


def test_frozen_tensors_are_copied_once_and_others_each_time() -> None:
    """What changed between two turns is there after the second one."""
    frozen, changing = torch.zeros(3), torch.zeros(3)
    parking = Parking([frozen], lambda: [changing], device=CPU)
    parking.leave()
    first_copy = frozen.data_ptr()
    parking.come_back()
    changing += 1.0

    parking.leave()

    assert frozen.data_ptr() == first_copy
    assert changing.tolist() == [1.0, 1.0, 1.0]
    parking.come_back()
    assert changing.tolist() == [1.0, 1.0, 1.0]


def logprobs(policy: Policy) -> torch.Tensor:
    row = Transcript(tuple(range(5, 15)), (False, *[True] * 9), (0.0,) * 10)
    batch = make_batch([TrainingRow(row, 1.0)], pad_id=policy.pad_id)
    return policy.token_logprobs(batch, temperature=1.0).logprobs


def take_steps(policy: Policy, *, goes_away: bool) -> None:
    """Take three optimiser steps, with the trainer away before each of them if it goes away."""
    engine = Engine(policy.parameters(), Ranks(), max_grad_norm=1.0)
    parking = Parking(policy.frozen_tensors(), engine.tensors, device=CPU)
    for _ in range(3):
        if goes_away:
            everything = [*policy.frozen_tensors(), *engine.tensors()]
            before = [tensor.data_ptr() for tensor in everything]
            parking.leave()
            for tensor, place in zip(everything, before, strict=True):
                assert tensor.data_ptr() != place or not tensor.numel()
            parking.come_back()
        engine.backward(-logprobs(policy).sum(), is_last=True)
        engine.step(1e-2)


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_a_trainer_that_goes_away_learns_the_same(tiny_model: Path, quantization: str) -> None:
    """Weights, quantised states, adapter, optimiser move; three steps are equal to the bit."""
    learned = []
    for goes_away in (False, True):
        policy = load_policy(
            Network(pretrained_model_name_or_path=str(tiny_model)),
            Algorithm(quantization=quantization),
            device=CPU,
        )
        take_steps(policy, goes_away=goes_away)
        learned.append([weight.clone() for weight in policy.parameters()])
    for one, other in zip(*learned, strict=True):
        assert torch.equal(one, other)
