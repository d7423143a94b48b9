"""`python -m envhost serve`: start a server, print where it is, end it on a signal."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
from typing import Any

import click
import trio
from attrs import Attribute, fields

from ..config import Limits, ServerConfig
from ..entrypoints import make_factory
from ..errors import ConfigError
from ..server import Server
from ..settings import load_settings, read_token
from ..telemetry import configure_logging, log_event

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
    server = Server(config, make_factory(config))
    try:
        trio.run(_serve, server)
    except BaseExceptionGroup as group:
        raise _single(group) from None


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
        settings["env_config"] = _json_object(env_config)
    if settings.get("token_file"):
        settings["token"] = read_token(settings["token_file"])
    base: Limits = settings.pop("limits", Limits())
    merged = {f.name: limits.get(f.name, getattr(base, f.name)) for f in fields(Limits)}
    return ServerConfig(limits=Limits(**merged), **settings)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--env-config: expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"--env-config: expected a JSON object, got {text!r:.60}")
    return value


def _raise_descriptor_limit() -> None:
    # A session holds one socket, a running program a handful more; the usual soft limit is 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(server: Server) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_end_on_signals, server, nursery.cancel_scope)
        await nursery.start(server.run)
        total = server.slots.total
        # The first line is what scripts wait for; the environment's notes come after it.
        click.echo(f"Serving {server.url} (up to {total} concurrent sessions)")
        sys.stdout.flush()
        for note in server.notes():
            log_event("server.note", text=note)
        await server.finished.wait()
        nursery.cancel_scope.cancel()


async def _end_on_signals(server: Server, everything: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            if server.draining or not server.started:
                everything.cancel()
                return
            running = server.running_requests()
            if running:
                click.echo(
                    f"waiting for {running} running request(s), "
                    f"{server.config.limits.drain_seconds:g} s at most; again to end at once",
                    err=True,
                )
            server.stop()


def _single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    errors = group.exceptions
    if len(errors) == 1:
        inner = errors[0]
        return _single(inner) if isinstance(inner, BaseExceptionGroup) else inner
    return group
