"""Measure training: seconds by phase and tokens a second, of rltrain and of TRL on the same work.

    bench_train.py MANIFEST                       a few steps of it, timed by phase
    bench_train.py MANIFEST --peer trl --peer-python PATH     the same prompts with TRL's
                                                  GRPOTrainer (loss_type cispo) of another venv

The manifest runs as it stands, in this process, with real environments, for `--steps` training
steps after one that warms up. `loop` is what a step takes beside generate, score, train and sync,
writing its records included. TRL is given the model, the prompts, the batch and the lengths' limit;
its rewards are coins, since scoring is not compared. Both have the same number of threads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PHASES = ("generate", "score", "train", "sync")


def run_ours(path: Path, overrides: list[str], steps: int, folder: Path) -> dict[str, Any]:
    """Train for some steps; return what each took, and what the peer needs to do the same."""
    import torch

    from rltrain.collect import Collector
    from rltrain.launch import Launch
    from rltrain.manifest_file import read_manifest
    from rltrain.metrics import read_records
    from rltrain.train import Trainer

    rows = read_manifest(path, overrides)[0].algorithm.rollouts
    values, _ = read_manifest(path, [*overrides, f"training.max_steps={(steps + 1) * rows}"])
    prompts: list[str] = []
    walls: list[float] = []
    play, step = Collector.play, Trainer._step  # noqa: SLF001  # what a step is, is its own business

    def watched_play(self: Any, episodes: Any, sampling: Any) -> Any:
        collected = play(self, episodes, sampling)
        if not episodes[0].is_evaluation:
            heads = collected.rollouts[:: values.algorithm.group_size]
            prompts.extend(rollout.prompt for rollout in heads)
        return collected

    def watched_step(self: Any, state: Any) -> Any:
        began = time.monotonic()
        result = step(self, state)
        walls.append(time.monotonic() - began)
        return result

    Collector.play = watched_play  # type: ignore[method-assign]
    Trainer._step = watched_step  # type: ignore[method-assign]  # noqa: SLF001  # the same
    started = time.monotonic()
    launch = Launch(manifest=values, source=path, folder=folder, device=torch.device("cpu"))
    launch.run()
    records = read_records(folder / "metrics.jsonl")
    for record, wall in zip(records, walls, strict=True):
        record["wall_seconds"] = wall
    startup = time.monotonic() - started - sum(walls)
    return {
        "records": records[1:],
        "prompts": prompts,
        "manifest": values,
        "threads": torch.get_num_threads(),
        "startup_and_evaluation_seconds": startup,
    }


def summary_of_ours(records: list[dict[str, Any]]) -> dict[str, float]:
    """Return medians of seconds over the steps, and tokens a second over all of them."""
    result = {
        f"{phase}_seconds": statistics.median(record[f"{phase}_seconds"] for record in records)
        for phase in PHASES
    }
    loops = [
        record["wall_seconds"] - sum(record[f"{phase}_seconds"] for phase in PHASES)
        for record in records
    ]
    result["loop_seconds"] = statistics.median(loops)
    result["step_seconds"] = statistics.median(record["wall_seconds"] for record in records)
    result["loop_share"] = sum(loops) / sum(record["wall_seconds"] for record in records)
    for kind, phase in (("generated", "generate"), ("trained", "train")):
        tokens = sum(record[f"{kind}_tokens"] for record in records)
        seconds = sum(record[f"{phase}_seconds"] for record in records)
        result[f"{kind}_tokens_per_second"] = tokens / seconds
    result["completion_tokens"] = statistics.mean(r["completion_tokens"] for r in records)
    return result


def run_trl(ours: dict[str, Any], python: str, steps: int, folder: Path) -> dict[str, float]:
    """Give TRL the same work; return the same figures, as far as it has them."""
    algorithm, network = ours["manifest"].algorithm, ours["manifest"].network
    targets = network.lora_config.target_modules
    job = {
        "model": network.pretrained_model_name_or_path,
        "quantization": algorithm.quantization,
        "prompts": ours["prompts"],
        "rows": algorithm.rollouts,
        "parts": -(-algorithm.rollouts // (algorithm.mini_batch_size or algorithm.rollouts)),
        "group_size": algorithm.group_size,
        "steps": steps + 1,
        "lr": algorithm.lr,
        "max_grad_norm": algorithm.max_grad_norm,
        "max_output_tokens": algorithm.max_output_tokens,
        "temperature": algorithm.temperature,
        "gradient_checkpointing": algorithm.gradient_checkpointing,
        "lora_r": network.lora_config.lora_r,
        "lora_alpha": network.lora_config.lora_alpha,
        "target_modules": targets if isinstance(targets, str) else list(targets),
        "threads": ours["threads"],
        "folder": str(folder),
    }
    peer = Path(__file__).parent / "bench" / "trl_peer.py"
    done = subprocess.run(
        [python, str(peer)], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"TRL failed:\n{done.stderr[-3000:]}")
    batches = json.loads(done.stdout)[1:]
    generate = [batch["generate_seconds"] for batch in batches]
    train = [batch["step_seconds"] - batch["generate_seconds"] for batch in batches]
    tokens = sum(batch["tokens"] for batch in batches)
    return {
        "generate_seconds": statistics.median(generate),
        "train_seconds": statistics.median(train),
        "step_seconds": statistics.median(batch["step_seconds"] for batch in batches),
        "generated_tokens_per_second": tokens / sum(generate),
        "trained_tokens_per_second": tokens / sum(train),
        "completion_tokens": tokens / len(batches) / job["rows"],
    }


def show(results: dict[str, dict[str, float]]) -> None:
    names = list(results)
    print(f"\n{'':32}" + "".join(f"{name:>12}" for name in names))
    for key in results[names[0]]:
        cells = (results[name].get(key) for name in names)
        texts = ["–" if v is None else f"{v:.0f}" if v >= 100 else f"{v:.4g}" for v in cells]
        print(f"{key:32}" + "".join(f"{text:>12}" for text in texts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--steps", type=int, default=8, help="measured; one more warms up")
    parser.add_argument("--set", dest="overrides", action="append", default=[])
    parser.add_argument("--peer", choices=["trl"])
    parser.add_argument("--peer-python", default=sys.executable, help="an interpreter with TRL")
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours = run_ours(arguments.manifest, arguments.overrides, arguments.steps, Path(folder, "a"))
        results = {"rltrain": summary_of_ours(ours["records"])}
        if arguments.peer:
            results["trl"] = run_trl(
                ours, arguments.peer_python, arguments.steps, Path(folder, "b")
            )
    show(results)
    if arguments.peer:
        rates = [results[name]["trained_tokens_per_second"] for name in ("rltrain", "trl")]
        print(f"\ntrained tokens/s, rltrain to TRL: {rates[0] / rates[1]:.2f}")
    print(f"loop beside the phases: {results['rltrain']['loop_share']:.2%} of a step")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
