"""What a run is said to need against what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rltrain.batch import TrainingRow, make_batch  # noqa: E402
from rltrain.estimate import MemoryEstimate, estimate_memory  # noqa: E402
from rltrain.manifest import Algorithm, Environment, LoraConfig, Manifest, Network  # noqa: E402
from rltrain.models import model_shape  # noqa: E402
from rltrain.policy import Policy, load_policy  # noqa: E402
from rltrain.rollout import Completion, Transcript  # noqa: E402

pytestmark = pytest.mark.train

ROWS, LENGTH = 6, 50


def manifest(folder: Path, **algorithm: Any) -> Manifest:
    return Manifest(
        algorithm=Algorithm(micro_batch_size_per_gpu=ROWS, **algorithm),
        environment=Environment(max_turns=1),
        network=Network(
            pretrained_model_name_or_path=str(folder),
            max_context_length=LENGTH,
            lora_config=LoraConfig(lora_r=4),
        ),
    )


def estimate(run: Manifest) -> MemoryEstimate:
    return estimate_memory(
        run,
        model_shape(run.network),
        bytes_per_value=4,
        micro_batch_tokens=10**6,
        chunk_elements=10**6,
        wave_rows=512,
    )


def policy_of(run: Manifest) -> Policy:
    return load_policy(run.network, run.algorithm, device=torch.device("cpu"))


def held(policy: Policy) -> tuple[int, int]:
    """Return the bytes of the base with its scales, and of the adapter."""
    trained = {id(weight) for weight in policy.parameters()}
    base = adapter = 0
    for weight in policy.model.parameters():
        size = weight.numel() * weight.element_size()
        state = getattr(weight, "quant_state", None)
        scales = (state.absmax, state.code) if state is not None else ()
        row_scales = getattr(weight, "SCB", None)
        scales = scales if row_scales is None else (*scales, row_scales)
        size += sum(tensor.numel() * tensor.element_size() for tensor in scales)
        if id(weight) in trained:
            adapter += size
        else:
            base += size
    return base, adapter


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_weights_and_adapter_are_exact(tiny_model: Path, quantization: str) -> None:
    """To 3 %, which is the tables of values and scales that do not grow with a model."""
    run = manifest(tiny_model, quantization=quantization)

    said = estimate(run)

    base, adapter = held(policy_of(run))
    assert said.weights == pytest.approx(base, rel=0.03)
    assert said.optimiser == 4 * adapter


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_backward_pass_is_estimated_to_a_factor_of_two(
    tiny_model: Path, checkpointing: bool
) -> None:
    """Against what autograd keeps of a forward pass; recomputed blocks keep their inputs only."""
    run = manifest(tiny_model, gradient_checkpointing=checkpointing)
    policy = policy_of(run)
    completion = Completion(
        key=0,
        token_ids=[7] * (LENGTH - 1),
        behaviour_logprobs=[-1.0] * (LENGTH - 1),
        finish="stop",
    )
    row = TrainingRow(Transcript().given([5]).sampled(completion), 1.0)
    batch = make_batch([row] * ROWS, pad_id=0)
    weights = {weight.data_ptr() for weight in policy.model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = policy.token_logprobs(batch, temperature=1.0)

    said = estimate(run)
    # A recomputed block's own results come and go in the backward pass: not among what was kept.
    of_block = ROWS * LENGTH * (8 * 64 + 4 * 128) * 4 if checkpointing else 0
    assert result.logprobs.requires_grad
    assert sum(kept.values()) / 2 < said.activations - of_block + said.logits
    assert said.activations - of_block + said.logits < sum(kept.values()) * 2


def test_vllm_samples_in_memory_of_its_own(tiny_model: Path) -> None:
    """Keys and values are Transformers' while it samples, and not counted otherwise."""
    transformers, vllm = (estimate(manifest(tiny_model, use_vllm=use)) for use in (False, True))

    assert transformers.cache > 0
    assert vllm.cache == 0
    assert "sampling" not in str(vllm)


def test_named_modules_count_alone(tiny_model: Path) -> None:
    """LoRA on two of a layer's matrices: r · (in + out) each, in both layers."""
    network = Network(
        pretrained_model_name_or_path=str(tiny_model),
        lora_config=LoraConfig(lora_r=8, target_modules=("q_proj", "down_proj")),
    )

    assert model_shape(network).adapter_weights == 2 * 8 * ((64 + 64) + (128 + 64))


def test_sizes_are_for_people() -> None:
    """MiB below a quarter of a GiB, GiB above; the worst moment is one of the two."""
    mib = 2**20
    said = MemoryEstimate(
        weights=1024 * mib, optimiser=16 * mib, activations=3 * mib, logits=1 * mib, cache=8 * mib
    )

    assert said.total == (1024 + 16 + 8) * mib
    assert str(said) == (
        "about 1.02 GiB at the worst moment (weights 1.00 GiB, adapter and optimiser 16.0 MiB, "
        "a backward pass 4.0 MiB, sampling 8.0 MiB)"
    )
