"""Settings files: YAML to `ServerConfig`, strict, with the path and the nearest known key.

Owns yaml and cattrs. Every fault of a file is told at once, each in one line.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from attrs import fields
from cattrs import Converter

from .config import Limits, ServerConfig
from .errors import ConfigError

__all__ = ["json_object", "load_settings", "nearest", "read_token"]

T = TypeVar("T")


def load_settings(path: str) -> dict[str, Any]:
    """Return the fields of `ServerConfig` that a YAML file sets, with `limits` as `Limits`.

    Raises:
        ConfigError: The file cannot be read, is no mapping, or has unknown or ill-typed keys.
    """
    try:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--config {path}: expected YAML: {' '.join(str(error).split())}"
        ) from None
    if not isinstance(document, dict):
        raise ConfigError(f"--config {path}: expected a mapping of settings, got {document!r:.40}")
    faults: list[str] = []
    limits = document.pop("limits", {})
    settings = _fields(ServerConfig, document, "", faults)
    if isinstance(limits, dict):
        settings["limits"] = Limits(**_fields(Limits, limits, "limits.", faults))
    else:
        faults.append(f"limits: expected a mapping, got {limits!r:.40}")
    if faults:
        raise ConfigError(f"--config {path}: " + "; ".join(faults))
    return settings


def _fields(
    owner: type[Any], values: Mapping[Any, Any], path: str, faults: list[str]
) -> dict[str, Any]:
    known = {attribute.name: attribute for attribute in fields(owner)}
    known.pop("token", None)
    result: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            faults.append(f"{path}{key}: unknown key{nearest(str(key), known)}")
            continue
        try:
            result[key] = _converter.structure(value, _TYPES[str(known[key].type)])
        except (TypeError, ValueError) as error:
            faults.append(f"{path}{key}: {error}")
    return result


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` for the closest known name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def json_object(text: str, option: str) -> dict[str, Any]:
    """Return the JSON object that an option's value gives.

    Raises:
        ConfigError: It is none.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{option}: expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{option}: expected a JSON object, got {text!r:.60}")
    return value


def read_token(path: str) -> str:
    """Return the token that a file holds.

    Raises:
        ConfigError: The file cannot be read or is empty.
    """
    try:
        token = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {path}: cannot be read: {error}") from None
    if not token:
        raise ConfigError(f"--token-file {path}: expected a token, the file is empty")
    return token


def _exactly(expected: type[T], name: str) -> Any:
    def structure(value: Any, _: type[T]) -> T:
        # cattrs would take "7", 1.9 and true for an integer.
        if expected is float and type(value) is int:
            value = float(value)
        if type(value) is not expected:
            raise TypeError(f"expected {name}, got {value!r:.40}")
        result: T = value
        return result

    return structure


def _texts(value: Any, _: type[tuple[str, ...]]) -> tuple[str, ...]:
    # cattrs would take a text for the list of its letters.
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise TypeError(f"expected a list of texts, got {value!r:.40}")
    return tuple(value)


def _mapping(value: Any, _: type[dict[str, Any]]) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise TypeError(f"expected a mapping with texts as keys, got {value!r:.40}")
    return value


_converter = Converter(detailed_validation=False)
_converter.register_structure_hook(bool, _exactly(bool, "true or false"))
_converter.register_structure_hook(int, _exactly(int, "an integer"))
_converter.register_structure_hook(float, _exactly(float, "a number"))
_converter.register_structure_hook(str, _exactly(str, "a text"))
_converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _texts)
_converter.register_structure_hook_func(lambda kind: kind == dict[str, Any], _mapping)

# attrs keeps postponed annotations as strings; these are all that the settings use.
_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "str | None": str | None,
    "tuple[str, ...]": tuple[str, ...],
    "Mapping[str, Any]": dict[str, Any],
}
