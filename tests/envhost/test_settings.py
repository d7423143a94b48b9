"""Settings files: what they may say, and how their mistakes are told."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from envhost.config import Limits, ServerConfig
from envhost.errors import ConfigError
from envhost.settings import load_settings, nearest, read_token


def _load(tmp_path: Path, text: str) -> ServerConfig:
    file = tmp_path / "host.yaml"
    file.write_text(text)
    return ServerConfig(**load_settings(str(file)))


def test_a_file_sets_every_kind_of_field(tmp_path: Path) -> None:
    """Texts, numbers, flags, lists, the environment's options and the limits."""
    config = _load(
        tmp_path,
        "entrypoint: a:b\nenv_config: {split: train, rows: [1, 2]}\nport: 1234\n"
        "insecure_no_token: true\nallow_host: [one, two]\ntoken_file: null\n"
        "limits: {step_seconds: 3, reset_seconds: 0.5, queued_requests: 7}\n",
    )

    expected = ServerConfig(
        entrypoint="a:b",
        env_config={"split": "train", "rows": [1, 2]},
        port=1234,
        insecure_no_token=True,
        allow_host=("one", "two"),
        limits=evolve(Limits(), step_seconds=3.0, reset_seconds=0.5, queued_requests=7),
    )
    assert config == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot: 1", "prot: unknown key; did you mean port?"),
        ("1: 1", "1: unknown key"),
        ("token: secret-token", "token: unknown key"),
        ("port: '1'", "port: expected an integer, got '1'"),
        ("port: 1.5", "port: expected an integer, got 1.5"),
        ("port: true", "port: expected an integer, got True"),
        ("port:", "port: expected an integer, got None"),
        ("host: 1", "host: expected a text, got 1"),
        ("insecure_no_token: 'yes'", "insecure_no_token: expected true or false"),
        ("allow_host: lab.example", "allow_host: expected a list of texts, got 'lab.example'"),
        ("allow_host: [1]", "allow_host: expected a list of texts, got [1]"),
        ("env_config: [1]", "env_config: expected a mapping with texts as keys, got [1]"),
        ("env_config: {1: 2}", "env_config: expected a mapping with texts as keys"),
        ("limits: 3", "limits: expected a mapping, got 3"),
        ("limits:", "limits: expected a mapping, got None"),
        ("limits: {step: 1}", "limits.step: unknown key"),
        ("limits: {step_seconds: long}", "limits.step_seconds: expected a number, got 'long'"),
        ("[1]", "expected a mapping of settings"),
        ("", "expected a mapping of settings"),
        ("a: [", "expected YAML"),
        ("!!python/object/apply:os.getcwd []", "expected YAML"),
    ],
)
def test_a_mistake_is_told_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    """With the file, the key's path, what was expected and what came."""
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)

    message = str(caught.value)
    assert words in message
    assert "host.yaml" in message
    assert "\n" not in message
    assert "secret-token" not in message


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """Separated by semicolons."""
    with pytest.raises(ConfigError, match=r"prot: unknown.*hots: unknown.*limits\.stp"):
        _load(tmp_path, "prot: 1\nhots: a\nlimits: {stp: 1}")


@pytest.mark.parametrize("name", ["nowhere.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    """With the system's reason."""
    with pytest.raises(ConfigError, match="--config"):
        load_settings(str(tmp_path / name))


def test_bytes_that_are_no_text_are_no_yaml(tmp_path: Path) -> None:
    """And no traceback either."""
    file = tmp_path / "host.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="expected YAML"):
        load_settings(str(file))


def test_a_token_is_a_files_text_without_its_line_end(tmp_path: Path) -> None:
    """An empty file is a mistake, and so is none."""
    file = tmp_path / "token"
    file.write_text(" secret \n")
    assert read_token(str(file)) == "secret"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_token(str(file))
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(str(tmp_path / "nowhere"))


def test_the_nearest_name_is_offered_only_if_near() -> None:
    """Nothing is better than something far-fetched."""
    assert nearest("prot", ["port", "host"]) == "; did you mean port?"
    assert nearest("xyzzy", ["port", "host"]) == ""
