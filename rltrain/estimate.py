"""How much memory a run will want, from a model's shape and a manifest alone. Pure.

The parts are what is held at the same time at the worst moment of training, and of sampling with
Transformers. Weights, adapter and optimiser are exact; activations are an estimate to about a
factor of two, since they depend on which results a model's layers keep.
"""

from __future__ import annotations

from attrs import frozen

from .manifest import Manifest

__all__ = ["MemoryEstimate", "ModelShape", "estimate_memory"]

_PROMPT_TOKENS = 1024
"""A prompt's length is not known before: so much is assumed, less where the context is smaller."""

_BITS = {"nf4": 4 + 32 / 64, "int8": 8.0}
"""Of a quantised weight, with nf4's scale for each block of 64 and int8's for each row (little)."""


@frozen(kw_only=True)
class ModelShape:
    """What a config tells about a model.

    `block_weights` are those of linear layers inside the blocks, which quantisation shrinks;
    `adapter_weights` those that LoRA adds.
    """

    parameters: int
    block_weights: int
    adapter_weights: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    cache_values: int
    """Keys and values that one token leaves in one layer's cache."""
    context: int


@frozen(kw_only=True)
class MemoryEstimate:
    """Bytes, by what holds them."""

    weights: int
    optimiser: int
    """The adapter in fp32, its gradient, and Adam's two moments."""
    activations: int
    logits: int
    cache: int
    """Keys and values while sampling with Transformers; vLLM's memory is its own."""

    @property
    def total(self) -> int:
        """The worst moment: a backward pass, or the last token of a batch."""
        return self.weights + self.optimiser + max(self.activations + self.logits, self.cache)

    def __str__(self) -> str:
        parts = {
            "weights": self.weights,
            "adapter and optimiser": self.optimiser,
            "a backward pass": self.activations + self.logits,
            "sampling": self.cache,
        }
        listed = ", ".join(f"{name} {_size(value)}" for name, value in parts.items() if value)
        return f"about {_size(self.total)} at the worst moment ({listed})"


def estimate_memory(
    manifest: Manifest,
    shape: ModelShape,
    *,
    bytes_per_value: int,
    micro_batch_tokens: int,
    chunk_elements: int,
    wave_rows: int,
) -> MemoryEstimate:
    """Return what a run will want on its device.

    Args:
        manifest: The run.
        shape: Its model.
        bytes_per_value: Of a weight or activation that is not quantised.
        micro_batch_tokens: Tokens of a backward pass at most.
        chunk_elements: Logits held at once.
        wave_rows: Rows sampled at once.
    """
    algorithm = manifest.algorithm
    preset = algorithm.quantization if isinstance(algorithm.quantization, str) else "none"
    bits = _BITS.get(preset, 8.0 * bytes_per_value)
    rest = shape.parameters - shape.block_weights
    answer = algorithm.max_output_tokens or shape.context
    length = min(shape.context, (_PROMPT_TOKENS + answer) * manifest.environment.turns)
    rows = algorithm.micro_batch_size_per_gpu or max(1, micro_batch_tokens // length)
    tokens = min(rows, algorithm.rollouts) * length
    # A block keeps its input, norms, q, k, v, attention's result and the MLP's three products.
    of_block = tokens * (8 * shape.hidden + 4 * shape.intermediate) * bytes_per_value
    of_input = tokens * shape.hidden * bytes_per_value
    kept = (
        shape.layers * of_input + of_block
        if algorithm.gradient_checkpointing
        else shape.layers * of_block
    )
    sampled = 0 if algorithm.use_vllm else min(algorithm.rollouts, wave_rows)
    return MemoryEstimate(
        weights=int(shape.block_weights * bits / 8 + rest * bytes_per_value),
        optimiser=shape.adapter_weights * 4 * 4,
        activations=kept,
        logits=3 * 4 * min(chunk_elements, tokens * shape.vocabulary),
        cache=sampled * length * shape.layers * shape.cache_values * bytes_per_value,
    )


def _size(value: int) -> str:
    return f"{value / 2**30:.2f} GiB" if value >= 2**28 else f"{value / 2**20:.1f} MiB"
