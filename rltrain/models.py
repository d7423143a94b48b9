"""Models by hub id or folder: tokenizer, sizes, revision, and the base, quantised or not.

Owns what is read through Transformers, and bitsandbytes' options and its trap. What is trained on
top of a base is `policy`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from bitsandbytes.nn import Linear4bit  # type: ignore[attr-defined]  # it has no __all__
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from transformers.utils import logging as transformers_logging

from .errors import SetupError
from .estimate import ModelShape
from .manifest import Algorithm, Network

__all__ = [
    "compute_dtype",
    "first_line",
    "load_base",
    "load_tokenizer",
    "model_revision",
    "model_shape",
    "quantised_linears",
    "save_dequantised",
]


def load_tokenizer(name: str) -> Any:
    """Return the tokenizer of a hub id or folder.

    Raises:
        SetupError: There is none.
    """
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise SetupError(
            f"network.pretrained_model_name_or_path: no tokenizer at {name!r}: {first_line(error)}"
        ) from error


def model_shape(network: Network) -> ModelShape:
    """Return a model's sizes, from its config alone.

    Raises:
        SetupError: There is no such model.
    """
    name = network.pretrained_model_name_or_path
    try:
        config = AutoConfig.from_pretrained(name)
        make: Any = AutoModelForCausalLM.from_config
        with torch.device("meta"):
            model = make(config)
    except (OSError, ValueError) as error:
        raise SetupError(
            f"network.pretrained_model_name_or_path: no model at {name!r}: {first_line(error)}"
        ) from error
    lora, text = network.lora_config, config.get_text_config()
    linears = {
        path: module
        for path, module in model.get_decoder().named_modules()
        if isinstance(module, nn.Linear)
    }
    heads = text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
    limit = getattr(text, "max_position_embeddings", None) or 2**20
    return ModelShape(
        parameters=model.num_parameters(),
        block_weights=sum(module.weight.numel() for module in linears.values()),
        adapter_weights=sum(
            lora.lora_r * (module.in_features + module.out_features)
            for path, module in linears.items()
            if isinstance(lora.target_modules, str)
            or path.rpartition(".")[2] in lora.target_modules
        ),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=getattr(text, "intermediate_size", 4 * text.hidden_size),
        vocabulary=text.vocab_size,
        cache_values=2 * head_size * (getattr(text, "num_key_value_heads", None) or heads),
        context=min(limit, network.max_context_length or limit),
    )


def save_dequantised(
    network: Network, algorithm: Algorithm, *, device: torch.device, folder: Path
) -> None:
    """Write the base as `load_base` quantises it, with the weights that are left of it.

    Raises:
        SetupError: The model does not exist.
    """
    base = load_base(network.pretrained_model_name_or_path, algorithm.quantization, device)
    base.dequantize(dtype=compute_dtype(device))
    # Of several processes transformers lets rank 0 alone write; here it is whoever holds the lock.
    base.should_save_on_this_rank = lambda _: True
    base.save_pretrained(folder)


def model_revision(name: str) -> str:
    """Return what tells versions of a model apart: a commit, or the files' sizes and times.

    Raises:
        SetupError: There is no such model.
    """
    if Path(name).is_dir():
        kinds = {".safetensors", ".bin", ".json"}
        files = sorted(path for path in Path(name).iterdir() if path.suffix in kinds)
        stats = [(path.name, path.stat()) for path in files]
        return " ".join(f"{file}:{stat.st_size}:{stat.st_mtime_ns}" for file, stat in stats)
    try:
        return str(AutoConfig.from_pretrained(name)._commit_hash)  # noqa: SLF001 (no other name)
    except (OSError, ValueError) as error:
        raise SetupError(
            f"network.pretrained_model_name_or_path: no model at {name!r}: {first_line(error)}"
        ) from error


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return the type of weights and activations on a device."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def _quiet_transformers() -> None:
    transformers_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def load_base(name: str, quantization: str | Mapping[str, Any], device: torch.device) -> Any:
    """Load a model and quantise it.

    Weights that are not quantised are bf16 on a GPU and fp32 on a CPU.

    Raises:
        SetupError: The model does not exist, or bitsandbytes refuses the options.
    """
    _quiet_transformers()
    dtype = compute_dtype(device)
    options: dict[str, Any] = {"dtype": dtype, "device_map": {"": device}}
    if quantization != "none":
        options["quantization_config"] = _quantisation(quantization, dtype)
    try:
        base = AutoModelForCausalLM.from_pretrained(name, **options)
    except (OSError, ValueError, ImportError) as error:
        raise SetupError(
            f"network.pretrained_model_name_or_path: cannot load {name!r}: {first_line(error)}"
        ) from error
    for module in quantised_linears(base):
        # An evaluation forward would repack the weights for AVX512-BF16 and train() would not
        # undo it: gradients after it would be wrong by 80 %, silently.
        module.support_avx512bf16_for_cpu = False
    return base


def _quantisation(quantization: str | Mapping[str, Any], dtype: torch.dtype) -> Any:
    presets: dict[str, dict[str, Any]] = {
        "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        "int8": {"load_in_8bit": True},
    }
    options = presets[quantization] if isinstance(quantization, str) else quantization
    make: Any = BitsAndBytesConfig
    try:
        return make(**{"bnb_4bit_compute_dtype": dtype, **options})
    except (TypeError, ValueError) as error:
        raise SetupError(f"algorithm.quantization: BitsAndBytesConfig says: {error}") from error


def quantised_linears(model: nn.Module) -> list[Any]:
    """Return the 4-bit layers."""
    return [module for module in model.modules() if isinstance(module, Linear4bit)]


def first_line(error: BaseException) -> str:
    """Return what a library says, without what follows its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
