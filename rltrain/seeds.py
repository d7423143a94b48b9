"""Random numbers without state: every choice of a run is a hash of what it is for."""

from __future__ import annotations

import hashlib

__all__ = ["fixed_hash"]


def fixed_hash(*parts: object) -> int:
    """Return a 31-bit number that depends on the parts alone, the same on every machine."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "big") & 0x7FFFFFFF
