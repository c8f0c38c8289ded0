"""What kernels print where the driver has no printf: words in a region of memory that the host
reads when somebody waits.

The first word of a region counts the words behind it. A unit that prints adds to it, and where
there is room it writes the number of the site (from 1), whose message is a format of C's printf,
and the values, each in 64 bits. A region is zero when its launch begins.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from cubepy.backends.llvm.emitted import Site

PRINT = "print"
WORDS = 1 << 17
"""Words of a region: a mebibyte, as CUDA's printf has for all launches."""
_PIECE = re.compile("%(%|g|lld|llu)")


def prints(sites: Sequence[Site]) -> bool:
    """Whether a kernel with these sites leaves what it prints in memory."""
    return any(site.kind == PRINT for site in sites)


def printed(sites: Sequence[Site], words: Sequence[int]) -> Iterator[str]:
    """The texts that a region holds, in their order."""
    at, end = 1, min(1 + words[0], WORDS)
    while at < end and 0 < words[at] <= len(sites):  # what had no room left zeros at the end
        form = sites[words[at] - 1].message
        count = sum(piece != "%" for piece in _PIECE.findall(form))
        yield formatted(form, words[at + 1 : at + 1 + count])
        at += 1 + count


def lost(words: Sequence[int]) -> bool:
    """Whether more was printed than a region holds."""
    return 1 + words[0] > WORDS


def formatted(form: str, words: Sequence[int]) -> str:
    """What C's printf makes of a format, and words that are bits of f64, i64 or u64."""
    left = iter(words)

    def text(piece: Any) -> str:
        kind = piece[1]
        if kind == "%":
            return "%"
        word = next(left)
        if kind == "g":
            (number,) = struct.unpack("<d", struct.pack("<q", word))
            return f"{number:g}"
        return str(word if kind == "lld" else word & (1 << 64) - 1)

    return _PIECE.sub(text, form)
