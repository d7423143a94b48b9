"""Whole runs: real servers, a real tiny model, from the manifest to the run's folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

torch = pytest.importorskip("torch")

from attrs import fields  # noqa: E402

from rltrain import preflight  # noqa: E402
from rltrain.errors import RunStopped, SetupError  # noqa: E402
from rltrain.launch import Launch  # noqa: E402
from rltrain.learner import Learner  # noqa: E402
from rltrain.manifest_file import read_manifest  # noqa: E402
from rltrain.metrics import EvaluationRecord, StepRecord, read_records  # noqa: E402
from rltrain.ranks import Place  # noqa: E402

pytestmark = pytest.mark.train

MakeManifest = Callable[..., Path]


@pytest.fixture
def make_manifest(tmp_path: Path, tiny_model: Path, words_entrypoint: str) -> MakeManifest:
    """Return a function that writes a manifest of three steps of 2 × 4, with changes."""

    def make(**sections: dict[str, Any]) -> Path:
        content: dict[str, dict[str, Any]] = {
            "algorithm": {
                "name": "CISPO",
                "batch_size": 2,
                "group_size": 4,
                "lr": 1e-2,
                "max_grad_norm": 1.0,
                "max_output_tokens": 6,
                "quantization": "nf4",
            },
            "environment": {"entrypoint": words_entrypoint, "max_turns": 1, "max_reward": 1.0},
            "training": {"max_steps": 24, "eval_loop": "all"},
            "network": {"pretrained_model_name_or_path": str(tiny_model)},
        }
        for name, changes in sections.items():
            content[name].update(changes)
            content[name] = {k: v for k, v in content[name].items() if v is not None}
        path = tmp_path / "manifest.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return make


def run(manifest: Path, folder: Path, *, is_resumed: bool = False) -> Launch:
    """Train in this process."""
    values, _ = read_manifest(manifest)
    launch = Launch(
        manifest=values,
        source=manifest,
        folder=folder,
        device=torch.device("cpu"),
        is_resumed=is_resumed,
    )
    launch.run()
    return launch


def start(manifest: Path, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Train in another process."""
    return subprocess.Popen(
        [sys.executable, "-m", "rltrain", str(manifest), "--output", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )


def finish(process: subprocess.Popen[str], timeout: float = 120) -> str:
    output, _ = process.communicate(timeout=timeout)
    return output


def wait_for_steps(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Return when so many steps are logged."""
    give_up_at = time.monotonic() + 120
    while len(read_records(folder / "metrics.jsonl")) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_a_run_leaves_its_folder(
    make_manifest: MakeManifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Banner, one line a step with every key, evaluations before and after, adapter, curve."""
    folder = tmp_path / "run"

    run(make_manifest(), folder)

    output = capsys.readouterr().out
    assert "Algorithm: CISPO | Env: http://127.0.0.1:" in output
    assert "| Pop size: 1 | Steps: 24 | Device: cpu" in output
    metrics = read_records(folder / "metrics.jsonl")
    assert [record["step"] for record in metrics] == [1, 2, 3]
    assert [record["turns"] for record in metrics] == [8, 16, 24]
    assert set(metrics[0]) == {field.name for field in fields(StepRecord)}
    assert all(record["policy_gap"] < 1e-4 for record in metrics if record["optimiser_steps"])
    assert sum(metrics[0]["verdicts"].values()) == 8
    evaluations = read_records(folder / "evaluations.jsonl")
    assert [record["step"] for record in evaluations] == [0, 3]
    assert set(evaluations[0]) == {field.name for field in fields(EvaluationRecord)}
    assert evaluations[0]["episodes"] == 4
    for name in ("adapter/adapter_model.safetensors", "reward.png", "samples.md", "manifest.yaml"):
        assert (folder / name).stat().st_size > 0
    with pytest.raises(SetupError, match="already holds a run"):
        run(make_manifest(), folder)


def test_several_turns_and_the_other_loss(make_manifest: MakeManifest, tmp_path: Path) -> None:
    """Two turns an episode count twice; GRPO, int8, KL and mini-batches run through."""
    manifest = make_manifest(
        algorithm={"name": "GRPO", "quantization": "int8", "beta": 0.01, "mini_batch_size": 4},
        environment={"max_turns": 2, "env_config": {"turns": 2}},
    )

    run(manifest, tmp_path / "run")

    metrics = read_records(tmp_path / "run" / "metrics.jsonl")
    assert [record["turns"] for record in metrics] == [16, 32]
    samples = read_records(tmp_path / "run" / "samples.jsonl")
    assert all(len(sample["turns"]) == 2 for sample in samples)


COMPARED = [
    name
    for name in (field.name for field in fields(StepRecord))
    if not name.endswith(("_seconds", "_per_second", "_bytes"))
]


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_bit(make_manifest: MakeManifest, tmp_path: Path) -> None:
    """Three steps, SIGKILL, and the rest equal a run that was never stopped, byte for byte."""
    changes = {"max_steps": 48, "checkpoint_steps": 1, "evaluation_interval": 2}
    manifest = make_manifest(training=changes, algorithm={"mini_batch_size": 4})
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    killed = start(manifest, parts)
    wait_for_steps(parts, 3, killed)
    killed.kill()
    finish(killed)
    reached = len(read_records(parts / "metrics.jsonl"))

    run(manifest, parts, is_resumed=True)
    run(manifest, whole)

    assert reached < 6
    ours, theirs = (read_records(folder / "metrics.jsonl") for folder in (parts, whole))
    assert len(ours) == len(theirs) == 6
    for one, other in zip(ours, theirs, strict=True):
        assert {name: one[name] for name in COMPARED} == {name: other[name] for name in COMPARED}
    for name in ("evaluations.jsonl", "samples.jsonl"):
        one, other = (
            [{**record, "seconds": 0} for record in read_records(folder / name)]
            for folder in (parts, whole)
        )
        assert one == other
    for name in (
        "adapter/adapter_model.safetensors",
        "checkpoints/step-000006/adapter/adapter_model.safetensors",
        "checkpoints/step-000006/optimiser.pt",
        "checkpoints/step-000006/state.json",
    ):
        assert (parts / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.slow
def test_sigterm_ends_after_the_step_with_a_checkpoint(
    make_manifest: MakeManifest, tmp_path: Path
) -> None:
    """The step under way is finished and saved; the last line says how to go on."""
    process = start(make_manifest(training={"max_steps": 8000}), tmp_path / "run")
    wait_for_steps(tmp_path / "run", 1, process)

    process.send_signal(signal.SIGTERM)
    output = finish(process)

    assert process.returncode == 0
    assert f"--resume --output {tmp_path / 'run'}" in output
    (newest,) = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1:]
    state = json.loads((newest / "state.json").read_text())
    assert state["step"] == len(read_records(tmp_path / "run" / "metrics.jsonl"))


@pytest.mark.slow
def test_a_killed_trainer_leaves_no_server(make_manifest: MakeManifest, tmp_path: Path) -> None:
    """After SIGKILL the run's own server is gone too."""
    process = start(make_manifest(training={"max_steps": 8000}), tmp_path / "run")
    wait_for_steps(tmp_path / "run", 1, process)
    (server,) = psutil.Process(process.pid).children()
    assert "serve" in server.cmdline()

    process.kill()
    finish(process)

    assert psutil.wait_procs([server], timeout=30)[1] == []


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"environment": {"entrypoint": "no_such_module:x"}}, "no_such_module"),
        (
            {"environment": {"entrypoint": None, "env_url": "http://127.0.0.1:9"}},
            "environment server: ",
        ),
        ({"network": {"pretrained_model_name_or_path": "/no/such/model"}}, "/no/such/model"),
    ],
)
def test_what_is_missing_is_said_before_training(
    make_manifest: MakeManifest, tmp_path: Path, sections: dict[str, Any], words: str
) -> None:
    """No environment, no server, no model: one line each."""
    with pytest.raises(SetupError, match=words):
        run(make_manifest(**sections), tmp_path / "run")


