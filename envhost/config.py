"""Settings of a server: plain values with their defaults, units in their names.

Owns `ServerConfig` and `Limits`. Each field carries the name of its command-line option and its
help text, so that `--help`, the YAML file and this module cannot disagree; reading files is
`settings`' work, reading a command line the commands'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

__all__ = ["DEFAULT_ENTRYPOINT", "Limits", "ServerConfig"]

DEFAULT_ENTRYPOINT = "envhost.envs.code:make"


def _option(default: Any, name: str, text: str, *, secret: bool = False) -> Any:
    return field(default=default, repr=not secret, metadata={"option": name, "help": text})


@frozen(kw_only=True)
class Limits:
    """How long the server waits, and how much it takes."""

    construction_seconds: float = _option(
        300.0, "--construction-limit", "Seconds an environment may take to be built."
    )
    reset_seconds: float = _option(300.0, "--reset-limit", "Seconds a reset may take.")
    step_seconds: float = _option(3600.0, "--step-limit", "Seconds a step may take.")
    state_seconds: float = _option(30.0, "--state-limit", "Seconds a state request may take.")
    close_seconds: float = _option(
        10.0, "--close-limit", "Seconds after which an environment's hanging close is abandoned."
    )
    idle_seconds: float = _option(
        0.0, "--idle-limit", "Seconds without a request after which a session is closed; 0: never."
    )
    lifetime_seconds: float = _option(
        0.0, "--lifetime-limit", "Seconds of age after which a session is closed; 0: never."
    )
    send_seconds: float = _option(
        60.0, "--send-limit", "Seconds a client may take to receive a reply."
    )
    ping_interval_seconds: float = _option(
        20.0, "--ping-interval", "Seconds between pings to each client; 0: no pings."
    )
    ping_timeout_seconds: float = _option(
        60.0, "--ping-timeout", "Seconds after which a client that answers no ping is gone."
    )
    admission_wait_seconds: float = _option(
        5.0, "--admission-wait", "Seconds a newcomer at a full server waits for a slot."
    )
    refusal_hold_seconds: float = _option(
        2.0, "--refusal-hold", "Seconds a refused socket stays open, so that its client reads why."
    )
    drain_seconds: float = _option(
        30.0, "--drain-timeout", "Seconds that running steps get after SIGTERM or SIGINT."
    )
    head_seconds: float = _option(
        10.0, "--head-limit", "Seconds within which a request's head must arrive."
    )
    head_bytes: int = _option(16 * 1024, "--head-bytes", "Bytes a request's head may have.")
    message_bytes: int = _option(
        16 * 1024 * 1024, "--message-bytes", "Bytes a client's message may have."
    )
    queued_requests: int = _option(
        64, "--queued-requests", "Requests a client may send ahead of their replies."
    )


@frozen(kw_only=True)
class ServerConfig:
    """Everything `python -m envhost serve` takes."""

    entrypoint: str = DEFAULT_ENTRYPOINT
    env_config: Mapping[str, Any] = field(factory=dict)
    host: str = _option("127.0.0.1", "--host", "Address to listen on.")
    port: int = _option(8000, "--port", "Port to listen on; 0 takes a free one and prints it.")
    max_concurrent_envs: int = _option(
        16, "--max-concurrent-envs", "Sessions held at once; more are refused."
    )
    max_connections: int = _option(
        0, "--max-connections", "Sockets open at once; 0: 4 × sessions + 64."
    )
    action_field: str = _option(
        "message", "--action-field", "Name of the text field that /schema tells of."
    )
    token_file: str | None = _option(
        None, "--token-file", "File with the token that clients must send; needed off loopback."
    )
    token: str | None = field(default=None, repr=False)
    """The token itself, for use from Python; never an option, since `ps` shows those."""
    insecure_no_token: bool = _option(
        False, "--insecure-no-token", "Serve other machines without a token."
    )
    unsafe_no_sandbox: bool = _option(
        False,
        "--unsafe-no-sandbox",
        "Serve a code environment although its programs are not isolated.",
    )
    record_dir: str | None = _option(
        None, "--record", "Directory where every judged program is written down, a JSON line each."
    )
    allow_origin: tuple[str, ...] = _option(
        (), "--allow-origin", "Origin of a web page that may connect; repeatable."
    )
    allow_host: tuple[str, ...] = _option(
        (), "--allow-host", "Name of this server that a request's Host may give; repeatable."
    )
    tls_cert: str | None = _option(None, "--tls-cert", "Certificate chain for TLS, PEM.")
    tls_key: str | None = _option(None, "--tls-key", "Private key for TLS, PEM.")
    log_level: str = _option("info", "--log-level", "debug, info, warning or error.")
    limits: Limits = Limits()
