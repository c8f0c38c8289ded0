"""PyTorch's files with odd pickles: opcodes in any order, bombs, tensors that lie."""

from __future__ import annotations

import io
import struct
import zipfile
from typing import Any

import numpy as np

from tests.models.odd.graphs import some
from tests.models.odd.texts import HUGE
from tests.models.written import global_named, number, short, state_opcodes, tensor_opcodes

GLOBALS = [
    ("os", "system"),
    ("builtins", "eval"),
    ("torch._utils", "_rebuild_tensor_v2"),
    ("torch._utils", "_rebuild_parameter"),
    ("torch", "FloatStorage"),
    ("torch", "Size"),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
    ("numpy", "ndarray"),
    ("", ""),
    ("torch.storage", "UntypedStorage"),
]


INFO = b"\x80\x02}(" + short("little_endian") + b"\x88u."


def opcodes(rng: np.random.Generator, count: int) -> bytes:
    """Opcodes in any order."""
    out = b""
    for _ in range(count):
        out += some(
            rng,
            [
                b"(", b"t", b"}", b"]", b")", b"e", b"u", b"s", b"a", b"R", b"b", b"\x81", b"Q", b"0",
                b"1", b"2", b"N", b"\x88", b"\x89", b"\x85", b"\x86", b"\x87", b"\x8f", b"\x90",
                b"\x91", b"\x93", b"o", b"d", b"l", b"\x94", b"\x98", b"\x92",
                number(int(rng.integers(-3, 9))), short("a"), short("storage"), b"K\x05",
                b"q" + bytes([int(rng.integers(4))]), b"h" + bytes([int(rng.integers(4))]),
                b"r" + struct.pack("<I", some(rng, HUGE) % 2**32), b"G" + bytes(8),
                b"B" + struct.pack("<I", some(rng, [0, 2, 2**31])) + b"ab",
                b"\x8b" + struct.pack("<i", some(rng, [0, 2, 2**30, -1])) + b"ab",
                b"I12\n", b"I" + b"9" * int(rng.integers(1, 5000)) + b"\n", b"F1e999\n", b"S'a'\n",
                b"V\\u00e9\n", b"P1\n", b"\x80\x04", b"\x95" + struct.pack("<Q", some(rng, HUGE)),
                b"\x8e" + struct.pack("<Q", some(rng, HUGE)), b"\x96" + struct.pack("<Q", some(rng, HUGE)),
                b"i" + b"os\nsystem\n", b"\x82\x01", global_named(*some(rng, GLOBALS)),
            ],
        )  # fmt: skip
    return out


def bomb(rng: np.random.Generator) -> bytes:
    """Tuples of tuples of tuples: twice as many with each."""
    raw = b"\x80\x02" + b"]q\x00"
    for k in range(int(rng.integers(10, 200))):
        raw += b"h" + bytes([k]) + b"h" + bytes([k]) + b"\x86q" + bytes([k + 1])
    return raw + b"}" + short("a") + b"h" + bytes([k + 1]) + b"s."


def tensor(rng: np.random.Generator) -> bytes:
    """A tensor of a storage of 64 numbers, or one that lies about it."""
    shape, strides, count, offset = [4, 8], [8, 1], 64, 0
    what = 3 * rng.random()
    if what < 0.15:
        shape[int(rng.integers(2))] = int(some(rng, HUGE)) % 2**63
    elif what < 0.3:
        strides[int(rng.integers(2))] = int(some(rng, [0, -1, 100, 2**40, 2**62]))
    elif what < 0.4:
        count = int(some(rng, HUGE)) % 2**63
    elif what < 0.5:
        offset = int(some(rng, [-1, 32, 33, 2**40, 2**62]))
    elif what < 0.55:
        strides = [1]
    elif what < 0.6:
        return global_named("torch._utils", "_rebuild_tensor_v2") + b"(" + opcodes(rng, 4) + b"tR"
    key = str(some(rng, ["0"] * 40 + ["1", "", "../x"]))
    return tensor_opcodes(key, shape, strides, count, offset)


def torch_file(rng: np.random.Generator) -> bytes:
    """A file of torch.save: a zip, or what it wrote before."""
    what = rng.random()
    if what < 0.35:
        raw = b"\x80\x02" + opcodes(rng, int(rng.integers(1, 30))) + b"."
    elif what < 0.4:
        raw = bomb(rng)
    elif what < 0.45:
        raw = b"\x80\x02" + b"](" * int(rng.integers(1, 3000)) + b"."
    elif what < 0.5:
        raw = b"\x80\x02" + b")\x85" + b"\x85" * int(rng.integers(1, 30_000)) + b"."
    else:
        raw = state_opcodes({some(rng, ["a", "b", ""]): tensor(rng) for _ in range(3)})
        if rng.random() < 0.2:
            at = int(rng.integers(len(raw)))
            raw = raw[:at] + opcodes(rng, 1) + raw[at + int(rng.integers(0, 3)) :]
    if rng.random() < 0.25:
        magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
        keys = b"\x80\x02](" + short("0") + b"e."
        size = int(some(rng, [64, 64, *HUGE]))
        return (
            magic + b"\x80\x02M\xe9\x03." + INFO + raw + keys + struct.pack("<Q", size) + bytes(256)
        )
    out = io.BytesIO()
    how: Any = some(rng, [zipfile.ZIP_STORED] * 19 + [zipfile.ZIP_DEFLATED])
    with zipfile.ZipFile(out, "w", how) as archive:
        if rng.random() < 0.97:
            archive.writestr("archive/data.pkl", raw)
        archive.writestr("archive/byteorder", some(rng, ["little"] * 30 + ["big", "", "x"]))
        size = 256 if how == zipfile.ZIP_STORED or rng.random() < 0.9 else 1 << 28
        archive.writestr("archive/data/0", bytes(size))
        if rng.random() < 0.03:
            archive.writestr("other/data.pkl", raw)
    data = bytearray(out.getvalue())
    if rng.random() < 0.15:
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
    return bytes(data)
