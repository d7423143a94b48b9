"""Ports of the loopback."""

from __future__ import annotations

import random
import socket

__all__ = ["free_port", "is_open"]


_BELOW_EPHEMERAL = range(20_000, 32_000)


def free_port() -> int:
    """Return a port that nobody listens on, and that no outgoing connection is given meanwhile."""
    while True:
        port = random.choice(_BELOW_EPHEMERAL)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def is_open(port: int) -> bool:
    """Whether somebody listens on a port."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
