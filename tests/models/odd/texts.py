"""GGUF files, vocabularies and headers of safetensors that are drawn, right and wrong ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.models.odd.graphs import some
from tests.models.written import text

HUGE = [0, 1, 3, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1]
NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}


def a_text(rng: np.random.Generator) -> bytes:
    """Bytes of a text, or of none."""
    return bytes(
        some(
            rng,
            [
                b"",
                b"a",
                b"llama",
                "\u00e9\u4e16".encode(),
                b"\xff\xfe",
                b"{{ x }}",
                b"1 2",
                bytes(40),
                b"<s>",
            ],
        )
    )


def a_value(rng: np.random.Generator, depth: int = 0) -> bytes:
    """A value of metadata with its type: numbers, texts, arrays of arrays, types that lie."""
    kind = int(rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 13, 255]))
    told = kind if rng.random() < 0.9 else int(rng.integers(0, 14))
    if kind == 9:
        return struct.pack("<I", told) + an_array(rng, depth)
    return struct.pack("<I", told) + an_element(rng, kind, depth)


def an_element(rng: np.random.Generator, kind: int, depth: int) -> bytes:
    if kind == 8:
        raw = text(a_text(rng))
        return raw if rng.random() < 0.95 else struct.pack("<Q", some(rng, HUGE)) + raw[8:]
    if kind == 9:
        return an_array(rng, depth + 1)
    if kind not in NUMBERS:
        return b"abc"
    form = "<" + NUMBERS[kind]
    if form[1] in "fd":
        return struct.pack(form, some(rng, [0.0, 1e-5, float("nan"), float("inf"), -1.0]))
    return struct.pack(form, int(some(rng, [0, 1, 2, 7, 64, 100])))


def an_array(rng: np.random.Generator, depth: int) -> bytes:
    kind = int(rng.choice([4, 5, 6, 8, 9, 7, 12])) if depth < 12 else 4
    count = int(rng.integers(0, 5))
    told = count if rng.random() < 0.9 else int(some(rng, HUGE))
    inside = b"".join(an_element(rng, kind, depth) for _ in range(count))
    return struct.pack("<IQ", kind, told) + inside


def changed(
    rng: np.random.Generator, data: dict[str, bytes], calm: float
) -> Iterator[tuple[bytes, bytes]]:
    """Metadata in order: some of it is gone, twice there, or something else."""
    for key, raw in data.items():
        what = calm * rng.random()
        if what < 0.01:
            continue
        yield key.encode(), a_value(rng) if what < 0.04 else raw
        if 0.04 < what < 0.045:
            yield key.encode(), raw
    for _ in range(int(rng.integers(0, 3)) if rng.random() < 1 / calm else 0):
        yield a_text(rng) + b".x", a_value(rng)


def a_tensor(
    rng: np.random.Generator, name: bytes, lengths: list[int], kind: int, at: int, calm: float
) -> bytes:
    """The entry of a tensor, or a wrong one; the calmer, the more are right."""
    what = calm * rng.random()
    if what < 0.02:
        lengths = [*lengths, int(some(rng, HUGE))]
    elif what < 0.04:
        lengths = [0, *lengths[1:]]
    elif what < 0.05:
        lengths = [1] * int(rng.integers(0, 9))
    elif what < 0.07:
        kind = int(rng.integers(0, 45))
    elif what < 0.1:
        at = int(some(rng, [0, 1, 32, at + 1, at + 32, *HUGE]))
    elif what < 0.11:
        name = a_text(rng)
    raw = text(name) + struct.pack("<I", len(lengths))
    raw += b"".join(struct.pack("<Q", n) for n in lengths)
    return raw + struct.pack("<IQ", kind, at % 2**64)


def gguf_file(rng: np.random.Generator, data: dict[str, bytes], tensors: Any) -> bytes:
    """A file: its metadata and tensors (name, lengths innermost first, type, bytes), drawn."""
    calm = float(some(rng, [20, 5, 1]))
    pairs = list(changed(rng, data, calm))
    alignment = int(some(rng, [32] * 60 + [0, 1, 3, 8, 64, 4096, 2**31]))
    if alignment != 32 or rng.random() < 0.1:
        pairs.append((b"general.alignment", struct.pack("<II", 4, alignment)))
    step = max(alignment, 1) if alignment <= 4096 else 32
    entries, inside = [], b""
    for name, lengths, kind, raw in tensors:
        if rng.random() < 0.01:
            continue
        entries.append(a_tensor(rng, name.encode(), list(lengths), kind, len(inside), calm))
        inside += raw + bytes(-len(raw) % step)
    counts = [len(entries), len(pairs)]
    if rng.random() < 0.03:
        counts[int(rng.integers(2))] = int(some(rng, HUGE))
    version = 3 if rng.random() < 0.97 else int(some(rng, HUGE)) % 2**32
    head = b"GGUF" + struct.pack("<IQQ", version, *counts)
    head += b"".join(text(k) + v for k, v in pairs) + b"".join(entries)
    whole = head + bytes(-len(head) % step) + inside
    return whole if rng.random() < 0.95 else whole[: int(rng.integers(len(whole)))]


def strings(values: list[bytes]) -> bytes:
    """An array of texts with its type."""
    return struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))


def numbers(values: Any, kind: int) -> bytes:
    """An array of numbers with its type."""
    raw = b"".join(struct.pack("<" + NUMBERS[kind], v) for v in values)
    return struct.pack("<IIQ", 9, kind, len(values)) + raw


def vocabulary(rng: np.random.Generator) -> dict[str, bytes]:
    """What a GGUF file says of its words; tokens, scores, kinds and merges of any lengths."""
    family = some(rng, ["llama", "gpt2", "bert"] * 4 + ["t5", "none", ""])
    words = [
        b"<unk>",
        b"<s>",
        b"</s>",
        b"\xe2\x96\x81",
        b"a",
        b"b",
        b"ab",
        b"\xc4\xa0a",
        b"##b",
        b"[UNK]",
    ]
    words += [f"<0x{k:02X}>".encode() for k in range(int(some(rng, [0, 256, 10])))]
    for _ in range(int(rng.integers(0, 4))):
        words[int(rng.integers(len(words)))] = a_text(rng)
    if rng.random() < 0.2:
        rng.shuffle(words)
    count = len(words) if rng.random() < 0.85 else int(rng.integers(0, 2 * len(words)))
    scores = [
        float(some(rng, [0, -1, -k, 1e30, float("nan")]) if rng.random() < 0.1 else -k)
        for k in range(count)
    ]
    kinds = [int(rng.integers(0, 9)) if rng.random() < 0.1 else 1 for _ in range(count)]
    merges = [b"a b", b"\xc4\xa0 a"]
    for _ in range(int(rng.integers(0, 3))):
        merges.append(a_text(rng) + bytes(some(rng, [b"", b" ", b"  "])) + a_text(rng))
    data = {
        "tokenizer.ggml.model": struct.pack("<I", 8) + text(family),
        "tokenizer.ggml.pre": struct.pack("<I", 8)
        + text(some(rng, ["default", "llama-bpe", "qwen2", "gpt-2", "odd"])),
        "tokenizer.ggml.tokens": strings(words),
        "tokenizer.ggml.scores": numbers(scores, 6),
        "tokenizer.ggml.token_type": numbers(kinds, 5),
        "tokenizer.ggml.merges": strings(merges),
        "tokenizer.chat_template": struct.pack("<I", 8)
        + text(
            some(
                rng,
                [
                    b"{{ messages }}",
                    b"{% for",
                    b"{{ x.y.z }}",
                    b"\xff",
                    b"{% for i in range(10**9) %}a{% endfor %}",
                ],
            )
        ),
    }
    for name in ("bos", "eos", "unknown", "padding", "separator", "eot"):
        given = int(rng.integers(0, 12)) if rng.random() < 0.8 else int(some(rng, HUGE)) % 2**32
        data[f"tokenizer.ggml.{name}_token_id"] = struct.pack("<II", 4, given)
    for name in ("tokens", "scores", "token_type", "merges"):
        if rng.random() < 0.04:  # of texts, of arrays, of other lengths
            data[f"tokenizer.ggml.{name}"] = struct.pack("<I", 9) + an_array(rng, 0)
    for flag in ("add_bos_token", "add_eos_token", "add_space_prefix"):
        data[f"tokenizer.ggml.{flag}"] = struct.pack("<IB", 7, int(rng.integers(0, 3)))
    return data


ODD: list[Any] = [
    None,
    -1,
    0,
    1,
    2**63,
    10**30,
    1.5,
    True,
    "x",
    [],
    [[]],
    {},
    [1, "2"],
    float("nan"),
    {"a": {}},
]


def safetensors_file(rng: np.random.Generator) -> bytes:
    """A file whose header says odd things, or is none."""
    entries: dict[str, Any] = {"__metadata__": {"made": "here"}}
    at = 0
    for k in range(int(rng.integers(0, 5))):
        shape = [int(n) for n in rng.integers(0, 5, int(rng.integers(0, 4)))]
        dtype = some(
            rng, ["F32", "F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F64", "I4", "nothing"]
        )
        size = {"F32": 4, "I64": 8, "F64": 8, "U8": 1, "BOOL": 1, "F8_E4M3": 1}.get(dtype, 2)
        end = at + int(np.prod(shape, dtype=int)) * size
        one: dict[str, Any] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        what = rng.random()
        if what < 0.3:
            one[some(rng, ["dtype", "shape", "data_offsets", "more"])] = some(rng, ODD)
        elif what < 0.4:
            place = one[some(rng, ["shape", "data_offsets"])]
            if place:
                place[int(rng.integers(len(place)))] = some(rng, ODD)
        elif what < 0.45:
            one.pop(some(rng, list(one)))
        entries[some(rng, [f"t{k}", "t0", "", "\u0000", "a/b"])] = (
            one if rng.random() < 0.97 else some(rng, ODD)
        )
        at = end
    if rng.random() < 0.1:
        entries["__metadata__"] = some(rng, [*ODD, {"a": 1}, {"a": None}])
    header = json.dumps(entries).encode()
    what = rng.random()
    if what < 0.03:
        header = b"[" * int(rng.integers(1, 200_000))
    elif what < 0.06:
        header = (
            b'{"t":{"dtype":"F32","shape":['
            + b"9" * int(rng.integers(1, 9000))
            + b'],"data_offsets":[0,0]}}'
        )
    elif what < 0.09:
        header = header[:-1] + b',"t0":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    elif what < 0.12:
        header = bytes(
            some(rng, [b"", b"null", b"[]", b"3", b'"x"', b"\xff\xfe", b"{}", b"{", b" {}"])
        )
    elif what < 0.15:
        header += b" " * int(rng.integers(0, 20)) + bytes(some(rng, [b"", b"x", b"\0"]))
    length = len(header) if rng.random() < 0.93 else int(some(rng, HUGE))
    data = bytes(max(at, 0)) if rng.random() < 0.9 else bytes(int(rng.integers(0, 64)))
    return struct.pack("<Q", length) + header + data
