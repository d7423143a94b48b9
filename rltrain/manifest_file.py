"""YAML to manifest: every fault at once, each with its path and the nearest known key.

Owns the reading of manifest files and of `--set` overrides; the values and rules are `manifest`'s.
"""

from __future__ import annotations

import difflib
import math
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import attrs
import yaml

from .errors import ManifestError
from .manifest import UNUSED_KEYS, Manifest, find_faults, find_warnings

__all__ = ["parse_manifest", "read_manifest"]

_INVALID = object()
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def read_manifest(path: Path, overrides: Sequence[str] = ()) -> tuple[Manifest, list[str]]:
    """Read a manifest file; return it and its warnings.

    Args:
        path: A YAML file.
        overrides: `section.key=value` each, the value as YAML; later ones win.

    Raises:
        ManifestError: The file cannot be read, or has faults; all of them are named.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(str(path), [f"cannot be read: {error}"]) from None
    except yaml.YAMLError as error:
        raise ManifestError(str(path), [f"is not YAML: {' '.join(str(error).split())}"]) from None
    return parse_manifest(content, source=str(path), overrides=overrides)


def parse_manifest(
    content: Any, *, source: str, overrides: Sequence[str] = ()
) -> tuple[Manifest, list[str]]:
    """Turn YAML's plain values into a manifest; return it and its warnings.

    Raises:
        ManifestError: Something is not as it should be; every fault is named.
    """
    faults: list[str] = []
    warnings: list[str] = []
    if content is None:
        content = {}
    if isinstance(content, dict):
        for override in overrides:
            _apply(content, override, faults)
    manifest = _structure(content, Manifest, "", faults, warnings)
    named = {fault.partition(":")[0] for fault in faults}
    faults += [fault for fault in find_faults(manifest) if fault.partition(":")[0] not in named]
    if faults:
        raise ManifestError(source, faults)
    return manifest, [*warnings, *find_warnings(manifest)]


def _apply(content: dict[str, Any], override: str, faults: list[str]) -> None:
    """Set one `a.b.c=value` in the nested mapping."""
    path, separator, text = override.partition("=")
    if not separator or not path:
        faults.append(f"--set {override}: expected section.key=value")
        return
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    *parents, key = path.strip().split(".")
    for parent in parents:
        inner = content.get(parent)
        if inner is None:
            inner = content[parent] = {}
        if not isinstance(inner, dict):
            faults.append(f"--set {override}: {parent} is not a section")
            return
        content = inner
    content[key] = value


def _structure(
    value: Any, cls: type[Any], path: str, faults: list[str], warnings: list[str]
) -> Any:
    """Return an instance of an attrs class; what has a fault is noted and left at its default."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        faults.append(f"{path or 'manifest'}: expected a mapping, got {_shown(value)}")
        value = {}
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    for key, item in value.items():
        inner = f"{path}.{key}" if path else str(key)
        if key not in hints:
            _unknown(str(key), path, inner, list(hints), faults, warnings)
            continue
        converted = _convert(item, hints[key], inner, faults, warnings)
        if converted is not _INVALID:
            values[key] = converted
            _check(converted, getattr(attrs.fields(cls), key).metadata, inner, faults)
    return cls(**values)


def _unknown(
    key: str, path: str, inner: str, known: list[str], faults: list[str], warnings: list[str]
) -> None:
    if key in UNUSED_KEYS.get(path, ()):
        warnings.append(f"{inner}: rltrain has no use for this key of AgileRL; ignored")
        return
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
    faults.append(f"{inner}: unknown key; {hint}")


def _check(value: Any, metadata: Mapping[str, Any], path: str, faults: list[str]) -> None:
    choices = metadata.get("choices")
    if choices and value not in choices:
        faults.append(f"{path}: expected {' or '.join(choices)}, got {_shown(value)}")
    if isinstance(value, int | float):
        for words, holds in metadata.get("rules", ()):
            if not holds(value):
                faults.append(f"{path}: expected {words}, got {_shown(value)}")


def _convert(value: Any, hint: Any, path: str, faults: list[str], warnings: list[str]) -> Any:
    """Return the value as the hint's type, or `_INVALID` after noting the fault."""
    options = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    if value is None and type(None) in options:
        return None
    nested = [option for option in options if attrs.has(option)]
    if nested:
        return _structure(value, nested[0], path, faults, warnings)
    for option in options:
        converted = _as(value, option)
        if converted is not _INVALID:
            return converted
    expected = " or ".join(_name(option) for option in options if option is not type(None))
    faults.append(f"{path}: expected {expected}, got {_shown(value)}")
    return _INVALID


def _as(value: Any, option: Any) -> Any:
    """Return the value as one simple type, `_INVALID` if it is none."""
    origin = get_origin(option)
    if origin is Literal:
        return value if value in get_args(option) else _INVALID
    if origin is tuple:
        is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return tuple(value) if is_texts and value else _INVALID
    if option in (int, float):
        return _number(value, option)
    if origin is not None or option is Mapping:
        return value if isinstance(value, dict) else _INVALID
    return value if isinstance(value, option) else _INVALID


def _number(value: Any, kind: type[int | float]) -> Any:
    """Return a number; texts count, since YAML 1.1 reads `2e-5` as one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _INVALID
    try:
        number = float(value)
    except ValueError:
        return _INVALID
    if not math.isfinite(number):
        return _INVALID
    if kind is float:
        return number
    return int(number) if number.is_integer() else _INVALID


def _name(option: Any) -> str:
    if get_origin(option) is Literal:
        return " or ".join(repr(choice) for choice in get_args(option))
    if get_origin(option) is tuple:
        return "a list of texts"
    return _WORDS.get(option, "a mapping")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
