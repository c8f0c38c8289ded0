"""Generated code and machine code on disk, shared by processes.

An entry is named by the hash of everything that went into it, so it is never stale. Writes go to a
temporary file that is renamed; a damaged entry does not match its own checksum and is made anew. A
cache that cannot be written costs a warning, once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from cubepy.config import config
from cubepy.errors import CacheWarning
from cubepy.runtime.whole_file import whole_file

MAGIC = b"cubepy-code-1\n"
HEAD = len(MAGIC) + 32
_warned = False


def directory() -> Path:
    """The folder that holds all entries."""
    return Path(config.cache_dir)


def digest(*parts: str) -> str:
    """The name of an entry made from these texts."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode()
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


def path_of(key: str, suffix: str) -> Path:
    """Where an entry's file is."""
    return directory() / "code" / key[:2] / f"{key}{suffix}"


def read(key: str, suffix: str = ".bin") -> bytes | None:
    """The machine code of an entry (or what has another suffix), or None when there is none that is
    whole.
    """
    if not config.cache:
        return None
    try:
        data = path_of(key, suffix).read_bytes()
    except OSError:
        return None
    return data[HEAD:] if is_whole(data) else None


def holds(key: str) -> bool:
    """Whether there is machine code of an entry, whole or not."""
    return config.cache and path_of(key, ".bin").exists()


def is_whole(data: bytes) -> bool:
    """Whether this is an entry's file with machine code that matches its own checksum."""
    body = data[HEAD:]
    return (
        bool(body)
        and data.startswith(MAGIC)
        and hashlib.sha256(body).digest() == data[len(MAGIC) : HEAD]
    )


def write(key: str, code: bytes, suffix: str = ".bin") -> None:
    """Store machine code; a failure costs a warning. No code at all is not stored: to run it would
    end the process.
    """
    if config.cache and code:
        _store(path_of(key, suffix), MAGIC + hashlib.sha256(code).digest() + code)


def write_source(key: str, text: str) -> Path:
    """Store generated source as a file that debuggers and tracebacks can read; gives its path.

    Without a usable cache the file goes to a temporary folder.
    """
    path = path_of(key, ".py")
    data = text.encode()
    if config.cache:
        try:
            if path.read_bytes() == data:
                return path
        except OSError:
            pass
        if _store(path, data):
            return path
    folder = Path(tempfile.gettempdir()) / f"cubepy-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.py"
    path.write_bytes(data)
    return path


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that appears whole or not at all, readable by whom new files are readable (a
    cache may be made by one user, in an image's build, and used by another).

    Raises:
        OSError: the folder cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, durable=False) as file:
        file.write(data)


def asked_level() -> int:
    """The `stacklevel` by which a warning of its caller shows the line outside cubepy that asked.

    Example:
        >>> asked_level() >= 1  # 1 where nothing of cubepy is between
        True
    """
    frame: Any = sys._getframe(1)
    level = 1
    while frame.f_back is not None:
        name = frame.f_globals.get("__name__", "cubepy")  # code that cubepy writes has no name
        if name != "cubepy" and not name.startswith("cubepy."):
            return level
        frame, level = frame.f_back, level + 1
    return level


def _store(path: Path, data: bytes) -> bool:
    global _warned
    try:
        write_atomically(path, data)
        return True
    except OSError as error:
        if not _warned:
            _warned = True
            warnings.warn(
                f"the cache {directory()} cannot be written ({error}); kernels are compiled "
                "again in every process. Set CUBEPY_CACHE_DIR to a folder that can, or "
                "CUBEPY_CACHE=0 to be silent",
                CacheWarning,
                stacklevel=asked_level(),
            )
        return False


def usage() -> tuple[int, int]:
    """How many compiled entries there are, and the bytes of all files."""
    entries = size = 0
    for path in (directory() / "code").glob("*/*"):
        with contextlib.suppress(OSError):
            size += path.stat().st_size
            entries += path.suffix == ".bin"
    return entries, size


def clear() -> int:
    """Delete all entries; gives how many bytes that freed."""
    freed = usage()[1]
    shutil.rmtree(directory() / "code", ignore_errors=True)
    return freed
