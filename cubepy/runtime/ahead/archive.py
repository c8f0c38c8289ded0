"""The cache on disk as one file that another machine takes: an image's build compiles, its users do
not.

The file is a tar archive: first a list of all entries with their checksums, then the entries.
Nothing in it says where it goes: an entry's place follows from its name, which is a hash and
nothing else. All is checked before the first entry is written, and each entry appears whole or not
at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from cubepy.errors import CacheFileError
from cubepy.runtime import cache
from cubepy.runtime.whole_file import whole_file

FORMAT = "cubepy-cache-1"
LIST = "entries.json"
NAME = re.compile(r"([0-9a-f]{64})(\.bin|\.py)")
LARGEST = 1 << 28
"""Bytes of an entry at most; machine code of a kernel has thousands."""


def export_cache(path: str | os.PathLike[str]) -> int:
    """Write all entries of the cache into a file; gives how many compiled kernels are in it.

    Raises:
        OSError: the file cannot be written.

    Example:
        >>> import tempfile, cubepy as cb
        >>> from cubepy.runtime.ahead.archive import export_cache, import_cache
        >>> with tempfile.TemporaryDirectory() as folder, cb.config.override(cache_dir=folder):
        ...     export_cache(f"{folder}/kernels.tar")
        0
    """
    entries = {
        p.name: p.read_bytes()
        for p in sorted((cache.directory() / "code").glob("*/*"))
        if NAME.fullmatch(p.name)
    }
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in entries.items()}
    head = json.dumps({"format": FORMAT, "entries": sums}).encode()
    with whole_file(Path(path)) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, data in ((LIST, head), *entries.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return sum(name.endswith(".bin") for name in entries)


def import_cache(path: str | os.PathLike[str]) -> int:
    """Take the entries of such a file into the cache; gives how many compiled kernels were new.

    Entries name what they were made of (source, versions, processor), so that those of another
    machine do no harm: nobody asks for them.

    Raises:
        CacheFileError: the file is damaged, or is no such file; nothing was taken.
        OSError: the file cannot be read, or the cache cannot be written.
    """
    for _ in _entries(path):
        """All are checked before the first is taken."""
    new = 0
    for key, suffix, data in _entries(path):
        file = cache.path_of(key, suffix)
        if not file.exists() or file.read_bytes() != data:
            cache.write_atomically(file, data)
            new += suffix == ".bin"
    return new


def _entries(path: str | os.PathLike[str]) -> Iterator[tuple[str, str, bytes]]:
    """The entries of a file, each checked: its key, its suffix and what it holds."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            sums: dict[str, str] | None = None
            seen: set[str] = set()
            for member in archive:
                if not member.isreg() or member.size > LARGEST:
                    raise CacheFileError(f"{path} holds {member.name!r}, which is no entry")
                source = archive.extractfile(member)
                data = b"" if source is None else source.read()
                if sums is None:
                    sums = _list(path, member.name, data)
                    continue
                found = NAME.fullmatch(member.name)
                if found is None or member.name not in sums or member.name in seen:
                    raise CacheFileError(f"{path} holds {member.name!r}, which is no entry")
                if hashlib.sha256(data).hexdigest() != sums[member.name]:
                    raise CacheFileError(f"{path} is damaged: {member.name} is not what it was")
                if found[2] == ".bin" and not cache.is_whole(data):
                    raise CacheFileError(f"{path} holds {member.name}, which is no machine code")
                seen.add(member.name)
                yield found[1], found[2], data
            if sums is None or len(seen) != len(sums):
                raise CacheFileError(f"{path} is cut off: entries are missing")
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        if isinstance(error, CacheFileError):
            raise
        raise CacheFileError(
            f"{path} cannot be read: {error}", hint="make it again: python -m cubepy cache export"
        ) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise CacheFileError(f"{path} is damaged: {error}") from None  # gzip's own checksum


def _list(path: str | os.PathLike[str], name: str, data: bytes) -> dict[str, str]:
    """The checksums by entry, from the first member of a file."""
    head = json.loads(data) if name == LIST else None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise CacheFileError(
            f"{path} is no archive of compiled kernels",
            hint="python -m cubepy cache export FILE makes one",
        )
    sums = head.get("entries")
    if not isinstance(sums, dict):
        raise CacheFileError(f"{path} is damaged: it has no list of entries")
    return sums
