"""Rotary embeddings in pieces, as exporters write them: each is one launch of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from tests.models.onnx.rewritten import made
from tests.models.onnx.writer import node, value

B, H, L, D = 2, 3, 10, 16
ANGLES = np.arange(30)[:, None] * 100.0 ** (-np.arange(0, D, 2) / D)
TURNED = [node("Mul", "x cos", "xc"), node("Mul", "r sin", "rs"), node("Add", "xc rs", "y")]
HALVES = [node("Slice", "x zero half last", "a"), node("Slice", "x half end last", "b")]
NEGATED = [node("Neg", "b", "nb"), node("Concat", "nb a", "r", axis=-1)]
SCALED = [
    *(node("Mul", f"{v} {t}", v + t) for v in "ab" for t in ("cos", "sin")),
    node("Sub", "acos bsin", "re"),
    node("Add", "bcos asin", "im"),
]
FORMS: dict[str, tuple[list[bytes], str]] = {
    "slices": ([*HALVES, *NEGATED, *TURNED], "halves"),
    "split": ([node("Split", "x", "a b", axis=-1, num_outputs=2), *NEGATED, *TURNED], "halves"),
    "times -1": ([*HALVES, node("Mul", "b minus", "nb"), NEGATED[1], *TURNED], "halves"),
    "parts": ([*HALVES, *SCALED, node("Concat", "re im", "y", axis=3)], "half"),
    "neighbours": (
        [
            node("Slice", "x zero end last two", "a"),
            node("Slice", "x one end last two", "b"),
            node("Neg", "b", "nb"),
            node("Unsqueeze", "nb minus_one", "nu"),
            node("Unsqueeze", "a minus_one", "au"),
            node("Concat", "nu au", "stack", axis=-1),
            node("Reshape", "stack same", "r"),
            *TURNED,
        ],
        "neighbours",
    ),
    "pairs": (
        [
            node("Reshape", "x pairs", "p"),
            node("Split", "p", "a0 b0", axis=-1, num_outputs=2),
            node("Squeeze", "a0 minus_one", "a"),
            node("Squeeze", "b0 minus_one", "b"),
            *SCALED,
            node("Unsqueeze", "re minus_one", "nu"),
            node("Unsqueeze", "im minus_one", "au"),
            node("Concat", "nu au", "stack", axis=-1),
            node("Reshape", "stack same", "y"),
        ],
        "half",
    ),
}
TABLES = {
    "halves": np.concatenate([ANGLES, ANGLES], axis=1),
    "half": ANGLES,
    "neighbours": np.repeat(ANGLES, 2, axis=1),
}
NUMBERS: dict[str, Any] = {
    "zero": [0], "one": [1], "two": [2], "half": [D // 2], "end": [2**63 - 1], "last": [3],
    "minus_one": [-1], "same": [0, H, -1, D], "pairs": [0, 0, 0, D // 2, 2],
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_rotary_embeddings_in_pieces_are_one_launch(name: str) -> None:
    steps, kind = FORMS[name]
    table = TABLES[kind]
    weights = {k: np.array(v, np.int64) for k, v in NUMBERS.items()}
    weights |= {"minus": np.float32(-1).reshape(())}
    weights |= {f"{f.__name__}_table": f(table).astype(np.float32) for f in (np.cos, np.sin)}
    nodes = [node("Gather", f"{f}_table at", f"{f}_rows") for f in ("cos", "sin")]
    nodes += [node("Unsqueeze", f"{f}_rows one", f) for f in ("cos", "sin")]
    net = made([*nodes, *steps], weights, ["x", value("at", np.int64)], opset=18)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((B, H, L, D)).astype(np.float32)
    at = rng.integers(0, 30, (B, L))

    many = "neighbours" if name in ("neighbours", "pairs") else "halves"
    a, b = (x[..., ::2], x[..., 1::2]) if many == "neighbours" else np.split(x, 2, axis=-1)
    cos, sin = np.cos(ANGLES)[at][:, None], np.sin(ANGLES)[at][:, None]
    parts = [a * cos - b * sin, b * cos + a * sin]
    if many == "neighbours":
        right = np.stack(parts, axis=-1).reshape(x.shape)
    else:
        right = np.concatenate(parts, axis=-1)
    for _ in range(3):
        np.testing.assert_allclose(net(x, at)["y"].numpy(), right, rtol=1e-4, atol=1e-5)
    (program,) = cb.explain(net, x, at).programs
    assert program.launches == 4  # positions from the end, rows of two tables, the rotation
    assert len([s for s in program.steps if s.op == "joined_map"]) == 1
