"""The tiny model: its tokenizer loses nothing, its teacher knows training rows only."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytestmark = pytest.mark.train
torch = pytest.importorskip("torch")

import make_lists  # noqa: E402
import make_tiny_model  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

LINES = make_lists.DEFAULT_OUTPUT.read_text(encoding="utf-8").splitlines()
ROWS: list[dict[str, Any]] = [json.loads(line) for line in LINES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as the script saves it, untrained."""
    folder = tmp_path_factory.mktemp("tiny")
    tokenizer = make_tiny_model.make_tokenizer()
    make_tiny_model.save(make_tiny_model.make_model(tokenizer), tokenizer, folder)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    """The tokenizer as anyone loads it."""
    return AutoTokenizer.from_pretrained(folder)


def test_prompts_survive_the_tokenizer(tokenizer: Any) -> None:
    """Every problem in the chat template decodes to itself, one token a word."""
    for row in ROWS:
        messages = [{"role": "user", "content": row["problem"]}]
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text)["input_ids"]

        assert tokenizer.decode(ids) == text
        assert make_tiny_model.prompt_ids(tokenizer, row["problem"]) == ids
        assert spelled_out(tokenizer, ids) == []


def test_answers_survive_the_tokenizer(tokenizer: Any) -> None:
    """Every reference program in its fence decodes to itself, one token a piece."""
    for row in ROWS:
        (solution,) = json.loads(row["solutions"])
        answer = make_tiny_model.answer(make_lists.steps_of(row["problem"]))
        ids = tokenizer(answer)["input_ids"]

        assert answer == f"```python\n{solution}```"
        assert tokenizer.decode(ids, skip_special_tokens=True) == answer
        assert spelled_out(tokenizer, ids) == []


def spelled_out(tokenizer: Any, ids: list[int]) -> list[str]:
    """Return what has no token of its own and is spelled in bytes."""
    return [tokenizer.decode([i]) for i in ids if 0 < i <= make_tiny_model.BYTES]


def test_any_text_survives_the_tokenizer(tokenizer: Any) -> None:
    """Text without words of ours is spelled in bytes; nothing is unknown."""
    text = "Ångström\r\n\tif x:  # 你好 \N{SNAKE}"

    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_saved_tokenizer_is_the_made_one(tokenizer: Any) -> None:
    """Loading gives the same tokens, an end, and padding that is not the end."""
    made = make_tiny_model.make_tokenizer()

    assert tokenizer.get_vocab() == made.get_vocab()
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_the_saved_model_loads_and_answers(folder: Path, tokenizer: Any) -> None:
    """It is a Qwen2 of about half a million parameters with quantisable linear layers."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    ids = torch.tensor([make_tiny_model.prompt_ids(tokenizer, ROWS[0]["problem"])])

    assert model.config.model_type == "qwen2"
    assert 400_000 < model.num_parameters() < 600_000
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generate(ids, max_new_tokens=2, do_sample=False).shape[1] > ids.shape[1]
    for name, module in model.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            assert module.in_features % 64 == 0, name  # nf4's blocks


def test_only_training_rows_are_taught() -> None:
    """The supervised data holds no held-out problem, by text or by tests."""
    taught = make_tiny_model.training_problems(make_lists.DEFAULT_OUTPUT)
    held_out = [row for row in ROWS if row["split"] == "test"]

    assert len(taught) == 400
    for column in ("problem", "tests"):
        assert not {row[column] for row in taught} & {row[column] for row in held_out}


def test_the_teacher_is_wrong_now_and_then() -> None:
    """Taught answers are programs of as many lines, of which about a third are right."""
    teacher = make_tiny_model.Teacher(Random(1))
    right = 0
    for row in ROWS[:400]:
        steps = make_lists.steps_of(row["problem"])
        taught = teacher.answer(steps)
        compile(taught.removeprefix("```python\n").removesuffix("```"), "taught", "exec")
        assert taught.count("\n") == len(steps) + 2
        right += taught == make_tiny_model.answer(steps)

    assert 0.2 < right / 400 < 0.5


def test_batches_teach_answers_only() -> None:
    """Labels cover the answer and its end; prompts and padding have none."""
    tokenizer = make_tiny_model.make_tokenizer()
    pairs = [(row["problem"], json.loads(row["solutions"])[0]) for row in ROWS[:3]]

    batch = make_tiny_model.batch(tokenizer, pairs)

    for (problem, said), ids, labels, mask in zip(
        pairs, batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True
    ):
        assert tokenizer.decode(labels[labels != -100]) == said + "<|im_end|>"
        assert (ids[labels != -100] == labels[labels != -100]).all()
        assert tokenizer.decode(ids[(labels == -100) & (mask == 1)]).count(problem) == 1
        assert (ids[mask == 0] == tokenizer.pad_token_id).all()


def test_a_wrong_program_is_not_solved() -> None:
    """The script's own measure fails a program that prints the wrong thing, or crashes."""
    row = ROWS[0]
    tests = json.loads(row["tests"])
    right = make_tiny_model.answer(make_lists.steps_of(row["problem"]))

    assert make_tiny_model.passes(right, tests)
    assert not make_tiny_model.passes(right.replace("print(", "print(1, "), tests)
    assert not make_tiny_model.passes("```python\nprint(a)\n```", tests)
