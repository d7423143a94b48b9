"""A manifest to a running trainer: builds the parts, in the order in which they may fail.

Owns the life of what a run holds: its folder, its own server, sessions, files. Cheap checks come
first; the model loads last.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from attrs import field, frozen

from .base_cache import default_cache
from .boards import Board, open_boards
from .chat import Chat
from .checkpoint import Checkpoints, RunState
from .collect import Collector
from .deepspeed_config import DeepSpeedSettings, deepspeed_settings
from .engine import check_deepspeed, make_engine
from .environments import EnvironmentFacts, Environments
from .errors import RunStopped, SetupError
from .generation import VllmPlan, generation, plan_vllm, vllm_options
from .interrupts import StopRequest
from .learner import Learner
from .manifest import Manifest, without_secret
from .metrics import RunLog
from .own_server import own_server
from .policy import Policy, load_policy
from .preflight import SMALLER, check_environment, check_installation, check_model
from .progress import Display
from .ranks import Place, Ranks, joined
from .report import write_report
from .rounds import Rounds
from .train import Trainer

__all__ = ["Launch", "resolve_device"]

_GAP_LIMIT_FP32 = 1e-3
_GAP_LIMIT_ROUNDED = 0.05


@frozen(kw_only=True)
class Launch:
    """What the command line asked for.

    Args:
        manifest: What to run.
        source: The manifest's file, copied into the run's folder.
        folder: The run's folder.
        device: Where to train.
        place: Which of a launcher's processes this one is.
        is_resumed: Go on from the newest checkpoint in the folder.
        overrides: What `--set` changed in the file; noted in the copy.
        cache: Where dequantised bases are kept for vLLM.
    """

    manifest: Manifest
    source: Path
    folder: Path
    device: torch.device
    place: Place = field(factory=Place)
    is_resumed: bool = False
    overrides: tuple[str, ...] = ()
    cache: Path = field(factory=default_cache)

    def banner(self, urls: tuple[str, ...]) -> str:
        """Return the line that says what runs."""
        return (
            f"Algorithm: {self.manifest.algorithm.name} | "
            f"Env: {', '.join(without_secret(url) for url in urls)} | "
            f"Pop size: {self.manifest.training.pop_size} | "
            f"Steps: {self.manifest.training.max_steps} | Device: {self.device.type}"
            f"{self._banner_of_ranks()}"
        )

    def _banner_of_ranks(self) -> str:
        """Return what there is to say about processes and DeepSpeed; nothing where neither is."""
        settings, count = self._deepspeed, self.place.world_size
        ranks = f" | Ranks: {count}" if count > 1 else ""
        return ranks + (f" | DeepSpeed: ZeRO {settings.stage}" if settings else "")

    @property
    def _deepspeed(self) -> DeepSpeedSettings | None:
        return deepspeed_settings(self.manifest.algorithm, os.environ)

    @property
    def _wait_seconds(self) -> float:
        """How long a rank may wait for another: a round of rollouts, and half an hour."""
        environment = self.manifest.environment
        if environment.request_timeout_s == 0:
            return 86400.0
        return 1800.0 + 2 * environment.request_timeout_s * (environment.turns + 1)

    @property
    def planned_steps(self) -> int:
        """Training steps if every episode takes all its turns."""
        turns = self.manifest.algorithm.rollouts * self.manifest.environment.turns
        return -(-self.manifest.training.max_steps // turns)

    def run(self) -> bool:
        """Train; return whether the run is complete, False where it was asked to stop before.

        Raises:
            SetupError: It could not begin.
            RunStopped: It could not go on.
        """
        check_installation(self.manifest, self.place)
        settings = self._deepspeed
        check_deepspeed(settings)
        with ExitStack() as stack:
            # First, so that it is there to the end: a launcher sends SIGTERM to the ranks that are
            # still saying why they end.
            stop = stack.enter_context(StopRequest(is_silent=not self.place.is_leader))
            ranks = stack.enter_context(joined(self.place, wait_seconds=self._wait_seconds))
            ranks.from_leader(self._prepare_folder)
            urls = ranks.from_leader(
                lambda: stack.enter_context(self._servers(self.folder / "server.log"))
            )
            facts = ranks.from_leader(lambda: check_environment(self.manifest, urls))
            if ranks.is_leader:
                print(self.banner(urls), flush=True)
            plan = plan_vllm(self.manifest, self.device, cache=self.cache, say=_say(ranks))
            policy = load_policy(self.manifest.network, self.manifest.algorithm, device=self.device)
            evaluation_slots = 1 if ranks.is_leader else 0
            slots = self.manifest.algorithm.rollouts // ranks.world_size + evaluation_slots
            environments = stack.enter_context(
                Environments.connect(
                    self.manifest.environment,
                    urls,
                    slots=slots,
                    evaluation_slots=evaluation_slots,
                )
            )
            return self._train(stack, ranks, settings, policy, plan, environments, facts, stop)

    def check(self) -> Iterator[str]:
        """Do all that comes before training, and give out what was found, a line each.

        Raises:
            SetupError: Something is missing.
        """
        check_installation(self.manifest, self.place)
        check_deepspeed(self._deepspeed)
        algorithm = self.manifest.algorithm
        options = vllm_options(self.manifest, self.device)
        yield from [f"note: algorithm.{note}" for note in options.notes] if options else []
        with tempfile.TemporaryDirectory() as folder, self._servers(Path(folder) / "log") as urls:
            facts = check_environment(self.manifest, urls)
            yield self.banner(urls)
            yield (
                f"Sessions: {algorithm.rollouts} for rollouts and 1 for evaluation; problems: "
                f"{facts.dataset_size or 'unknown'} for training, "
                f"{facts.evaluation_size or 'unknown'} held out"
            )
            yield from check_model(self.manifest, self.device)
            yield (
                f"Plan: {self.planned_steps} training steps of {algorithm.batch_size} groups × "
                f"{algorithm.group_size} rollouts, into {self.folder}"
            )

    def _prepare_folder(self) -> None:
        if (self.folder / "metrics.jsonl").exists() and not self.is_resumed:
            raise SetupError(
                f"{self.folder} already holds a run: choose another --output, or --resume it"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        copy = self.folder / "manifest.yaml"
        if not copy.exists() or not copy.samefile(self.source):
            notes = "".join(f"# --set {override}\n" for override in self.overrides)
            copy.write_text(notes + self.source.read_text())

    @contextmanager
    def _servers(self, log: Path) -> Iterator[tuple[str, ...]]:
        """Give the servers' URLs, of the run's own server where the manifest has an entrypoint."""
        environment = self.manifest.environment
        if environment.urls:
            yield environment.urls
            return
        sessions = self.manifest.algorithm.rollouts + 1
        with own_server(environment, sessions=sessions, log=log) as url:
            yield (url,)

    def _train(
        self,
        stack: ExitStack,
        ranks: Ranks,
        settings: DeepSpeedSettings | None,
        policy: Policy,
        plan: VllmPlan | None,
        environments: Environments,
        facts: EnvironmentFacts,
        stop: StopRequest,
    ) -> bool:
        """Put the trainer together and let it run; draw what the run left, however it ended."""
        algorithm, environment = self.manifest.algorithm, self.manifest.environment
        engine = make_engine(
            policy.parameters(), ranks, settings, max_grad_norm=algorithm.max_grad_norm
        )
        folder = self.manifest.training.checkpoint_path
        checkpoints = Checkpoints(Path(folder) if folder else self.folder / "checkpoints", ranks)
        state = checkpoints.load(policy, engine) if self.is_resumed else RunState()
        log = stack.enter_context(
            RunLog(
                self.folder if ranks.is_leader else None,
                resumed_step=state.step,
                boards=self._boards(state.step) if ranks.is_leader else (),
            )
        )
        if ranks.is_leader:
            stack.callback(write_report, self.folder)
        display = stack.enter_context(
            Display(
                planned_steps=self.planned_steps,
                planned_turns=self.manifest.training.max_steps,
                done_steps=state.step,
                done_turns=state.turns,
                is_silent=not ranks.is_leader,
            )
        )
        collector = Collector(
            stack.enter_context(generation(policy, engine, plan)),
            environments,
            Chat(policy.tokenizer, environment.chat_template_kwargs),
            max_turns=environment.turns,
            max_output_tokens=algorithm.max_output_tokens,
            context_length=policy.context_length,
            request_timeout_seconds=environment.request_timeout_s,
        )
        rounds = Rounds(
            manifest=self.manifest,
            facts=facts,
            collector=collector,
            display=display,
            stop=stop,
            ranks=ranks,
        )
        trainer = Trainer(
            manifest=self.manifest,
            policy=policy,
            policy_gap_limit=self._policy_gap_limit(policy),
            engine=engine,
            learner=Learner(policy, engine, algorithm, ranks),
            rounds=rounds,
            checkpoints=checkpoints,
            log=log,
            display=display,
            stop=stop,
            ranks=ranks,
            folder=self.folder,
        )
        try:
            state = trainer.train(state)
        except torch.OutOfMemoryError as error:
            raise RunStopped(
                f"out of memory: {str(error).splitlines()[0]} What helps: {SMALLER}"
            ) from error
        if ranks.is_leader:
            policy.save_adapter(self.folder / "adapter")
        is_used_up = state.turns >= self.manifest.training.max_steps
        is_stopped = ranks.any(stop.is_requested)
        ranks.meet()  # vLLM takes the group down, in which another may still be waiting
        return not is_stopped or (is_used_up and state.evaluated_step == state.step)

    def _boards(self, resumed_step: int) -> tuple[Board, ...]:
        wandb = self.manifest.training.wandb
        return open_boards(self.folder, wandb, resumed_step=resumed_step)

    def _policy_gap_limit(self, policy: Policy) -> float | None:
        """Return what rounding may explain; None where the manifest makes the gap on purpose."""
        if self.manifest.training.max_policy_gap is not None:
            return self.manifest.training.max_policy_gap
        if self.manifest.algorithm.is_sampling_truncated or (
            self.manifest.network.lora_config.lora_dropout
        ):
            return None
        is_exact = policy.dtype == torch.float32 and (
            self.manifest.algorithm.quantization in {"none", "nf4"}  # int8 rounds activations
        )
        return _GAP_LIMIT_FP32 if is_exact else _GAP_LIMIT_ROUNDED


def _say(ranks: Ranks) -> Callable[[str], None]:
    """Return what shows a line, once for all ranks."""

    def say(line: str) -> None:
        if ranks.is_leader:
            print(line, flush=True)

    return say


def resolve_device(name: str, place: Place) -> torch.device:
    """Return the device of `auto`, `cpu` or `cuda`: of several GPUs the one of this process.

    Raises:
        SetupError: cuda was asked for and there is none, or fewer than processes.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise SetupError("--device cuda: torch sees no GPU; is the CUDA build of torch installed?")
    if name == "cuda" and place.local_rank >= torch.cuda.device_count():
        raise SetupError(
            f"{place.local_world_size} processes on this machine and {torch.cuda.device_count()} "
            f"GPUs: start one process a GPU"
        )
    if name == "cuda" and place.world_size > 1:
        device = torch.device("cuda", place.local_rank)
        torch.cuda.set_device(device)
        return device
    return torch.device(name)
