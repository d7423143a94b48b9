"""The policy: loading, token logprobs, the adapter, and the quantised layers' trap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rltrain import policy as policy_module  # noqa: E402
from rltrain.batch import TrainingRow, make_batch  # noqa: E402
from rltrain.errors import SetupError  # noqa: E402
from rltrain.manifest import Algorithm, LoraConfig, Network  # noqa: E402
from rltrain.models import load_tokenizer, quantised_linears  # noqa: E402
from rltrain.policy import Policy, load_policy, read_adapter  # noqa: E402
from rltrain.rollout import Completion, Transcript  # noqa: E402

pytestmark = pytest.mark.train


def load(
    folder: Path, quantization: Any = "none", *, is_adapter_random: bool = True, **network: Any
) -> Policy:
    """Load the tiny policy; an adapter with weights of its own unless told otherwise."""
    policy = load_policy(
        Network(pretrained_model_name_or_path=str(folder), **network),
        Algorithm(quantization=quantization),
        device=torch.device("cpu"),
    )
    if is_adapter_random:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in policy.parameters():
                weight.add_(0.05 * torch.randn(weight.shape, generator=generator))
    return policy


def batch_of(*rows: tuple[list[int], list[int]]) -> Any:
    return make_batch(
        [
            TrainingRow(
                Transcript()
                .given(prompt)
                .sampled(
                    Completion(
                        key=0,
                        token_ids=sampled,
                        behaviour_logprobs=[0.0] * len(sampled),
                        finish="stop",
                    )
                ),
                1.0,
            )
            for prompt, sampled in rows
        ],
        pad_id=2,
    )


BATCH = batch_of(([5, 6, 7], [8, 9, 10, 2]), ([11, 12], [13, 2]), ([14], [15, 16]))


def gradient(policy: Policy, batch: Any = BATCH) -> Any:
    policy.model.zero_grad()
    policy.token_logprobs(batch, temperature=1.0).logprobs.sum().backward()
    return torch.cat([weight.grad.flatten() for weight in policy.parameters()])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_full_logits(tiny_model: Path, temperature: float) -> None:
    """Row by row and unpadded, log softmax of the model's own logits gives the same, to 1e-5."""
    policy = load(tiny_model)

    result = policy.token_logprobs(BATCH, temperature=temperature)

    for row in range(3):
        length = int(BATCH.attention_mask[row].sum())
        ids = BATCH.input_ids[row : row + 1, :length]
        logits = policy.forward(input_ids=ids, use_cache=False).logits[0, :-1] / temperature
        full = logits.log_softmax(-1)
        expected = full.gather(-1, ids[0, 1:, None])[:, 0]
        entropy = -(full.exp() * full).sum(-1)
        mask = BATCH.action_mask[row, : length - 1]
        assert torch.allclose(result.logprobs[row, : length - 1][mask], expected[mask], atol=1e-5)
        assert torch.allclose(result.entropy[row, : length - 1][mask], entropy[mask], atol=1e-5)
    assert not result.logprobs[~BATCH.action_mask].any()


def test_chunks_change_neither_values_nor_gradients(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits made three tokens at a time, and again in the backward pass, give the same."""
    policy = load(tiny_model)
    whole = policy.token_logprobs(BATCH, temperature=1.0).logprobs
    expected = gradient(policy)

    monkeypatch.setattr(policy_module, "CHUNK_ELEMENTS", 3 * policy._head.weight.shape[0])
    rows: list[int] = []
    policy._head.register_forward_hook(lambda *call: rows.append(len(call[2])))

    assert torch.allclose(policy.token_logprobs(BATCH, temperature=1.0).logprobs, whole, atol=1e-6)
    assert torch.allclose(gradient(policy), expected, atol=1e-5)
    assert rows
    assert max(rows) == 3


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8"])
def test_each_quantisation_loads_and_trains(tiny_model: Path, quantization: str) -> None:
    """Only the adapter's weights are trained, in fp32, and they get a gradient."""
    policy = load(tiny_model, quantization)

    assert gradient(policy).abs().sum() > 0
    names = [name for name, weight in policy.model.named_parameters() if weight.requires_grad]
    assert names
    assert all("lora_" in name for name in names)
    assert {weight.dtype for weight in policy.parameters()} == {torch.float32}


def test_an_evaluation_forward_leaves_the_nf4_gradient_alone(tiny_model: Path) -> None:
    """The gradient after generating is that of before, and every 4-bit layer has the guard."""
    policy = load(tiny_model, "nf4")
    before = gradient(policy)

    with policy.generating():
        policy.forward(input_ids=BATCH.input_ids, use_cache=False)

    assert torch.allclose(gradient(policy), before, rtol=1e-5, atol=1e-6)
    layers = quantised_linears(policy.model)
    assert layers
    assert not any(layer.support_avx512bf16_for_cpu for layer in layers)


def test_the_reference_is_the_base_without_the_adapter(tiny_model: Path) -> None:
    """A fresh adapter changes nothing; with weights of its own the reference stays."""
    fresh = load(tiny_model, is_adapter_random=False)
    changed = load(tiny_model)

    base = fresh.token_logprobs(BATCH, temperature=1.0).logprobs
    reference = changed.reference_logprobs(BATCH, temperature=1.0)

    assert torch.allclose(reference, base, atol=1e-6)
    assert not torch.allclose(
        changed.token_logprobs(BATCH, temperature=1.0).logprobs, base, atol=1e-2
    )
    assert not reference.requires_grad


def test_the_adapter_is_in_pefts_own_format(tiny_model: Path, tmp_path: Path) -> None:
    """Peft loads it over the plain base, with the same logits; so does our own loading."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    policy = load(tiny_model)
    policy.save_adapter(tmp_path / "adapter")
    ids = BATCH.input_ids[:1]
    expected = policy.forward(input_ids=ids, use_cache=False).logits

    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    theirs = PeftModel.from_pretrained(base, tmp_path / "adapter")
    again = load(tiny_model, is_adapter_random=False)
    again.set_adapter(read_adapter(tmp_path / "adapter"))

    assert torch.allclose(theirs(input_ids=ids).logits, expected, atol=1e-5)
    assert torch.equal(again.forward(input_ids=ids, use_cache=False).logits, expected)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ({"lora_config": LoraConfig(target_modules=("no_such",))}, "network.lora_config"),
        ({"max_context_length": 4096}, "expected at most 512"),
    ],
)
def test_settings_that_do_not_fit_the_model(
    tiny_model: Path, network: dict[str, Any], words: str
) -> None:
    """Unknown target modules and a context beyond the model's own are refused by name."""
    with pytest.raises(SetupError, match=words):
        load(tiny_model, **network)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    """A folder without a model is refused in one line."""
    with pytest.raises(SetupError, match="pretrained_model_name_or_path") as caught:
        load_tokenizer(str(tmp_path / "none"))

    assert "\n" not in str(caught.value)


def test_bad_quantisation_options_are_named(tiny_model: Path) -> None:
    """What BitsAndBytesConfig refuses is passed on."""
    with pytest.raises(SetupError, match=r"algorithm\.quantization"):
        load(tiny_model, {"load_in_4bit": True, "load_in_8bit": True})
