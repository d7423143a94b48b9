"""Several processes: what they agree on, and that their number and engine change no result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from ports import free_port

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from rltrain.errors import SetupError  # noqa: E402
from rltrain.launch import Launch  # noqa: E402
from rltrain.manifest_file import read_manifest  # noqa: E402
from rltrain.metrics import read_records  # noqa: E402
from rltrain.ranks import Place, Ranks  # noqa: E402

pytestmark = pytest.mark.train

HERE = Path(__file__).parent
ENGINES = ["torch", "ZeRO 0", "ZeRO 1", "ZeRO 2", "ZeRO 2, offloaded"]


def torchrun(ranks: int, *arguments: object) -> list[str]:
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*program, "--nproc-per-node", str(ranks), *map(str, arguments)]


LAUNCHERS_OWN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "LOCAL_SIZE")


def start(command: list[str], **variables: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    # vLLM and DeepSpeed, at work in this process before, leave a launcher's variables behind.
    kept = {name: value for name, value in os.environ.items() if name not in LAUNCHERS_OWN}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**kept, "HF_HUB_OFFLINE": "1", "PYTHONPATH": path, **variables},
    )


def finish(process: subprocess.Popen[str], timeout: float = 300) -> str:
    """Return what a command said, or end it and all that it started."""
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        raise
    return output


def test_a_process_started_by_hand_is_the_only_one() -> None:
    """No launcher's variables: rank 0 of 1, and everything comes back as it is."""
    assert Place.of({}) == Place()
    ranks = Ranks()

    assert ranks.own([1, 2, 3]) == [1, 2, 3]
    assert ranks.gather("a") == ["a"]
    assert (ranks.any(True), ranks.any(False)) == (True, False)
    assert ranks.total([0.1]) == [0.1]
    assert ranks.from_leader(lambda: 7) == 7


