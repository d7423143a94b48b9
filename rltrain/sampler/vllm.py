"""Generation with vLLM: the base as the trainer has it, the adapter handed over each time.

The only importer of vllm. One engine in this process; requests run as they come, each with random
numbers of its own, and those of one prompt share its cached prefix.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch

from ..errors import RunStopped, SetupError
from ..policy import Policy
from ..rollout import Completion, Request, Sampling
from .adapters import Adapters
from .options import CacheNeed, cache_error
from .protocol import Handover
from .turns import Adapter, Turns

__all__ = [
    "VllmEngine",
    "VllmSampler",
    "can_sleep",
    "engine_argument_names",
    "is_installed",
]

_ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the threads stay as torch has them
}


def is_installed() -> bool:
    """Whether vLLM can be imported, by the look of it."""
    return find_spec("vllm") is not None


def engine_argument_names() -> frozenset[str]:
    """Return the options that vLLM's engine has."""
    return frozenset(_vllm().EngineArgs.__dataclass_fields__)


def can_sleep() -> bool:
    """Whether vLLM can give its memory up on this platform."""
    _vllm()
    from vllm.platforms import current_platform

    return bool(current_platform.is_sleep_mode_available())


def _vllm() -> Any:
    """Import vLLM, in one process and without its chatter."""
    # One process: its memory is ours to hand over.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not torch.cuda.is_available():
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    with _quietly():
        import vllm
    return vllm


@contextmanager
def _quietly() -> Iterator[None]:
    """Keep warnings of libraries to themselves, and torch's functions as they are."""
    set_num_threads = torch.set_num_threads  # which vLLM replaces by one that does nothing
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads = set_num_threads


class VllmEngine:
    """An engine of vLLM in this process, as `Turns` wants it.

    Args:
        model: The base: a folder or hub id.
        arguments: Other options of the engine.
        context_length: Tokens of a request at most, answer included.

    Raises:
        SetupError: Its memory does not hold the cache of one request.
    """

    def __init__(self, model: str, arguments: Mapping[str, Any], *, context_length: int) -> None:
        self._vllm = _vllm()
        self._loaded: Adapter | None = None
        self._is_group_ours = not torch.distributed.is_initialized()
        free_bytes, total_bytes = _device_memory()
        with _quietly():
            config = self._vllm.EngineArgs(
                model=model,
                max_model_len=context_length,
                use_tqdm_on_load=False,
                **arguments,
                **_group_arguments(),
            )
            try:
                self.llm = self._vllm.LLMEngine.from_engine_args(config)
            except ValueError as error:
                explained = cache_error(
                    str(error),
                    find_need=lambda: _cache_need(config),
                    arguments=arguments,
                    free_bytes=free_bytes,
                    total_bytes=total_bytes,
                )
                self._leave_group()
                raise (explained or SetupError(f"vLLM: {' '.join(str(error).split())}")) from error

    def sleep(self, level: int) -> None:
        """Give up the cache and, as the level says, the weights."""
        self.llm.sleep(level=level)

    def release_cache(self) -> None:
        """Give up the cache alone."""
        self.llm.sleep(level=0)  # pauses scheduling, which the release demands
        self.llm.release_kv_cache_memory()

    def wake_up(self, tag: str) -> None:
        """Take the memory of `weights` or `kv_cache` again; scheduling goes on with the last."""
        self.llm.wake_up(tags=[tag])

    def reload_weights(self) -> None:
        """Read the base from the disk again; adapters have to be added again after it."""
        self.llm.collective_rpc("reload_weights")

    def add_adapter(self, adapter: Adapter) -> None:
        """Load a version in place of the one before, and forget what that one has cached."""
        if self._loaded is not None:
            self.llm.remove_lora(self._loaded.version)
        if not self.llm.add_lora(self.lora_request(adapter)):
            raise RunStopped(f"vLLM did not take the adapter {adapter.path}")
        self._loaded = adapter
        self.llm.reset_prefix_cache()

    def lora_request(self, adapter: Adapter) -> Any:
        """Return the adapter in vLLM's words: id, name and path are all of this version alone."""
        from vllm.lora.request import LoRARequest

        return LoRARequest(f"v{adapter.version}", adapter.version, adapter.path)

    def add_request(self, name: str, request: Request, stop_ids: list[int]) -> None:
        """Take a request, to be answered with the newest adapter."""
        lora = None if self._loaded is None else self.lora_request(self._loaded)
        self.llm.add_request(
            name,
            {"prompt_token_ids": list(request.prompt_ids)},
            self._sampling_params(request, stop_ids),
            lora_request=lora,
        )

    def _sampling_params(self, request: Request, stop_ids: list[int]) -> Any:
        from vllm.sampling_params import RequestOutputKind

        sampling: Sampling = request.sampling
        return self._vllm.SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=max(sampling.top_k, 0),
            min_p=sampling.min_p,
            seed=request.seed,
            max_tokens=request.max_tokens,
            logprobs=0,  # of the sampled token alone
            stop_token_ids=stop_ids,
            ignore_eos=True,  # the stop tokens are the policy's, and no others
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def close(self) -> None:
        """Give everything back."""
        if self._is_group_ours:
            self.llm.engine_core.shutdown()
        else:
            # A shutdown, also the one at its collection, would take the ranks' group down.
            self.llm.engine_core._finalizer.detach()  # noqa: SLF001 (no other way)
            del self.llm
        self._leave_group()

    def _leave_group(self) -> None:
        """Take down the group of processes that vLLM made; one that was there before stays."""
        from vllm.distributed import cleanup_dist_env_and_memory, parallel_state

        with _quietly():
            if self._is_group_ours:
                cleanup_dist_env_and_memory()
            else:
                parallel_state.destroy_model_parallel()


