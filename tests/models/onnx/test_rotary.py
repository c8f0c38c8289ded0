"""Rotary embeddings in pieces, as exporters write them: each is one launch of a program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import tensor as T
from cubepy.models.onnx import load
from tests.models.onnx.rewritten import made
from tests.models.onnx.writer import graph, model, node, tensor, value

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


@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize(
    ("width", "rotated"), [(16, 8), (20, 8), (64, 16), (80, 32), (24, 16), (18, 4)]
)
def test_what_is_not_rotated_goes_through_the_same_launch(
    domain: str, width: int, rotated: int
) -> None:
    """Where the rest is as long as some halves of what is rotated; elsewhere it is copied."""
    half = rotated // 2
    angles = np.arange(30)[:, None] * 100.0 ** (-np.arange(half) / half)
    tables = [tensor(f.__name__, f(angles).astype(np.float32)) for f in (np.cos, np.sin)]
    names = "x at cos sin" if domain else "x cos sin at"
    one = node("RotaryEmbedding", names, "y", domain, rotary_embedding_dim=rotated, num_heads=H)
    inputs = ["x", value("at", np.int64)]
    net = load(model(graph([one], inputs, ["y"], tables), opset=23, com_microsoft=1))
    rng = np.random.default_rng(width)
    x = rng.standard_normal((B, H, L, width)).astype(np.float32)
    x[0, 0, 0] = [np.nan, np.inf, -0.0, 1.0] * (width // 4) + [2.0] * (width % 4)
    at = rng.integers(0, 30, (B, L))

    a, b, rest = x[..., :half], x[..., half:rotated], x[..., rotated:]
    cos, sin = np.cos(angles)[at][:, None], np.sin(angles)[at][:, None]
    with np.errstate(invalid="ignore"):
        right = np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)
    for _ in range(3):
        found = net(x, at)["y"].numpy()
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found[..., rotated:].view(np.int32), rest.view(np.int32))
    (program,) = cb.explain(net, x, at).programs
    ops = [s.op for s in program.steps]
    through = (width - rotated) % half == 0 and 2 + (width - rotated) // half <= 8
    assert ops.count("joined_map") == 1 and ops.count("concat") == (not through)


def test_maps_and_what_was_there_before_are_put_side_by_side() -> None:
    """In any order, along any axis, with more results, and where that cannot be."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        axis, lengths = int(rng.integers(0, 2)), [int(n) for n in rng.integers(1, 5, 3)]
        shape = [4, 6]
        x, y = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
        rests = [rng.standard_normal([n * 2 if d == axis else s for d, s in enumerate(shape)]) for n in lengths]  # fmt: skip
        rests = [r.astype(np.float32) for r in rests]
        order = rng.permutation(5)
        nested = bool(rng.integers(2))

        def both(x: Any, y: Any, *rests: Any, lib: Any, order: Any = order, axis: int = axis,
                 nested: bool = nested) -> Any:  # fmt: skip
            parts = [x * y + x, x - y * x, *rests]
            if nested:
                inner = lib.concatenate(parts[:2], axis)
                return lib.concatenate([inner, *parts[2:]], axis), x * y
            return lib.concatenate([parts[k] for k in order], axis), parts[1]

        class Lib:
            @staticmethod
            def concatenate(parts: Any, axis: int) -> Any:
                return T.concat(list(parts), axis=axis)

        program = cb.jit(lambda *given: both(*given, lib=Lib))
        right = both(x, y, *rests, lib=np)
        for _ in range(3):
            found = program(*map(cb.tensor, (x, y, *rests)))
            for one, other in zip(found, right, strict=True):
                np.testing.assert_allclose(one.numpy(), other, rtol=1e-5, atol=1e-6)
