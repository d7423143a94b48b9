"""A model so small that a test can train it: random weights, a vocabulary of a few words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Transformers imports DeepSpeed where it is installed, which prints its guess unless it is told.
os.environ.setdefault("DS_ACCELERATOR", "cpu")

WORDS = [
    *("alpha", "beta", "gamma", "delta", "one", "two", "three", "four"),
    *("say", "the", "word", "please", "right", "wrong"),
]

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_model(folder: Path, *, heads: int = 4, words: Sequence[str] = ()) -> Path:
    """Write a random Qwen2 of 64 hidden units and two layers, with a word tokenizer.

    `words` are all that it can say; by default some words, and letters.
    """
    import torch
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>"]
    roles = ["system", "user", "assistant"]
    pieces = [chr(code) for code in range(32, 127)]
    known = dict.fromkeys([*special, "\n", *roles, *(words or (*WORDS, *pieces))])
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        pattern=Regex(r"[a-z]{2,}|[\s\S]"), behavior="isolated"
    )
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<unk>",
        additional_special_tokens=["<|im_start|>", "<|endoftext|>"],
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(fast),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.1,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
        pad_token_id=fast.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def model_of(tmp_path: Path) -> Callable[[Sequence[str]], Path]:
    """Return a function that makes the tiny model with words of its own."""
    return lambda words: make_tiny_model(tmp_path / "model", words=words)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny model."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def broad_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny model with heads of 32, the least that vLLM has kernels for on a CPU."""
    return make_tiny_model(tmp_path_factory.mktemp("models") / "broad", heads=2)


WORDS_ENVIRONMENT = '''
"""Say the word: the reward is 1 where the answer has it."""
from envhost.environment import Observation, StepResult, text_observation

WORDS = ["alpha", "beta", "gamma", "delta"]


class Words:
    def __init__(self, turns=1, any_word=False):
        self.turns, self.any_word = turns, any_word

    async def reset(self, *, seed=0, row_index=None, evaluation=False):
        self.word = WORDS[(seed if row_index is None else row_index) % 4]
        self.left = self.turns
        return Observation(text_observation(f"say the word {self.word}"), {"problem_id": self.word})

    async def step(self, action):
        self.left -= 1
        wanted = WORDS if self.any_word else [self.word]
        is_right = any(word in action["message"] for word in wanted)
        return StepResult(
            observation=text_observation("right" if is_right else "wrong"),
            reward=float(is_right),
            terminated=self.left == 0,
            metadata={"verdict": "AC" if is_right else "WA"},
        )

    async def state(self):
        return {"dataset_size": 4, "evaluation_size": 4}

    async def close(self):
        pass
'''


@pytest.fixture
def words_entrypoint(tmp_path: Path) -> str:
    """Return the entrypoint of an environment that wants a word said."""
    path = tmp_path / "words_environment.py"
    path.write_text(WORDS_ENVIRONMENT)
    return f"{path}:Words"
