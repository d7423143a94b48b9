"""`python -m envhost serve`: start a server, print where it is, end it on a signal."""

from __future__ import annotations

import contextlib
import resource
from typing import Any

import click
from attrs import Attribute, fields

from ..config import Limits, ServerConfig
from ..embed import serve_in_foreground
from ..entrypoints import make_factory
from ..server import Server
from ..settings import json_object, load_settings, read_token
from ..telemetry import configure_logging

__all__ = ["serve"]

_LEVELS = ("debug", "info", "warning", "error")


def _options(command: Any) -> Any:
    """Add an option for each field of the settings that names one."""
    attributes: list[Attribute[Any]] = [*fields(ServerConfig), *fields(Limits)]
    for attribute in reversed(attributes):
        if "option" in attribute.metadata:
            command = _option(attribute)(command)
    return command


def _option(attribute: Attribute[Any]) -> Any:
    name, text = attribute.metadata["option"], attribute.metadata["help"]
    default = attribute.default
    if isinstance(default, bool):
        return click.option(name, attribute.name, is_flag=True, default=None, help=text)
    if isinstance(default, tuple):
        return click.option(name, attribute.name, multiple=True, default=None, help=text)
    shown = text if default is None else f"{text}  [default: {default}]"
    kind = (
        click.Choice(_LEVELS)
        if name == "--log-level"
        else str
        if default is None
        else type(default)
    )
    return click.option(name, attribute.name, type=kind, default=None, help=shown)


@click.command(short_help="Serve an environment to many clients.")
@click.argument("entrypoint", required=False)
@click.option("--env-config", metavar="JSON", help="Options of the environment, a JSON object.")
@click.option("--config", "config_file", metavar="FILE", help="YAML file with any of these.")
@_options
def serve(
    entrypoint: str | None, env_config: str | None, config_file: str | None, **given: Any
) -> None:
    """Serve ENTRYPOINT (module:callable or file.py:callable) to many clients.

    Without an entrypoint the bundled code environment is served. Each WebSocket session at /ws
    gets a fresh environment. Options given here win over those in --config FILE.
    """
    config = _settings(entrypoint, env_config, config_file, given)
    configure_logging(config.log_level)
    _raise_descriptor_limit()
    serve_in_foreground(Server(config, make_factory(config)))


def _settings(
    entrypoint: str | None, env_config: str | None, config_file: str | None, given: dict[str, Any]
) -> ServerConfig:
    settings = load_settings(config_file) if config_file else {}
    chosen = {name: value for name, value in given.items() if value not in (None, ())}
    limits = {name: chosen.pop(name) for name in [f.name for f in fields(Limits)] if name in chosen}
    settings.update(chosen)
    if entrypoint is not None:
        settings["entrypoint"] = entrypoint
    if env_config is not None:
        settings["env_config"] = json_object(env_config, "--env-config")
    if settings.get("token_file"):
        settings["token"] = read_token(settings["token_file"])
    base: Limits = settings.pop("limits", Limits())
    merged = {f.name: limits.get(f.name, getattr(base, f.name)) for f in fields(Limits)}
    return ServerConfig(limits=Limits(**merged), **settings)


def _raise_descriptor_limit() -> None:
    # A session holds one socket, a running program a handful more; the usual soft limit is 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
