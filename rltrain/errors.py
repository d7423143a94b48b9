"""The exception tree of the trainer: what the user can set right, and what ends a run.

Owns the exceptions that cross module borders; knows nothing of files, servers or tensors.
"""

from __future__ import annotations

__all__ = ["ManifestError", "PeerStopped", "RltrainError", "RunStopped", "SetupError"]


class RltrainError(Exception):
    """Root of all errors of this package; never raised itself."""


class SetupError(RltrainError):
    """The run cannot begin: shown as it is, exit status 2."""


class ManifestError(SetupError):
    """The manifest has faults.

    Args:
        source: The manifest's path, for the message.
        faults: One line for each fault: path, what was expected, what came.
    """

    def __init__(self, source: str, faults: list[str]) -> None:
        count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        super().__init__("\n".join([f"{source}: {count}", *(f"  {fault}" for fault in faults)]))
        self.faults = tuple(faults)


class RunStopped(RltrainError):
    """A run that had begun cannot go on: shown as it is, exit status 1."""


class PeerStopped(RltrainError):
    """The first rank ends for the same reason and shows it: nothing more to say, exit status 1."""
