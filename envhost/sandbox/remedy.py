"""What to do where bubblewrap cannot make a cell: a failure's text to an advice.

Owns the texts for the systems where that is common.
"""

from __future__ import annotations

__all__ = ["remedy_for"]

UBUNTU = (
    "on Ubuntu 24.04 allow bwrap user namespaces: install the AppArmor profile "
    "bwrap-userns-restrict, or set kernel.apparmor_restrict_unprivileged_userns=0"
)
CONTAINER = (
    "in Docker start the container with --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
)
_REFUSALS = ("No permissions", "not permitted", "Permission denied", "No space left on device")


def remedy_for(said: str) -> str:
    """Return what helps against what bwrap said, as a clause; nothing where we do not know."""
    if "setting up uid map" in said or "RTM_NEWADDR" in said:
        return UBUNTU
    if "bwrap:" in said and any(refusal in said for refusal in _REFUSALS):
        return CONTAINER
    return ""
