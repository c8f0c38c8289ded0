"""Files that appear whole or not at all: written beside their place, and named when complete."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def whole_file(target: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which becomes `target` at the end of the `with`; nothing is left of it, and
    what was there stays, where the `with` is left by an exception.

    Args:
        durable: whether it must outlast a loss of power at once.

    Raises:
        FileNotFoundError: there is no folder for it.
        IsADirectoryError: the target is a folder.
        OSError: the folder cannot be written.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers"
        >>> with whole_file(path) as file:
        ...     _ = file.write(b"1 2 3")
        >>> path.read_bytes(), len(list(path.parent.iterdir()))
        (b'1 2 3', 1)
    """
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no folder to write in", str(target.parent))
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "this is a folder; a file is written", str(target))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
