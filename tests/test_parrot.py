"""The tiny model of several turns: what it is taught is what it is asked, and it learns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

pytestmark = pytest.mark.train
pytest.importorskip("torch")

import make_parrot  # noqa: E402
import make_tiny_model  # noqa: E402

from rltrain.chat import Chat  # noqa: E402

ROOT = Path(__file__).parent.parent


def test_games_are_taught_as_they_are_played() -> None:
    """The trainer's prompt and suffixes are the tokens of the taught game, a word each."""
    tokenizer = make_tiny_model.make_tokenizer(make_parrot.words())
    game = make_parrot.Teacher(Random(3)).play()
    taught, labels = make_parrot.encode(tokenizer, game)
    chat = Chat(tokenizer)

    ids = chat.prompt_ids(game[0][0])
    for turn, (_, answer) in enumerate(game):
        ids += tokenizer.encode(answer + make_tiny_model.END)
        if turn + 1 < len(game):
            ids += chat.suffix_ids(ids[-1], game[turn + 1][0])

    assert ids == taught
    learned = [token for token, label in zip(taught, labels, strict=True) if label != -100]
    assert tokenizer.decode(learned) == "".join(a + make_tiny_model.END for _, a in game)
    assert [
        i for i in taught if 0 < i <= make_tiny_model.BYTES and tokenizer.decode([i]) != "\n"
    ] == []


@pytest.mark.slow
def test_a_model_learns_to_play_several_turns(tmp_path: Path) -> None:
    """The example manifest raises the share of held-out games that are played to their end."""
    model, run = tmp_path / "model", tmp_path / "run"
    subprocess.run([sys.executable, "scripts/make_parrot.py", model], check=True, cwd=ROOT)
    subprocess.run(
        [
            *(sys.executable, "-m", "rltrain", "scripts/repeat.yaml", "--output", run),
            *("--set", f"network.pretrained_model_name_or_path={model}"),
        ],
        check=True,
        cwd=ROOT,
    )
    before, *_, after = map(json.loads, (run / "evaluations.jsonl").read_text().splitlines())
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]

    assert before["solved"] < 0.4
    assert after["solved"] > 0.8
    assert max(len(sample["turns"]) for sample in samples) == 3
