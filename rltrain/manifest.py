"""What a run is: the manifest's sections as plain values, with their defaults and checks.

Owns the names, defaults, bounds and the rules between keys; reading YAML is `manifest_file`'s work.
The shape is AgileRL's, so that its manifests of remote environments run here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

from attrs import field, frozen

__all__ = [
    "QUANTIZATION_PRESETS",
    "UNUSED_KEYS",
    "Algorithm",
    "Environment",
    "LoraConfig",
    "Manifest",
    "Network",
    "ScheduleConfig",
    "Training",
    "find_faults",
    "find_warnings",
    "without_secret",
]

QUANTIZATION_PRESETS = ("none", "nf4", "int8")

UNUSED_KEYS: Mapping[str, frozenset[str]] = {
    "": frozenset({"hpo", "mutation", "tournament_selection"}),
    "algorithm": frozenset(
        {
            "accelerator", "calc_position_embeddings", "clone", "device", "filter_zero_adv",
            "hp_config", "index", "min_output_tokens", "pad_token", "pad_token_id",
            "reduce_memory_peak", "torch_compiler", "use_liger_loss",
            "use_memory_efficient_params", "use_separate_reference_adapter", "wrap",
        }
    ),
    "environment": frozenset({"name", "num_envs", "return_raw_completions"}),
    "training": frozenset(
        {
            "accelerator", "elite_path", "evo_steps", "overwrite_checkpoints", "save_elite",
            "swap_channels", "verbose",
        }
    ),
    "network": frozenset({"arch", "encoder_config", "head_config"}),
}  # fmt: skip
"""Keys of AgileRL that mean nothing here: accepted with a warning."""


def _bounded(
    default: Any,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
) -> Any:
    """Return a field whose number must lie within bounds, None where None is its default."""
    rules: list[tuple[str, Callable[[float], bool]]] = []
    if at_least is not None:
        rules.append((f"at least {at_least:g}", lambda value: value >= at_least))
    if above is not None:
        rules.append((f"above {above:g}", lambda value: value > above))
    if at_most is not None:
        rules.append((f"at most {at_most:g}", lambda value: value <= at_most))
    return field(default=default, metadata={"rules": rules})


def _one_of(default: str, *choices: str) -> Any:
    return field(default=default, metadata={"choices": choices})


@frozen(kw_only=True)
class ScheduleConfig:
    """A cosine schedule of the learning rate with a linear warm-up, down to `min_lr`."""

    warmup_proportion: float = _bounded(0.05, at_least=0, at_most=1)
    min_lr: float = _bounded(0.0, at_least=0)
    num_epochs: int | None = _bounded(None, at_least=1)
    """AgileRL's length of the schedule; here it spans the run, and this is not used."""


@frozen(kw_only=True)
class Algorithm:
    """How the policy is sampled and improved."""

    name: str = _one_of("CISPO", "CISPO", "GRPO")
    batch_size: int = _bounded(16, at_least=1)
    group_size: int = _bounded(8, at_least=2)
    lr: float = _bounded(5e-7, above=0)
    max_grad_norm: float = _bounded(0.1, above=0)
    update_epochs: int = _bounded(1, at_least=1)
    micro_batch_size_per_gpu: int | None = _bounded(None, at_least=1)
    mini_batch_size: int | None = _bounded(None, at_least=1)
    packing: bool = False
    max_output_tokens: int | None = _bounded(None, at_least=1)
    temperature: float = _bounded(1.0, above=0)
    top_p: float = _bounded(1.0, above=0, at_most=1)
    top_k: int | None = _bounded(None, at_least=-1)
    min_p: float | None = _bounded(None, at_least=0, at_most=1)
    is_cap: float | None = _bounded(None, above=1)
    clip_coef: float | None = _bounded(None, above=0)
    beta: float = _bounded(0.0, at_least=0)
    adv_norm: str = _one_of("mean_only", "mean_only", "mean_std")
    use_vllm: bool = False
    vllm_config: Mapping[str, Any] = field(factory=dict)
    quantization: str | Mapping[str, Any] = "none"
    gradient_checkpointing: bool = True
    seed: int = _bounded(42, at_least=0)
    cosine_lr_schedule_config: ScheduleConfig | None = None
    deepspeed: int | str | None = None

    @property
    def importance_cap(self) -> float:
        """The upper bound of CISPO's importance weight, absolute."""
        if self.is_cap is not None:
            return self.is_cap
        return 5.0 if self.clip_coef is None else 1.0 + self.clip_coef

    @property
    def clip_range(self) -> float:
        """GRPO's clip range ε: the ratio is clipped to 1 − ε … 1 + ε."""
        return 0.2 if self.clip_coef is None else self.clip_coef

    @property
    def rollouts(self) -> int:
        """Rollouts of one training step, over all ranks."""
        return self.batch_size * self.group_size

    @property
    def is_sampling_truncated(self) -> bool:
        """Whether top_p, top_k or min_p cut the distribution that tokens are sampled from."""
        return self.top_p < 1 or (self.top_k or 0) > 0 or bool(self.min_p)


