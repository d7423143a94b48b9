"""Samplers: where completions come from, behind one protocol."""

from __future__ import annotations

from .protocol import Handover, Sampler

__all__ = ["Handover", "Sampler"]
