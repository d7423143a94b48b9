"""Measure how far vLLM's policy is from the trainer's, for each base that it may be given.

Samples completions with vLLM and compares their logprobs with the trainer's own, with an adapter of
random weights on both sides.

    python scripts/measure_gap.py MODEL [--device cpu] [--quantization nf4]

Prints a table: the policy gap, mean and largest |log π − log μ| a token.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from rltrain.base_cache import default_cache, dequantised_base
from rltrain.batch import TrainingRow, make_batch
from rltrain.chat import Chat
from rltrain.engine import Engine
from rltrain.generation import VllmPlan, generation, vllm_options
from rltrain.launch import resolve_device
from rltrain.manifest import Algorithm, Manifest, Network
from rltrain.policy import Policy, load_policy
from rltrain.ranks import Place, Ranks
from rltrain.rollout import Request, Sampling, Transcript
from rltrain.sampler import Sampler

PROMPTS = (
    "Write a program that reads a number and prints its square.",
    "Keep the even numbers of the list and sum them.",
    "Sort the list, then print the largest.",
    "What is the capital of France?",
)
PLAIN = Sampling(temperature=1.0)


def shake(policy: Policy) -> None:
    """Give the adapter weights that change what the model says a little."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in policy.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.add_(0.02 * noise.to(weight.device))


def sampled(policy: Policy, sampler: Sampler, count: int, max_tokens: int) -> list[TrainingRow]:
    """Return completions of the prompts."""
    chat = Chat(policy.tokenizer, {})
    prompts = [chat.prompt_ids(PROMPTS[i % len(PROMPTS)], system=None) for i in range(count)]
    rows = []
    with sampler.serving():
        for key, prompt in enumerate(prompts):
            sampler.submit(
                Request(key=key, prompt_ids=prompt, max_tokens=max_tokens, sampling=PLAIN, seed=key)
            )
        while sampler.can_advance(is_more_coming=False):
            rows += [
                TrainingRow(Transcript().given(prompts[done.key]).sampled(done), 1.0)
                for done in sampler.advance()
            ]
    return rows


@torch.no_grad()
def gap(policy: Policy, rows: list[TrainingRow]) -> tuple[float, float, int]:
    """Return mean and largest |log π − log μ|, and the tokens."""
    differences = []
    for row in rows:
        batch = make_batch([row], pad_id=policy.pad_id).to(policy.device)
        logprobs = policy.token_logprobs(batch, temperature=1.0).logprobs
        differences.append((logprobs - batch.behaviour_logprobs)[batch.action_mask].abs())
    every = torch.cat(differences)
    return float(every.mean()), float(every.max()), len(every)


def measure(arguments: argparse.Namespace, quantization: str, *, dequantised: bool) -> str:
    """Return a line of the table."""
    device = resolve_device(arguments.device, Place())
    network = Network(
        pretrained_model_name_or_path=arguments.model,
        max_context_length=arguments.max_context_length,
    )
    config = dict(pair.split("=") for pair in arguments.vllm)
    algorithm = Algorithm(
        quantization=quantization, use_vllm=True, gradient_checkpointing=False,
        vllm_config={name: float(value) for name, value in config.items()},
    )  # fmt: skip
    options = vllm_options(Manifest(algorithm=algorithm, network=network), device)
    assert options is not None
    base = arguments.model
    if dequantised:
        base = str(
            dequantised_base(
                network, algorithm, device=device, cache=arguments.cache_dir, say=print
            )
        )
    policy = load_policy(network, algorithm, device=device)
    shake(policy)
    engine = Engine(policy.parameters(), Ranks(), max_grad_norm=1.0)
    with generation(policy, engine, VllmPlan(base=base, options=options)) as sampler:
        rows = sampled(policy, sampler, arguments.completions, arguments.max_tokens)
        mean, largest, count = gap(policy, rows)
    kind = "dequantised" if dequantised else "original"
    return f"| {quantization} | {kind} | {mean:.1e} | {largest:.1e} | {count} |"


def main() -> None:
    """Measure three cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--quantization", choices=("nf4", "int8"), default="nf4")
    parser.add_argument("--completions", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--max-context-length", type=int)
    parser.add_argument("--vllm", action="append", default=[], metavar="KEY=NUMBER")
    parser.add_argument("--cache-dir", type=Path, default=default_cache())
    arguments = parser.parse_args()
    table = [
        measure(arguments, arguments.quantization, dequantised=False),
        measure(arguments, arguments.quantization, dequantised=True),
        measure(arguments, "none", dequantised=False),
    ]
    print("| trainer's base | vLLM's base | mean gap | largest | tokens |\n|---|---|---|---|---|")
    print("\n".join(table))


if __name__ == "__main__":
    main()