@frozen(kw_only=True)
class Environment:
    """Where episodes are played."""

    env_type: str = _one_of("rollout", "rollout")
    env_url: str | tuple[str, ...] | None = None
    entrypoint: str | None = None
    env_config: Mapping[str, Any] = field(factory=dict)
    max_turns: int | None = _bounded(None, at_least=1)
    max_reward: float | None = None
    request_timeout_s: float = _bounded(300.0, at_least=0)
    env_token_file: str | None = None
    env_ca_file: str | None = None
    action_field: str = "message"
    chat_template_kwargs: Mapping[str, Any] = field(factory=dict)

    @property
    def urls(self) -> tuple[str, ...]:
        """The servers' base URLs; none where an entrypoint is served by the run itself."""
        if self.env_url is None:
            return ()
        return (self.env_url,) if isinstance(self.env_url, str) else self.env_url

    @property
    def turns(self) -> int:
        """Turns an episode may take."""
        return self.max_turns or 1


@frozen(kw_only=True)
class Training:
    """How long a run is, and what happens along its way."""

    max_steps: int = _bounded(0, at_least=1)
    """Environment turns, summed over rollouts."""
    evaluation_interval: int = _bounded(10, at_least=1)
    eval_loop: int | Literal["all"] = _bounded(1, at_least=1)
    max_policy_gap: float | None = _bounded(None, above=0)
    checkpoint_steps: int | None = _bounded(None, at_least=1)
    checkpoint_path: str | None = None
    max_wall_seconds: float | None = _bounded(None, above=0)
    target_score: float | None = None
    max_unscored_share: float = _bounded(0.5, above=0, at_most=1)
    wandb: Mapping[str, Any] | None = None
    """What `wandb.init` takes; W&B is not used without."""
    pop_size: int = 1


@frozen(kw_only=True)
class LoraConfig:
    """The adapter that is trained."""

    lora_r: int = _bounded(16, at_least=1)
    lora_alpha: float = _bounded(32, above=0)
    lora_dropout: float = _bounded(0.0, at_least=0, at_most=1)
    target_modules: tuple[str, ...] | str = "all-linear"
    task_type: str = _one_of("CAUSAL_LM", "CAUSAL_LM")


@frozen(kw_only=True)
class Network:
    """The model that is trained."""

    pretrained_model_name_or_path: str = ""
    max_context_length: int | None = _bounded(None, at_least=2)
    lora_config: LoraConfig = LoraConfig()


@frozen(kw_only=True)
class Manifest:
    """A whole run."""

    algorithm: Algorithm = Algorithm()
    environment: Environment = Environment()
    training: Training = Training()
    network: Network = Network()


def without_secret(url: str) -> str:
    """Return a URL without userinfo, and without a token in its path (`/t/TOKEN`)."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.rpartition("@")[2].partition("/")
    if path.startswith("t/"):
        path = "t/…"
    return f"{scheme}{separator}{host}{slash}{path}"


def find_faults(manifest: Manifest) -> Iterator[str]:
    """Give out one line for each rule between keys that a manifest breaks."""
    algorithm, environment = manifest.algorithm, manifest.environment
    training, network = manifest.training, manifest.network
    if algorithm.is_cap is not None and algorithm.clip_coef is not None:
        yield "algorithm.clip_coef: expected either is_cap or clip_coef (cap = 1 + clip_coef)"
    preset = algorithm.quantization
    if isinstance(preset, str) and preset not in QUANTIZATION_PRESETS:
        yield (
            f"algorithm.quantization: expected one of {', '.join(QUANTIZATION_PRESETS)} or a "
            f"mapping of BitsAndBytesConfig, got {preset!r}"
        )
    context, output = network.max_context_length, algorithm.max_output_tokens
    if context is not None and output is not None and output >= context:
        yield (
            f"algorithm.max_output_tokens: expected less than network.max_context_length "
            f"({context}), got {output}"
        )
    yield from _environment_faults(environment)
    if training.max_steps == 0:
        yield "training.max_steps: missing: environment turns, summed over rollouts"
    if training.pop_size != 1:
        yield f"training.pop_size: expected 1 (one run trains one policy), got {training.pop_size}"
    if not network.pretrained_model_name_or_path:
        yield "network.pretrained_model_name_or_path: missing: a hub id or a model's folder"


def _environment_faults(environment: Environment) -> Iterator[str]:
    if bool(environment.urls) == bool(environment.entrypoint):
        yield "environment: expected either env_url or entrypoint"
    if environment.urls and environment.max_turns is None:
        yield (
            "environment.max_turns: missing: a remote environment's turn budget cannot be asked "
            "for; 1 if it scores a single answer"
        )
    for url in environment.urls:
        fault = _url_fault(url)
        if fault:
            yield f"environment.env_url: expected http://host:port or https://…, {fault}"
    if environment.env_config and not environment.entrypoint:
        yield "environment.env_config: needs entrypoint: a running server has its own settings"


def _url_fault(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme not in {"http", "https", "ws", "wss"}:
        return f"got the scheme {parts.scheme!r}"
    return "" if parts.hostname else "got no host"


def find_warnings(manifest: Manifest) -> Iterator[str]:
    """Give out one line for each choice that is allowed but rarely meant."""
    algorithm = manifest.algorithm
    if algorithm.is_sampling_truncated:
        yield (
            "algorithm.top_p/top_k/min_p: truncated sampling biases the importance ratio by the "
            "kept mass; training.max_policy_gap is not enforced"
        )
    if algorithm.vllm_config and not algorithm.use_vllm:
        yield "algorithm.vllm_config: means nothing without use_vllm: true"
    if manifest.network.lora_config.lora_dropout:
        yield "network.lora_config.lora_dropout: the trained policy differs from the sampled one"