def test_the_launchers_variables_say_who_one_is() -> None:
    """Torchrun's and DeepSpeed's names; numbers that are none are refused."""
    torchruns = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "8"}
    deepspeeds = {"RANK": "9", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_SIZE": "8"}

    expected = Place(rank=9, world_size=16, local_rank=1, local_world_size=8)
    assert Place.of(torchruns) == Place.of(deepspeeds) == expected
    assert not expected.is_leader
    with pytest.raises(SetupError, match="RANK is not set"):
        Place.of({"WORLD_SIZE": "2"})
    with pytest.raises(SetupError, match="RANK: expected a whole number"):
        Place.of({"WORLD_SIZE": "2", "RANK": "first"})


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_shares_are_the_whole_and_split_no_group(ranks: int) -> None:
    """Eight groups of three: each rank gets neighbouring whole groups, all of them together."""
    episodes = [group for group in range(8) for _ in range(3)]
    places = [Place(rank=rank, world_size=ranks, local_world_size=ranks) for rank in range(ranks)]

    shares = [Ranks(place).own(episodes) for place in places]

    assert [episode for share in shares for episode in share] == episodes
    assert all(share.count(group) in {0, 3} for share in shares for group in range(8))


@pytest.fixture(scope="module")
def outcomes(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what `ranks_program` found, alone and as each of two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    program = [HERE / "ranks_program.py", tiny_model, folder / "checkpoints", folder / "result"]
    for command in ([sys.executable, *map(str, program)], torchrun(2, *program)):
        process = start(command)
        output = finish(process)
        assert process.returncode == 0, output
        # Warnings would be the user's to read; nothing is compiled at the start.
        assert "Warning" not in output, output
        assert "ninja" not in output.lower(), output
    return {
        name: torch.load(folder / f"result-{name}.pt", weights_only=False)
        for name in ("1-0", "2-0", "2-1")
    }


@pytest.mark.slow
@pytest.mark.parametrize("who", ["1-0", "2-0", "2-1"])
@pytest.mark.parametrize("engine", ENGINES)
def test_updates_are_equal(outcomes: dict[str, Any], engine: str, who: str) -> None:
    """nf4 and LoRA, twelve optimiser steps: to 1e-5 those of plain torch in one process.

    Losses, entropies, norms, KL and gradients relative to their size; weights and AdamW's moments
    absolute, where one step at this learning rate is 1e-3.
    """
    expected = outcomes["1-0"]["updates"]["torch"]
    update = outcomes[who]["updates"][engine]

    assert update["figures"] == [pytest.approx(row, rel=1e-5) for row in expected["figures"]]
    if "offloaded" not in engine:  # whose gradients are in no place to look at
        assert len(update["gradients"]) == 12
        for ours, theirs in zip(update["gradients"], expected["gradients"], strict=True):
            assert float((ours - theirs).norm() / theirs.norm()) < 1e-5
    assert float((update["weights"] - expected["weights"]).abs().max()) < 1e-5
    states = update["state"]["state"], expected["state"]["state"]
    assert states[0].keys() == states[1].keys()
    for index in states[0]:
        assert float(states[0][index]["step"]) == 12
        for key in ("exp_avg", "exp_avg_sq"):
            assert states[0][index][key] == pytest.approx(states[1][index][key], abs=1e-5)
    print(f"{engine}, rank {who}: ready after {update['seconds']:.2f} s")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_two_ranks_go_on_from_the_checkpoint_of_one(outcomes: dict[str, Any], engine: str) -> None:
    """The third training step from plain torch's checkpoint gives the weights it gave there."""
    expected = outcomes["1-0"]["updates"]["torch"]["weights"]

    for who in ("2-0", "2-1"):
        assert float((outcomes[who]["resumed"][engine] - expected).abs().max()) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_no_rank_steps_along_a_gradient_of_nan(outcomes: dict[str, Any], engine: str) -> None:
    """The last rank's gradient alone is not finite: all stop, and no weight has changed."""
    for outcome in outcomes.values():
        assert outcome["refused"][engine].endswith("no weight was changed")


@pytest.mark.slow
def test_ranks_agree(outcomes: dict[str, Any]) -> None:
    """Shares, gathered values, decisions, sums, the first rank's results and its refusals."""
    first, second = (outcomes[who]["agreements"] for who in ("2-0", "2-1"))

    assert (first.pop("own"), second.pop("own")) == (["a", "b"], ["c", "d", "e"])
    assert first == second
    assert first == {
        "gather": [{"rank": 0}, {"rank": 1}],
        "any": [True, False],
        "total": [2.0, 4.0],
        "from_leader": 100,
        "failure": "no such thing",
    }


@pytest.fixture
def manifest(tmp_path: Path, tiny_model: Path, words_entrypoint: str) -> Path:
    """Return a manifest of four steps of 4 × 4."""
    path = tmp_path / "manifest.yaml"
    content = {
        "algorithm": {
            "batch_size": 4,
            "group_size": 4,
            "mini_batch_size": 5,
            "lr": 1e-3,
            "max_grad_norm": 1.0,
            "max_output_tokens": 6,
            "quantization": "nf4",
        },
        "environment": {
            "entrypoint": words_entrypoint,
            "env_config": {"any_word": True},
            "max_turns": 1,
            "max_reward": 1.0,
        },
        "training": {"max_steps": 64, "eval_loop": "all", "checkpoint_steps": 1},
        "network": {"pretrained_model_name_or_path": str(tiny_model)},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def run_alone(manifest: Path, folder: Path, *, is_resumed: bool = False) -> None:
    values, _ = read_manifest(manifest)
    launch = Launch(
        manifest=values,
        source=manifest,
        folder=folder,
        device=torch.device("cpu"),
        is_resumed=is_resumed,
    )
    assert launch.run()


COMPARED = ("step", "turns", "reward_mean", "episodes", "trained_tokens", "loss", "grad_norm")


def figures(folder: Path) -> list[Any]:
    records = read_records(folder / "metrics.jsonl")
    return [pytest.approx([record[key] or 0 for key in COMPARED], rel=1e-4) for record in records]


def adapter(folder: Path) -> Any:
    from safetensors.torch import load_file

    weights = load_file(folder / "adapter" / "adapter_model.safetensors")
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


@pytest.mark.slow
def test_a_run_does_not_depend_on_its_ranks(manifest: Path, tmp_path: Path) -> None:
    """A whole run by one process in plain torch and by two with ZeRO 1, and one by both in turn.

    The same problems, the same sampled answers, the same figures to 1e-4, the same adapter to 1e-4
    of one step; one rank writes. The run that two ranks began is finished by one alone.
    """
    whole, two, mixed = tmp_path / "whole", tmp_path / "two", tmp_path / "mixed"
    run_alone(manifest, whole)

    for folder, turns in ((two, 64), (mixed, 32)):
        overrides = ["--set", "algorithm.deepspeed=1", "--set", f"training.max_steps={turns}"]
        process = start(torchrun(2, "-m", "rltrain", manifest, "--output", folder, *overrides))
        output = finish(process)
        assert process.returncode == 0, output
        assert "Ranks: 2 | DeepSpeed: ZeRO 1" in output
        assert output.count("evaluation after step 0") == 1
    run_alone(manifest, mixed, is_resumed=True)

    samples = [
        [r for r in read_records(folder / "samples.jsonl") if not r["is_evaluation"]]
        for folder in (whole, two, mixed)
    ]
    assert len(samples[0]) == 4 * 4
    assert samples[0] == samples[1] == samples[2]
    for folder in (two, mixed):
        rows = [[r[key] or 0 for key in COMPARED] for r in read_records(folder / "metrics.jsonl")]
        assert rows == figures(whole)
        assert float((adapter(folder) - adapter(whole)).abs().max()) < 1e-4


CONFIG = HERE.parents[1] / "docs" / "configs" / "one-gpu.accelerate.yaml"
LAUNCHERS = {
    "accelerate": (
        ["accelerate", "launch", "--config_file", str(CONFIG), "-m"],
        "DeepSpeed: ZeRO 0",
    ),
    "deepspeed": (
        ["deepspeed", "--num_accelerators", "2", "--master_port", "{port}", "--module"],
        "Ranks: 2 | DeepSpeed: ZeRO 0",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LAUNCHERS)
def test_the_other_launchers_train(manifest: Path, tmp_path: Path, name: str) -> None:
    """`accelerate launch` with a DeepSpeed config, and DeepSpeed's own, with its --local_rank."""
    words, banner = LAUNCHERS[name]
    program, *arguments = [word.replace("{port}", str(free_port())) for word in words]
    own = ["rltrain", str(manifest), "--output", str(tmp_path / "run")]
    short = ["--set", "training.max_steps=16"]

    path = str(Path(sys.executable).parent / program)
    output = finish(process := start([path, *arguments, *own, *short], DS_ACCELERATOR="cpu"))

    assert process.returncode == 0, output
    assert banner in output
    assert len(read_records(tmp_path / "run" / "metrics.jsonl")) == 1


def wait_for_steps(folder: Path, count: int, process: subprocess.Popen[str]) -> None:
    give_up_at = time.monotonic() + 200
    while len(read_records(folder / "metrics.jsonl")) < count:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


@pytest.fixture
def long_run(manifest: Path, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Return a function that starts a run without end by two ranks, and gives its processes."""
    folder = tmp_path / "run"
    steps = ["--set", "training.max_steps=1600000"]
    process = start(torchrun(2, "-m", "rltrain", manifest, "--output", folder, *steps))

    def begin() -> tuple[subprocess.Popen[str], list[psutil.Process], psutil.Process]:
        wait_for_steps(folder, 2, process)
        ranks = psutil.Process(process.pid).children()
        ranks.sort(key=lambda rank: int(rank.environ()["RANK"]))
        (server,) = ranks[0].children()
        return process, ranks, server

    yield begin
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
    process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_rank_ends_the_others(long_run: Callable[[], Any], victim: int) -> None:
    """SIGKILL for one: the other ends with words and status 1, and the run's server with it."""
    process, ranks, server = long_run()

    ranks[victim].kill()
    output = finish(process, timeout=90)

    assert process.returncode == 1
    assert "rltrain: stopped: another rank ended without a word, killed perhaps" in output
    assert "Traceback" not in output.partition("torch/distributed/elastic")[0]
    assert psutil.wait_procs([*ranks, server], timeout=30)[1] == []


@pytest.mark.slow
def test_one_rank_ends_the_others_without_a_launcher() -> None:
    """One fails: the one in a collective says why, the one that does not listen is ended."""
    world = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, str(HERE / "failing_rank.py")]
    started = time.monotonic()
    ranks = [start(command, RANK=str(rank), **world) for rank in range(3)]

    outputs = [finish(rank, timeout=120) for rank in ranks]

    assert time.monotonic() - started < 120  # of the 300 that the third one sleeps
    assert [rank.returncode for rank in ranks] == [1, 1, 1]
    assert outputs[0] == "says: rank 1 ended: out of memory\n"
    assert outputs[1] == "says: out of memory\n"
    assert outputs[2].startswith("rltrain: stopped: rank ")
    assert "out of memory" in outputs[2]


@pytest.mark.slow
def test_one_rank_asked_to_stop_stops_all(long_run: Callable[[], Any], tmp_path: Path) -> None:
    """SIGTERM for the second rank alone: the step is finished and saved, status 0."""
    process, ranks, _ = long_run()

    ranks[1].send_signal(signal.SIGTERM)
    output = finish(process, timeout=90)

    assert process.returncode == 0, output
    assert "stopped on request" in output
    newest = max((tmp_path / "run" / "checkpoints").iterdir()).name
    records = read_records(tmp_path / "run" / "metrics.jsonl")
    assert newest == f"step-{len(records):06d}"


@pytest.mark.slow
def test_an_error_of_one_rank_is_shown_once(manifest: Path, tmp_path: Path) -> None:
    """Two ranks whose rollouts are all unscored say so once and leave a checkpoint."""
    broken = tmp_path / "broken.py"
    entrypoint = yaml.safe_load(manifest.read_text())["environment"]["entrypoint"]
    source = Path(entrypoint.rpartition(":")[0]).read_text()
    broken.write_text(source.replace("self.left -= 1", "raise OSError('no disk')"))
    change = ["--set", f"environment.entrypoint={broken}:Words"]
    folder = tmp_path / "run"

    process = start(torchrun(2, "-m", "rltrain", manifest, "--output", folder, *change))
    output = finish(process)

    assert process.returncode == 1
    assert output.count("16 of 16 rollouts were not scored") == 1, output
