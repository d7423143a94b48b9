"""TRL's GRPOTrainer on the prompts and settings that `bench_train.py` hands over, timed by phase.

Run by another interpreter, one that has TRL: reads a JSON object on standard input, writes one on
standard output: a list of rollout batches with their seconds and tokens.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import time
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def reward(completions: list[Any], **_: Any) -> list[float]:
    """Give every completion a coin's side: what a reward costs is not measured here."""
    return [float(random.random() < 0.4) for _ in completions]


class Timed(GRPOTrainer):
    """The trainer, with a clock around generation."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.batches: list[dict[str, float]] = []

    def _generate(self, prompts: Any) -> Any:
        began = time.monotonic()
        result = super()._generate(prompts)
        self.batches.append({"generate_seconds": time.monotonic() - began, "step_seconds": 0.0})
        return result

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        outputs = super()._generate_and_score_completions(inputs)
        self.batches[-1]["tokens"] = int(outputs["completion_mask"].sum())
        self.batches[-1]["prompt_tokens"] = int(outputs["prompt_mask"].sum())
        return outputs


class Clock(TrainerCallback):
    """Adds the wall time of each optimiser step to its rollout batch."""

    def __init__(self) -> None:
        self.trainer: Any = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.began = time.monotonic()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.trainer.batches[-1]["step_seconds"] += time.monotonic() - self.began


def make_trainer(job: dict[str, Any]) -> Timed:
    options: dict[str, Any] = {"dtype": torch.float32}
    if job["quantization"] == "nf4":
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float32
        )
    model = AutoModelForCausalLM.from_pretrained(job["model"], **options)
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False  # else its gradients are wrong on some CPUs
    prompts = [[{"role": "user", "content": text}] for text in job["prompts"]]
    clock = Clock()
    trainer = Timed(
        model=model,
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=AutoTokenizer.from_pretrained(job["model"]),
        peft_config=LoraConfig(
            r=job["lora_r"],
            lora_alpha=job["lora_alpha"],
            target_modules=job["target_modules"],
            task_type="CAUSAL_LM",
        ),
        callbacks=[clock],
        args=GRPOConfig(
            output_dir=job["folder"],
            loss_type="cispo",
            epsilon_high=5.0,
            beta=0.0,
            temperature=job["temperature"],
            learning_rate=job["lr"],
            max_grad_norm=job["max_grad_norm"],
            num_generations=job["group_size"],
            per_device_train_batch_size=job["rows"] // job["parts"],
            steps_per_generation=job["parts"],
            gradient_accumulation_steps=1,
            max_completion_length=job["max_output_tokens"],
            max_steps=job["steps"] * job["parts"],
            gradient_checkpointing=job["gradient_checkpointing"],
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        ),
    )
    clock.trainer = trainer
    return trainer


def main() -> None:
    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    with contextlib.redirect_stdout(sys.stderr):
        trainer = make_trainer(job)
        trainer.train()
    json.dump(trainer.batches, sys.stdout)


if __name__ == "__main__":
    main()
