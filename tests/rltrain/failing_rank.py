"""Run by `test_ranks` as one of three ranks: the second fails, one waits for it, one sleeps."""

from __future__ import annotations

import sys
import time

from rltrain.errors import RltrainError, RunStopped
from rltrain.ranks import joined, launched


def main() -> None:
    with joined(launched(), wait_seconds=300) as ranks:
        ranks.any(False)
        if ranks.rank == 1:
            raise RunStopped("out of memory")
        if ranks.rank == 2:
            time.sleep(300)  # a rank that no collective wakes
        ranks.any(False)


if __name__ == "__main__":
    try:
        main()
    except RltrainError as error:
        sys.exit(f"says: {error}")
