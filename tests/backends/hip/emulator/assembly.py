"""The machine code of a kernel as text, kept on disk: it is compiled once for all runs of the tests."""

from __future__ import annotations

import zlib

from cubepy.backends.hip.codegen.compile import Code
from cubepy.runtime import cache as disk

SUFFIX = ".s"


def assembly_of(code: Code) -> str:
    """What LLVM prints of a kernel, from the cache or compiled now; it is named by the key of the
    machine code, the hash of everything that decides it.
    """
    kept = disk.read(code.key, SUFFIX)
    if kept is not None:
        return zlib.decompress(kept).decode()
    text = code.assembly
    disk.write(code.key, zlib.compress(text.encode(), 1), SUFFIX)
    return text