def test_a_missing_vllm_comes_with_the_way_to_install_it(
    make_manifest: MakeManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line before anything starts, for machines with a GPU and without."""
    monkeypatch.setattr(preflight, "is_installed", lambda: False)

    with pytest.raises(
        SetupError, match=r"vLLM is not installed: pip install 'envhost\[train,vllm\]'.*cpu\.sh"
    ):
        run(make_manifest(algorithm={"use_vllm": True}), tmp_path / "run")


def test_a_server_that_is_too_small_is_refused_with_the_numbers(
    make_manifest: MakeManifest,
    tmp_path: Path,
    start_server: Callable[..., Any],
    words_entrypoint: str,
) -> None:
    """The preflight counts sessions before anything is loaded."""
    server = start_server(words_entrypoint, "--max-concurrent-envs", "4")
    manifest = make_manifest(environment={"entrypoint": None, "env_url": server.url})

    with pytest.raises(
        SetupError,
        match=r"8 rollout sessions \+ 1 for evaluation needed, server allows 4: raise --max-conc",
    ):
        run(manifest, tmp_path / "run")


def test_the_command_line_fails_in_words(make_manifest: MakeManifest, tmp_path: Path) -> None:
    """A broken manifest is exit status 2 with every fault and no traceback, without torch."""
    manifest = make_manifest(algorithm={"group_size": 1, "learning_rate": 3})

    process = start(manifest, tmp_path / "run")
    output = finish(process)

    assert process.returncode == 2
    assert output.splitlines() == [
        f"rltrain: {manifest}: 2 faults",
        "  algorithm.group_size: expected at least 2, got 1",
        "  algorithm.learning_rate: unknown key; expected one of "
        + output.rpartition("expected one of ")[2].strip(),
    ]


@pytest.mark.slow
def test_check_tells_what_would_run(make_manifest: MakeManifest, tmp_path: Path) -> None:
    """`--check` does the preflight alone: no folder, no training."""
    process = start(make_manifest(), tmp_path / "run", "--check")
    output = finish(process)

    assert process.returncode == 0, output
    assert "Sessions: 8 for rollouts and 1 for evaluation; problems: 4 for training" in output
    assert "Plan: 3 training steps of 2 groups × 4 rollouts" in output
    assert not (tmp_path / "run").exists()


def test_a_policy_gap_stops_the_run(make_manifest: MakeManifest, tmp_path: Path) -> None:
    """A limit below rounding stops after the first step that trained, and says why."""
    manifest = make_manifest(
        training={"max_policy_gap": 1e-12},
        environment={"env_config": {"any_word": True}},
        algorithm={"batch_size": 8},
    )

    with pytest.raises(RunStopped, match="not the same policy"):
        run(manifest, tmp_path / "run")


def test_the_token_is_asked_for_before_training(
    make_manifest: MakeManifest,
    tmp_path: Path,
    start_server: Callable[..., Any],
    words_entrypoint: str,
) -> None:
    """Without the server's token the preflight refuses; with it the run goes through."""
    token_file = tmp_path / "token"
    token_file.write_text("open-sesame-0123456789\n")
    server = start_server(words_entrypoint, "--token-file", str(token_file))
    place: dict[str, Any] = {"entrypoint": None, "env_url": server.url}

    with pytest.raises(SetupError, match="token"):
        run(make_manifest(environment=place), tmp_path / "refused")
    place["env_token_file"] = str(token_file)
    run(make_manifest(environment=place), tmp_path / "run")

    assert len(read_records(tmp_path / "run" / "metrics.jsonl")) == 3


def test_an_update_that_fails_keeps_its_rows(
    make_manifest: MakeManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the gradient is not finite the run stops and the batch is there to look into."""

    def fail(*_: Any, **__: Any) -> None:
        raise RunStopped("the gradient's norm is nan: no weight was changed")

    monkeypatch.setattr(Learner, "update", fail)
    manifest = make_manifest(environment={"env_config": {"any_word": True}})

    with pytest.raises(RunStopped, match="nan"):
        run(manifest, tmp_path / "run")

    rows = (tmp_path / "run" / "failed-batch.jsonl").read_text().splitlines()
    assert all("behaviour_logprobs" in json.loads(row)["transcript"] for row in rows)
    assert (tmp_path / "run" / "report.html").exists()


def test_running_out_of_memory_names_the_knobs(
    make_manifest: MakeManifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's error becomes a line that says what to lower."""

    def fail(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(Learner, "update", fail)

    with pytest.raises(RunStopped, match=r"2\.00 GiB.*micro_batch_size_per_gpu"):
        run(make_manifest(), tmp_path / "run")


def test_ranks_that_cannot_share_the_groups_are_refused(
    make_manifest: MakeManifest, tmp_path: Path
) -> None:
    """Two groups and three processes: a group would have to be split."""
    values, _ = read_manifest(make_manifest())
    launch = Launch(
        manifest=values,
        source=tmp_path / "manifest.yaml",
        folder=tmp_path / "run",
        device=torch.device("cpu"),
        place=Place(rank=1, world_size=3, local_rank=1, local_world_size=3),
    )

    with pytest.raises(SetupError, match=r"batch_size: expected a multiple of the 3 processes"):
        launch.run()


@pytest.mark.slow
def test_a_server_that_is_restarted_is_waited_for(
    make_manifest: MakeManifest,
    tmp_path: Path,
    start_server: Callable[..., Any],
    words_entrypoint: str,
) -> None:
    """The server is killed in the middle and comes back: the run goes on, no reward is lost."""
    server = start_server(words_entrypoint)
    manifest = make_manifest(
        environment={"entrypoint": None, "env_url": server.url}, training={"max_steps": 800}
    )
    process = start(manifest, tmp_path / "run")
    wait_for_steps(tmp_path / "run", 2, process)

    server.stop(signal.SIGKILL)
    start_server(words_entrypoint, "--port", str(server.port))
    before = len(read_records(tmp_path / "run" / "metrics.jsonl"))
    wait_for_steps(tmp_path / "run", before + 2, process)
    process.send_signal(signal.SIGTERM)
    finish(process)

    assert process.returncode == 0
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("turns", [1, 2])
def test_the_reward_rises(make_manifest: MakeManifest, tmp_path: Path, turns: int) -> None:
    """From random weights the policy learns to say one of the words, in every turn."""
    manifest = make_manifest(
        environment={"max_turns": turns, "env_config": {"any_word": True, "turns": turns}},
        algorithm={"batch_size": 4, "group_size": 8, "mini_batch_size": 16},
        training={"max_steps": 32 * 12 * turns},
    )

    run(manifest, tmp_path / "run")

    rewards = [r["reward_mean"] for r in read_records(tmp_path / "run" / "metrics.jsonl")]
    assert len(rewards) == 12
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.3 * turns
