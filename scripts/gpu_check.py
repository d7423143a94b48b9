"""Short runs with vLLM at each sleep level, and a table of gap, seconds and memory.

Called by gpu_check.sh. Each row is a run of its own process: rltrain against an environment that
rewards answers at random, so that a model of random weights has something to train on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LEVELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("no sleep", {"sleep_mode": False}),
    ("level 0", {"sleep_mode": True, "sleep_mode_level": 0}),
    ("level 1", {"sleep_mode": True, "sleep_mode_level": 1}),
    ("level 2", {"sleep_mode": True, "sleep_mode_level": 2}),
)
PHASES = ("train_end", "generate_begin", "generate_end", "train_begin")
ENVIRONMENT = '''
"""Reward answers by the sum of their bytes, odd or even."""
from envhost.environment import Observation, StepResult, text_observation


class Parity:
    async def reset(self, *, seed=0, row_index=None, evaluation=False):
        return Observation(text_observation(f"say something about {seed}"), {})

    async def step(self, action):
        reward = float(sum(action["message"].encode()) % 2)
        return StepResult(observation=text_observation(""), reward=reward, terminated=True)

    async def state(self):
        return {}

    async def close(self):
        pass
'''


def make_model(folder: Path, *, is_tiny: bool) -> None:
    """Write a Qwen2 of random weights: 0.4 billion, or so few that a CPU can take it."""
    import torch
    from make_tiny_model import make_tokenizer
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = make_tokenizer()
    sizes = (
        {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "heads": 2}
        if is_tiny
        else {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "heads": 14}
    )
    heads = sizes.pop("heads")
    torch.manual_seed(0)
    config = Qwen2Config(
        **sizes,
        vocab_size=len(tokenizer) if is_tiny else 32000,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        dtype="float32" if is_tiny else "bfloat16",
    )
    model = Qwen2ForCausalLM(config)
    if not is_tiny:
        model = model.to(torch.bfloat16)
    print(f"== model: {model.num_parameters() / 1e6:,.1f} million random weights")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def manifest(model: str, environment: Path, config: dict[str, Any]) -> dict[str, Any]:
    """Return a run of four steps of 4 × 4."""
    return {
        "algorithm": {
            "batch_size": 4,
            "group_size": 4,
            "lr": 1e-4,
            "max_output_tokens": 64,
            "quantization": "nf4",
            "use_vllm": True,
            "vllm_config": {"enforce_eager": True, **config},
        },
        "environment": {"entrypoint": f"{environment}:Parity", "max_turns": 1},
        "training": {"max_steps": 64},
        "network": {"pretrained_model_name_or_path": model, "max_context_length": 1024},
    }


def row(name: str, config: dict[str, Any], model: str, device: str, folder: Path) -> str:
    """Run at a level; return its line of the table."""
    import yaml

    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(manifest(model, folder / "parity_environment.py", config)))
    output = folder / name
    result = subprocess.run(
        [
            *(sys.executable, "-m", "rltrain", path, "--device", device),
            *("--output", output, "--cache-dir", folder / "bases"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode:
        sys.stderr.write(result.stdout)
        return f"| {name} | failed, see above |"
    if name != LEVELS[0][0] and "cannot sleep" in result.stdout:
        return f"| {name} | skipped: vLLM cannot sleep on this platform |"
    records = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    gaps = [r["policy_gap"] for r in records if r["policy_gap"] is not None]
    later = records[1:]  # the first step has what happens once
    memory = [max(r["memory_bytes"][phase] for r in later) / 2**30 for phase in PHASES]
    cells = [
        f"{max(gaps):.1e}" if gaps else "–",
        f"{sum(r['sync_seconds'] for r in later) / len(later):.2f}",
        f"{sum(r['generate_seconds'] for r in later) / len(later):.2f}",
        f"{sum(r['train_seconds'] for r in later) / len(later):.2f}",
        *(f"{size:.2f}" for size in memory),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Say what machine this is, measure the gap, run every level, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    arguments = parser.parse_args()
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("== torch sees no GPU: nothing to check; --device cpu tries the script itself")
        return
    if arguments.device == "cuda":
        free, total = torch.cuda.mem_get_info()
        name = torch.cuda.get_device_name()
        print(f"== {name}: {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "parity_environment.py").write_text(ENVIRONMENT)
        model = arguments.model
        if model is None:
            os.environ["HF_HUB_OFFLINE"] = "1"
            model = str(folder / "model")
            make_model(Path(model), is_tiny=arguments.device == "cpu")
        print("== policy gap", flush=True)
        subprocess.run(
            [
                *(sys.executable, ROOT / "scripts" / "measure_gap.py", model),
                *("--device", arguments.device, "--cache-dir", folder / "bases"),
                *("--max-context-length", "1024"),
            ],
            check=False,
        )
        print("== turns: largest gap, seconds a step, GiB in use at the ends of the phases")
        head = ("sleep", "gap", "sync", "generate", "train", *PHASES)
        print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
        for level, config in LEVELS:
            print(row(level, config, model, arguments.device, folder), flush=True)


if __name__ == "__main__":
    main()