class VllmSampler:
    """A `Sampler` over an engine of vLLM that follows the policy by its adapter.

    Args:
        engine: The engine, awake.
        policy: What is trained.
        adapters: Where its adapter is written.
        turns: Who has the device; the trainer from now on.
    """

    def __init__(
        self, engine: VllmEngine, policy: Policy, adapters: Adapters, turns: Turns
    ) -> None:
        self._engine = engine
        self._adapters = adapters
        self._turns = turns
        self._stop_ids = sorted(policy.stop_ids)
        self._round = 0
        self._keys: dict[str, int] = {}

    @property
    def handover(self) -> Handover:
        """What the last `serving()` took beside sampling."""
        return self._turns.handover

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Make it the engine's turn, with the adapter as it is now, until the context ends."""
        try:
            self._turns.generate(self._adapters.write)
            yield
        finally:
            self.abort()
            self._turns.train()

    def submit(self, request: Request) -> None:
        """Hand a request to the engine."""
        name = f"{self._round}-{request.key}-{len(request.prompt_ids)}"
        self._keys[name] = request.key
        self._engine.add_request(name, request, self._stop_ids)

    def can_advance(self, *, is_more_coming: bool) -> bool:
        """Whether anything runs: what comes later joins it."""
        del is_more_coming
        return bool(self._keys)

    def advance(self) -> list[Completion]:
        """Take one step of the engine; return the requests that ended by it."""
        ended = [output for output in self._engine.llm.step() if output.finished]
        return [_completion(self._keys.pop(output.request_id), output) for output in ended]

    def abort(self) -> None:
        """Forget all requests."""
        if self._keys:
            self._engine.llm.abort_request(list(self._keys))
        self._keys.clear()
        self._round += 1


def _completion(key: int, output: Any) -> Completion:
    (answer,) = output.outputs
    if answer.finish_reason not in {"stop", "length"}:
        raise RunStopped(f"vLLM ended a request with {answer.finish_reason!r}")
    tokens = list(answer.token_ids)
    chosen = [at[token].logprob for at, token in zip(answer.logprobs, tokens, strict=True)]
    return Completion(
        key=key, token_ids=tokens, behaviour_logprobs=chosen, finish=answer.finish_reason
    )


def _device_memory() -> tuple[int, int]:
    """Return the bytes that are free and those that there are, of a GPU if there is one."""
    if torch.cuda.is_available():
        return torch.cuda.mem_get_info()
    pages = os.sysconf("SC_AVPHYS_PAGES"), os.sysconf("SC_PHYS_PAGES")
    free, total = (count * os.sysconf("SC_PAGE_SIZE") for count in pages)
    return free, total


def _group_arguments() -> dict[str, Any]:
    """Return what an engine of its own needs in a process that is one of several."""
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        return {"distributed_executor_backend": "external_launcher"}
    return {}


def _cache_need(engine_args: Any) -> CacheNeed:
    model = engine_args.create_model_config()
    parallel = _SingleProcess()
    return CacheNeed(
        layers=model.get_num_layers(parallel),
        key_value_heads=model.get_num_kv_heads(parallel),
        head_size=model.get_head_size(),
        bytes_per_value=torch.empty((), dtype=model.dtype).element_size(),
        context_length=model.max_model_len,
    )


class _SingleProcess:
    """What vLLM's model config asks of a parallel config."""

    tensor_parallel_size = pipeline_parallel_size = 1
    rank = 0
