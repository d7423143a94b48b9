"""The policy: a base model, quantised or not, with the LoRA adapter that is trained.

Owns token logprobs, the adapter and its files; it is the only module that knows peft. The base is
`models`' work. The same module object is sampled from and trained, so both are one policy.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from peft import LoraConfig as PeftConfig
from peft import get_peft_model, load_peft_weights, set_peft_model_state_dict
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .batch import Batch
from .errors import SetupError
from .manifest import Algorithm, LoraConfig, Network
from .models import first_line, load_base, load_tokenizer

__all__ = ["CHUNK_ELEMENTS", "Policy", "TokenLogprobs", "load_policy", "read_adapter"]

CHUNK_ELEMENTS = 2**26
"""Logits held at once: 256 MiB in fp32, 441 tokens at a vocabulary of 152,000."""

_ONE_THREAD_PARAMETERS = 5_000_000
"""Models below this use one thread of a CPU: their matrices are so small that threads mostly wait
for each other. On two cores that also ran programs, single runs: 3,303 tokens of a small model
sampled in 0.6 s with one thread and 6.6 s with two, an update on 128 rollouts of another in 4 s and
15 s."""


@frozen(eq=False)
class TokenLogprobs:
    """Per predicted token, [rows, length − 1]; 0 where the batch's action mask is False."""

    logprobs: Tensor
    entropy: Tensor


