"""One process at a time measures on a machine: two at once would each find the other's load."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    import msvcrt

    def _take(file: Any) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _take(file: Any) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextlib.contextmanager
def exclusive(path: Path, patience: float) -> Iterator[bool]:
    """Hold a lock between processes; the system releases it when its holder dies.

    Args:
        path: a file, made if it is not there.
        patience: seconds to wait for another process.

    Yields:
        Whether the lock is held. Where no file can be made there is nobody to agree with, and it
        counts as held.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b", buffering=0)  # noqa: SIM115 - closed below, which releases the lock
    except OSError:
        yield True
        return
    try:
        yield _waited(file, patience)
    finally:
        file.close()


def _waited(file: Any, patience: float) -> bool:
    end = time.monotonic() + patience
    while True:
        try:
            _take(file)
            return True
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
