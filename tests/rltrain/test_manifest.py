"""Manifests: what loads, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rltrain.errors import ManifestError
from rltrain.manifest import Manifest, without_secret
from rltrain.manifest_file import parse_manifest, read_manifest

TUTORIAL = """
algorithm:
    name: CISPO
    batch_size: 2
    group_size: 4
    lr: 0.00002
    max_output_tokens: 512
    use_vllm: true
    quantization: nf4
    vllm_config:
        gpu_memory_utilization: 0.7
        max_num_seqs: 8
        sleep_mode: true
environment:
    env_type: rollout
    env_url: http://127.0.0.1:8000
    max_turns: 1
    max_reward: 1.0
    request_timeout_s: 600
training:
    max_steps: 16
    pop_size: 1
network:
    pretrained_model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
    lora_config:
        lora_r: 8
        lora_alpha: 32
        target_modules: [q_proj, k_proj, v_proj, o_proj, up_proj, down_proj, gate_proj]
        task_type: CAUSAL_LM
"""


def parse(*overrides: str, text: str = TUTORIAL) -> tuple[Manifest, list[str]]:
    return parse_manifest(yaml.safe_load(text), source="m.yaml", overrides=overrides)


def faults(*overrides: str) -> list[str]:
    """Return the faults of the tutorial's manifest with overrides."""
    with pytest.raises(ManifestError) as caught:
        parse(*overrides)
    return list(caught.value.faults)


def test_the_tutorial_loads_unchanged() -> None:
    """Values are those of the file, without a warning; what it leaves out has its default."""
    manifest, warnings = parse()

    assert warnings == []
    assert manifest.algorithm.rollouts == 8
    assert manifest.algorithm.lr == 2e-5
    assert manifest.algorithm.importance_cap == 5.0
    assert manifest.environment.urls == ("http://127.0.0.1:8000",)
    assert manifest.environment.request_timeout_s == 600
    assert manifest.network.lora_config.target_modules[0] == "q_proj"
    assert manifest.training.evaluation_interval == 10


def test_numbers_may_be_texts() -> None:
    """YAML 1.1 reads `2e-5` as a text; it is a number all the same."""
    assert yaml.safe_load("2e-5") == "2e-5"
    assert parse("algorithm.lr=2e-5")[0].algorithm.lr == 2e-5
    assert parse('algorithm.batch_size="4"')[0].algorithm.batch_size == 4


def test_all_faults_come_at_once() -> None:
    """Each has its path, what was expected and what came; defaults do not add faults of theirs."""
    found = faults(
        "algorithm.lr=fast",
        "algorithm.batchsize=3",
        "algorithm.group_size=1",
        "training.max_steps=0.5",
        "environment.env_url=[ftp://host]",
        "network.lora_config.lora_rank=8",
    )

    assert sorted(found) == [
        "algorithm.batchsize: unknown key; did you mean batch_size?",
        "algorithm.group_size: expected at least 2, got 1",
        "algorithm.lr: expected a number, got 'fast'",
        "environment.env_url: expected http://host:port or https://…, got the scheme 'ftp'",
        "network.lora_config.lora_rank: unknown key; did you mean lora_r?",
        "training.max_steps: expected a whole number, got 0.5",
    ]


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("algorithm.name=PPO", "algorithm.name: expected CISPO or GRPO, got 'PPO'"),
        ("algorithm.is_cap=1", "algorithm.is_cap: expected above 1, got 1.0"),
        ("algorithm.batch_size=true", "algorithm.batch_size: expected a whole number, got True"),
        ("algorithm.lr=.nan", "algorithm.lr: expected a number, got nan"),
        ("algorithm.use_vllm=1", "algorithm.use_vllm: expected true or false, got 1"),
        ("algorithm.quantization=nf8", "algorithm.quantization: expected one of none, nf4, int8"),
        ("algorithm.adv_norm=std", "algorithm.adv_norm: expected mean_only or mean_std, got 'std'"),
        ("environment.env_url=http://host:port", "environment.env_url: expected http://host:port"),
        ("environment.env_url=null", "environment: expected either env_url or entrypoint"),
        ("environment.entrypoint=m:f", "environment: expected either env_url or entrypoint"),
        ("environment.max_turns=null", "environment.max_turns: missing"),
        ("environment.env_config={a: 1}", "environment.env_config: needs entrypoint"),
        ("environment.env_type=gym", "environment.env_type: expected rollout, got 'gym'"),
        ("network.max_context_length=512", "algorithm.max_output_tokens: expected less than"),
        ("training.pop_size=4", "training.pop_size: expected 1"),
        ("training.eval_loop=some", "training.eval_loop: expected a whole number or 'all'"),
        ("training.max_steps=null", "training.max_steps: expected a whole number, got None"),
        ("network.pretrained_model_name_or_path=''", "network.pretrained_model_name_or_path: miss"),
        ("training=3", "training: expected a mapping, got 3"),
        ("nonsense", "--set nonsense: expected section.key=value"),
    ],
)
def test_each_rule_has_its_words(override: str, fault: str) -> None:
    """One broken rule gives one line that begins with the path."""
    found = faults(override)

    assert any(line.startswith(fault) for line in found), found


def test_two_names_of_the_cap_exclude_each_other() -> None:
    """is_cap and clip_coef together are refused; clip_coef alone gives 1 + clip_coef."""
    assert parse("algorithm.clip_coef=3")[0].algorithm.importance_cap == 4.0
    assert faults("algorithm.clip_coef=3", "algorithm.is_cap=4")


@pytest.mark.parametrize(
    ("override", "warning"),
    [
        ("algorithm.torch_compiler=default", "algorithm.torch_compiler: rltrain has no use"),
        ("mutation={a: 1}", "mutation: rltrain has no use for this key of AgileRL"),
        ("algorithm.top_p=0.9", "algorithm.top_p/top_k/min_p: truncated sampling biases"),
        ("algorithm.use_vllm=false", "algorithm.vllm_config: means nothing without use_vllm"),
    ],
)
def test_some_choices_only_warn(override: str, warning: str) -> None:
    """AgileRL's other keys and truncated sampling are allowed, with one line each."""
    _, warnings = parse(override)

    assert len(warnings) == 1
    assert warnings[0].startswith(warning)


@pytest.mark.parametrize(
    ("content", "words"),
    [("a: [", "is not YAML"), ("- 1", "manifest: expected a mapping"), ("", "missing")],
)
def test_files_that_are_no_manifest(tmp_path: Path, content: str, words: str) -> None:
    """Broken YAML, another shape and an empty file are refused with the file's name."""
    path = tmp_path / "m.yaml"
    path.write_text(content)

    with pytest.raises(ManifestError, match=words) as caught:
        read_manifest(path)

    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is a fault, not a traceback."""
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifest(tmp_path / "none.yaml")


@pytest.mark.parametrize("value", [{"load_in_4bit": True}, "int8", "none"])
def test_quantisation_is_a_preset_or_a_mapping(value: Any) -> None:
    """Presets by name; a mapping is handed to BitsAndBytesConfig."""
    content = yaml.safe_load(TUTORIAL)
    content["algorithm"]["quantization"] = value
    manifest, _ = parse_manifest(content, source="m.yaml")

    assert manifest.algorithm.quantization == value


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://user:secret@host/a", "https://host/a"),
        ("https://secret@host:8000", "https://host:8000"),
        ("http://host:8000/t/secret", "http://host:8000/t/…"),
    ],
)
def test_urls_are_shown_without_their_secrets(url: str, shown: str) -> None:
    """Neither userinfo nor a token in the path is ever printed."""
    assert without_secret(url) == shown