class Policy:
    """A causal language model with a LoRA adapter.

    Args:
        model: The peft model.
        tokenizer: The model's tokenizer.
        context_length: Tokens that prompt and answers may have together.
    """

    def __init__(self, model: Any, tokenizer: Any, *, context_length: int) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.context_length = context_length
        self.stop_ids = _stop_ids(model, tokenizer)
        self.pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        self._base = model.get_base_model()
        self._decoder = self._base.get_decoder()
        self._head = self._base.get_output_embeddings()

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        device: torch.device = self._head.weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The type of the activations."""
        dtype: torch.dtype = self._head.weight.dtype
        return dtype

    def parameters(self) -> list[nn.Parameter]:
        """Return what is trained: the adapter's matrices."""
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def frozen_tensors(self) -> list[Tensor]:
        """Return all that is not trained, also what a quantised weight keeps beside itself."""
        found: list[Tensor] = [*self.model.parameters(), *self.model.buffers()]
        for module in self.model.modules():
            weight, state = getattr(module, "weight", None), getattr(module, "state", None)
            quant_state = getattr(weight, "quant_state", None)
            holders = (quant_state, getattr(quant_state, "state2", None), weight, state)
            for holder in holders:
                values = vars(holder).values() if hasattr(holder, "__dict__") else ()
                found += [value for value in values if isinstance(value, Tensor)]
        return [tensor for tensor in found if not tensor.requires_grad]

    def forward(self, **inputs: Any) -> Any:
        """Run the model with its adapter; as the base model's own forward."""
        return self._base(**inputs)

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Switch to evaluation, without gradients or checkpointing, until the context ends."""
        was_training = self.model.training
        self.model.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.model.train(was_training)

    def token_logprobs(self, batch: Batch, *, temperature: float) -> TokenLogprobs:
        """Return log π of the sampled tokens, and the distribution's entropy (no gradient).

        Logits are divided by the temperature at which the tokens were sampled, in fp32. They are
        made for sampled tokens only and in chunks, which the backward pass makes again: a tensor
        of [tokens, vocabulary] never exists.
        """
        hidden = self._decoder(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            use_cache=False,
        ).last_hidden_state[:, :-1]  # [rows, length − 1, hidden]
        mask = batch.action_mask  # [rows, length − 1]
        sampled, targets = hidden[mask], batch.targets[mask]  # [tokens, hidden], [tokens]
        size = max(1, CHUNK_ELEMENTS // self._head.weight.shape[0])
        parts = [
            self._chunk(h, t, temperature, recompute=len(targets) > size)
            for h, t in zip(torch.split(sampled, size), torch.split(targets, size), strict=True)
        ]
        logprobs = torch.zeros(mask.shape, device=mask.device)  # [rows, length − 1]
        entropy = torch.zeros(mask.shape, device=mask.device)  # [rows, length − 1]
        logprobs = logprobs.masked_scatter(mask, torch.cat([part[0] for part in parts]))
        entropy = entropy.masked_scatter(mask, torch.cat([part[1] for part in parts]))
        return TokenLogprobs(logprobs, entropy)

    def _chunk(
        self, hidden: Tensor, targets: Tensor, temperature: float, *, recompute: bool
    ) -> tuple[Tensor, Tensor]:
        if recompute and torch.is_grad_enabled():
            result: tuple[Tensor, Tensor] = checkpoint(
                self._chosen, hidden, targets, temperature, use_reentrant=False
            )
            return result
        return self._chosen(hidden, targets, temperature)

    def _chosen(self, hidden: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        logits = self._head(hidden).float() / temperature  # [tokens, vocabulary]
        normaliser = logits.logsumexp(dim=-1)  # [tokens]
        chosen = logits.gather(-1, targets[:, None])[:, 0]  # [tokens]
        with torch.no_grad():
            expected = (torch.softmax(logits, dim=-1) * logits).sum(dim=-1)  # [tokens]
            entropy = normaliser - expected  # [tokens]
        return chosen - normaliser, entropy

    @torch.no_grad()
    def reference_logprobs(self, batch: Batch, *, temperature: float) -> Tensor:
        """Return the base model's logprobs of the sampled tokens, [rows, length − 1]."""
        with self.model.disable_adapter():
            return self.token_logprobs(batch, temperature=temperature).logprobs

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter in peft's own format."""
        with warnings.catch_warnings():
            # peft looks for the base's config on the hub to see whether its vocabulary grew.
            warnings.simplefilter("ignore")
            self.model.save_pretrained(folder, save_embedding_layers=False)

    def set_adapter(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the weights that `read_adapter` gave."""
        set_peft_model_state_dict(self.model, dict(weights))


def read_adapter(folder: Path) -> dict[str, Tensor]:
    """Return the weights that `Policy.save_adapter` wrote."""
    weights: dict[str, Tensor] = load_peft_weights(str(folder), device="cpu")
    return weights


def load_policy(network: Network, algorithm: Algorithm, *, device: torch.device) -> Policy:
    """Load the base model, quantise it, and put a fresh adapter on it.

    Weights are bf16 on a GPU and fp32 on a CPU; the adapter is fp32 on both.

    Raises:
        SetupError: The model does not exist, or its head is not a plain matrix product.
    """
    torch.manual_seed(algorithm.seed)
    tokenizer = load_tokenizer(network.pretrained_model_name_or_path)
    base = load_base(network.pretrained_model_name_or_path, algorithm.quantization, device)
    limit = getattr(base.config, "max_position_embeddings", None) or 2**20
    if network.max_context_length is not None and network.max_context_length > limit:
        raise SetupError(
            f"network.max_context_length: expected at most {limit}, the model's own, got "
            f"{network.max_context_length}"
        )
    if device.type == "cpu" and base.num_parameters() < _ONE_THREAD_PARAMETERS:
        torch.set_num_threads(1)
    model = _with_adapter(base, network.lora_config)
    if algorithm.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    policy = Policy(model, tokenizer, context_length=network.max_context_length or limit)
    _check_head(policy)
    return policy


def _with_adapter(base: Any, config: LoraConfig) -> Any:
    targets = config.target_modules
    try:
        return get_peft_model(
            base,
            PeftConfig(
                r=config.lora_r,
                lora_alpha=int(config.lora_alpha),
                lora_dropout=config.lora_dropout,
                target_modules=targets if isinstance(targets, str) else list(targets),
                task_type=config.task_type,
            ),
        )
    except ValueError as error:
        raise SetupError(f"network.lora_config: {first_line(error)}") from error


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end an answer: the tokenizer's, and those of the generation config."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    ids = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in [*ids, tokenizer.eos_token_id] if i is not None)


@torch.no_grad()
def _check_head(policy: Policy) -> None:
    """Refuse models whose logits are more than head(hidden): scaled or soft-capped ones."""
    ids = torch.arange(2, 10, device=policy.device)[None]  # [1, 8]
    own = policy.forward(input_ids=ids, use_cache=False).logits.float()  # [1, 8, vocabulary]
    base = policy.model.get_base_model()
    hidden = base.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    ours = base.get_output_embeddings()(hidden).float()  # [1, 8, vocabulary]
    if not torch.allclose(own, ours, rtol=1e-2, atol=1e-2):
        raise SetupError(
            "the model changes its logits after the output layer (soft-capping, scaling): "
            "rltrain cannot train it"
        )
