"""Inputs in f64 for every op that has a gradient: by the name of the op, calls as `(inputs, attrs)`.

Elements keep a distance from each other, so that extremes and orders do not change when one is
moved a little.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.tensor.library_ops import HOW, MEANS, PEAKS, SIZED

RNG = np.random.default_rng(11)
Call = tuple[tuple[Any, ...], dict[str, Any]]
LINEAR = {"mode": "linear", "padding": "zeros", "align": False}


def some(*shape: int, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    """Distinct numbers in [low, high], at least a 40th of a step from 0 and the ends."""
    n = int(np.prod(shape))
    steps = (RNG.permutation(n) + RNG.uniform(0.3, 0.7, n)) / max(n, 1)
    return (low + (high - low) * steps).reshape(shape)


def ints(*shape: int, below: int) -> np.ndarray:
    return RNG.integers(0, below, shape)


def square(*shape: int) -> np.ndarray:
    """Matrices that are far from singular."""
    return some(*shape, shape[-1]) + 4 * np.eye(shape[-1])


def definite(*shape: int) -> np.ndarray:
    """Symmetric positive definite matrices whose eigenvalues are not near each other."""
    x = some(*shape, shape[-1])
    return np.diag(np.arange(3.0, 3 + 3 * shape[-1], 3)) + (x + x.swapaxes(-1, -2)) / 5


def spread(*shape: int) -> np.ndarray:
    """Matrices whose singular values are not near each other."""
    x = some(*shape) / 5
    k = min(shape[-2:])
    x[..., range(k), range(k)] += np.arange(2.0, 2 + 2 * k, 2)
    return x


def mask(*shape: int) -> np.ndarray:
    return RNG.random(shape) > 0.4


def one(*inputs: Any, **attrs: Any) -> Call:
    return inputs, attrs


def reductions(**more: Any) -> list[Call]:
    return [
        one(some(2, 3), axis=None, keepdims=False, **more),
        one(some(2, 3, 2), axis=(0, 2), keepdims=True, **more),
        one(some(3, 2).T, axis=-1, keepdims=False, **more),
    ]


def pairs(low: float = 0.4, high: float = 2.0) -> list[Call]:
    shapes = [((2, 3), (2, 3)), ((2, 1, 3), (2, 1)), ((), (3,))]
    return [one(*(some(*s, low=low, high=high) for s in both)) for both in shapes]


DOMAINS: dict[str, tuple[float, float]] = {
    **dict.fromkeys("log log2 log10 sqrt rsqrt reciprocal".split(), (0.3, 3)),
    **dict.fromkeys("asin acos atanh erfinv".split(), (-0.8, 0.8)),
    **dict.fromkeys("cbrt".split(), (0.3, 3)),
    "acosh": (1.3, 3),
    "log1p": (-0.5, 3),
    "lgamma": (0.5, 3),
    "tan": (-1, 1),
}
"""Where functions of one element are looked at, if not in [-2, 2]."""

_UNARY = """exp log log1p expm1 sqrt rsqrt sin cos tanh erf silu sigmoid tan asin acos atan sinh cosh
    asinh acosh atanh log10 cbrt erfc log2 exp2 erfinv reciprocal neg abs relu square cube lgamma"""
_IMAGE = (1, 2, 5, 4)
_SMALL = {**HOW, "groups": 1}
_INDICES = np.array([[[[1, 3], [9, 11]], [[5, 2], [17, 14]]]])
_POOLED = {n: v for n, v in PEAKS.items() if n != "indices"}

SAMPLES: dict[str, list[Call]] = {
    **{
        n: [one(some(2, 3, low=low, high=high)), one(some(3, 2, low=low, high=high).T)]
        for n in _UNARY.split()
        for low, high in [DOMAINS.get(n, (-2, 2))]
    },
    **{n: pairs() for n in "add sub mul div pow minimum maximum mod fmod".split()},
    **{n: pairs(-2, 2) for n in "atan2 hypot copysign logaddexp".split()},
    **{n: reductions() for n in "sum mean max min logsumexp".split()},
    "floordiv": pairs(),
    "prod": [*reductions(), one(some(2, 3) * [[1, 0, 1], [0, 0, 1]], axis=1, keepdims=False)],
    "var": [*reductions(correction=0), *reductions(correction=1)],
    "std": [*reductions(correction=0), *reductions(correction=1)],
    "norm": [c for o in (1.0, 2.0, 3.0, float("inf")) for c in reductions(ord=o)],
    "gelu": [one(some(2, 3), approximate=a) for a in ("none", "tanh")],
    "where": [one(mask(2, 3), some(2, 3), some(3)), one(mask(3), some(2, 1), some())],
    "clip": [
        one(some(2, 3), some(low=-1, high=-0.5), some(3, low=0.5, high=1)),
        one(some(2, 3), None, some(low=0, high=0.4)),
        one(some(2, 3), some(1), None),
    ],
    "cast": [one(some(2, 3), dtype="f64")],
    "dropout": [one(some(3, 4), np.array([1, 2, 0], np.uint64), p=0.4)],
    "softmax": [one(some(2, 3), axis=-1), one(some(2, 3, 2), axis=1), one(some(3), axis=0)],
    "log_softmax": [one(some(2, 3), axis=-1), one(some(2, 3, 2), axis=1), one(some(3), axis=0)],
    "layer_norm": [
        one(some(2, 3, 2), some(3, 2), some(3, 2), normalized_shape=(3, 2), eps=1e-5),
        one(some(2, 4), None, None, normalized_shape=(4,), eps=1e-2),
    ],
    "rms_norm": [
        one(some(2, 3, 2), some(3, 2), normalized_shape=(3, 2), eps=1e-5),
        one(some(2, 4), None, normalized_shape=(4,), eps=1e-2),
    ],
    "group_norm": [
        one(some(2, 4, 2), some(4), some(4), groups=2, eps=1e-5),
        one(some(2, 4, 2), None, None, groups=4, eps=1e-5),
    ],
    "batch_norm": [
        one(some(3, 2, 2), some(2), some(2), eps=1e-5),
        one(some(4, 2), None, None, eps=1e-5),
    ],
    "channel_norm": [
        one(some(2, 2, 2), some(2), some(2, low=0.5), some(2), some(2), eps=1e-5),
        one(some(3, 2), some(2), some(2, low=0.5), None, None, eps=1e-5),
    ],
    "matmul": [
        one(some(2, 3), some(3, 2)),
        one(some(3), some(3)),
        one(some(2, 2, 3), some(3)),
        one(some(2, 1, 2, 3), some(3, 3, 2)),
    ],
    "linear": [
        *[
            one(some(2, 3), some(2, 3), some(2), some(2, 2), activation=a)
            for a in (None, "gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh")
        ],
        one(some(2, 2, 3), some(2, 3), None, None, activation=None),
    ],
    "conv": [
        one(some(1, 2, 4, 4), some(2, 2, 3, 3), some(2), **_SMALL),
        one(some(1, 2, 4, 4), some(2, 1, 3, 3), None, **HOW),
        one(
            some(1, 1, 5),
            some(2, 1, 2),
            some(2),
            stride=(1,),
            padding=(0,),
            dilation=(2,),
            groups=1,
            precision=None,
        ),
    ],
    "conv_transpose": [
        one(some(1, 2, 2, 2), some(2, 2, 3, 3), some(2), size=(4, 4), **_SMALL),
        one(some(1, 2, 2, 2), some(2, 1, 3, 3), None, size=(3, 3), **HOW),
    ],
    "conv_weight": [
        one(some(1, 2, 4, 4), some(1, 2, 2, 2), window=(3, 3), **_SMALL),
        one(some(1, 2, 4, 4), some(1, 2, 2, 2), window=(3, 3), **HOW),
    ],
    "max_pool": [one(some(*_IMAGE), **PEAKS), one(some(*_IMAGE), **{**PEAKS, "indices": False})],
    "max_pool_input": [one(some(1, 2, 3, 2), ints(1, 2, 3, 2, below=20), size=(5, 4), **_POOLED)],
    "adaptive_max_pool": [one(some(*_IMAGE), size=(2, 3), indices=True)],
    "adaptive_max_pool_input": [one(some(1, 2, 2, 2), _INDICES, size=(5, 4))],
    "at_positions": [one(some(*_IMAGE), _INDICES)],
    "to_positions": [one(some(1, 2, 2, 2), _INDICES, size=(5, 4))],
    "avg_pool": [
        one(some(*_IMAGE), **MEANS),
        one(some(*_IMAGE), **{**MEANS, "count_include_pad": False, "ceil_mode": True}),
    ],
    "avg_pool_input": [one(some(1, 2, 3, 2), size=(5, 4), **MEANS)],
    "adaptive_avg_pool": [one(some(*_IMAGE), size=(2, 3))],
    "adaptive_avg_pool_input": [one(some(1, 2, 2, 3), size=(5, 4))],
    "interpolate": [
        *[
            one(some(1, 1, 3, 4), size=(5, 3), **{**SIZED, "mode": m})
            for m in ("nearest", "area", "bilinear", "bicubic")
        ],
        one(some(1, 1, 3, 4), size=(4, 6), **{**SIZED, "align_corners": True}),
        one(some(1, 2, 3), size=(5,), **{**SIZED, "mode": "linear"}),
    ],
    "interpolate_input": [
        one(some(1, 1, 5, 3), size=(3, 4), **{**SIZED, "mode": m})
        for m in ("nearest", "area", "bilinear", "bicubic")
    ],
    "unfold": [
        one(some(1, 2, 5, 4), how=((2, 3), (1, 1), (1, 0), (2, 1)), counts=(3, 2)),
        one(some(2, 1, 6, 3), how=((2, 1), (3, 1), (0, 1), (1, 2)), counts=(3, 3)),
    ],
    "fold": [one(some(1, 12, 6), size=(5, 4), how=((2, 3), (1, 1), (1, 0), (2, 1)), counts=(3, 2))],
    "grid_sample": [
        one(some(2, 2, 3, 4), some(2, 2, 3, 2) / 1.7, mode="linear", padding=p, align=a)
        for p, a in (("zeros", False), ("border", True), ("reflection", False))
    ]
    + [one(some(1, 2, 3, 2, 2), some(1, 1, 2, 2, 3), mode="nearest", padding="zeros", align=True)],
    "grid_sample_input": [
        one(some(1, 2, 2, 3), some(1, 2, 3, 2) / 1.7, size=(3, 4), **{**LINEAR, "padding": p})
        for p in ("zeros", "reflection")
    ],
    "grid_sample_grid": [one(some(1, 2, 3, 4), some(1, 2, 3, 2) / 1.7, some(1, 2, 2, 3), **LINEAR)],
    "embedding": [one(np.array([[0, 2], [2, 1]]), some(4, 2))],
    "embedding_gradient": [one(some(2, 2, 2), np.array([[0, 2], [2, 1]]), rows=4)],
    "take": [one(some(3, 4), np.array([[1, 3], [3, 0]]), axis=1)],
    "put": [
        one(some(3, 4), np.array([1, 3]), some(3, 2), axis=1, update="assign"),
        one(some(3, 4), np.array([1, 1]), some(2, 1), axis=0, update="add"),
    ],
    "after": [one(some(3, 4), some(2))],
    "gather": [one(some(3, 4), ints(2, 4, below=3), axis=0)],
    "scatter": [
        *[
            one(some(3, 4), ints(2, 4, below=3), some(3, 4), axis=0, update=u)
            for u in ("add", "mul", "min", "max")
        ],
        one(
            some(3, 4), np.argsort(RNG.random((2, 3)), axis=1), some(2, 3), axis=1, update="assign"
        ),
    ],
    "take_along_axis": [one(some(3, 4), ints(2, 4, below=3) - 1, axis=0)],
    "contiguous": [one(some(3, 2).T)],
    "clone": [one(some(3, 2).T)],
    "reshape": [one(some(2, 3), shape=(3, -1)), one(some(3, 2).T, shape=(6,))],
    "permute": [one(some(2, 3, 2), axes=(2, 0, 1))],
    "expand": [one(some(2, 1), shape=(3, 2, 2)), one(some(), shape=(2,))],
    "slice": [
        one(some(3, 4), index=((2, None, -1), "new", (0, 4, 2))),
        one(some(3, 4), index=(1,)),
    ],
    "unslice": [
        one(some(3, 2), shape=(3, 4), index=((2, None, -1), (0, 4, 2))),
        one(some(4), shape=(3, 4), index=(1,)),
    ],
    "slice_put": [one(some(3, 4), some(2), index=((0, 3, 2), (1, 3, None)))],
    "concat": [one(some(2, 3), some(2, 1), some(2, 2), axis=-1)],
    "pad": [
        one(some(2, 3), widths=(1, 2, 0, 1), mode="constant", value=3.0),
        one(some(2, 3), widths=(-1, 2), mode="constant", value=0.0),
        *[one(some(1, 2, 4), widths=(1, 2), mode=m, value=0.0) for m in ("reflect", "replicate")],
    ],
    "sort": [one(some(3, 4), axis=a, descending=d) for a, d in ((1, False), (0, True))],
    "topk": [one(some(3, 4), k=2, axis=1, largest=True), one(some(4), k=3, axis=0, largest=False)],
    "cumsum": [one(some(3, 4), axis=a, exclusive=e) for a, e in ((1, False), (0, True))],
    "cummax": [one(some(3, 4), axis=1)],
    "cummin": [one(some(3, 4), axis=0)],
    "cumprod": [
        *[one(some(3, 4), axis=a, exclusive=e) for a, e in ((1, False), (0, True))],
        *[
            one(some(2, 4) * [[1, 0, 1, 1], [1, 0, 1, 0]], axis=1, exclusive=e)
            for e in (False, True)
        ],
    ],
    "projected_recurrence": [
        one(
            *(some(2, 2, d * 8), some(d, 8, 1), some(d, 1, 2)),
            *(lengths, some(d, 2, 1), some(d, 2, 2)),
            reverse=reverse,
        )
        for d, lengths, reverse in ((1, np.array([2, 1]), True), (2, None, False))
    ],
    "recurrence": [
        one(
            some(2, 2, 8),
            some(1, 8, 2),
            some(1, 8),
            some(1, 6),
            np.array([2, 1]),
            some(1, 2, 2),
            some(1, 2, 2),
            cell="lstm",
            reverse=True,
        ),
        one(
            some(2, 1, 12),
            some(2, 6, 2),
            some(2, 6),
            None,
            None,
            some(2, 1, 2),
            None,
            cell="gru",
            reverse=False,
        ),
        one(
            some(3, 1, 2),
            some(1, 2, 2),
            None,
            None,
            None,
            some(1, 1, 2),
            None,
            cell="tanh",
            reverse=False,
        ),
    ],
    "cholesky": [one(definite(3)), one(definite(2, 2))],
    "eigh": [one(definite(3)), one(definite(2, 2))],
    **{n: [one(square(3)), one(square(2, 2))] for n in ("inv", "det", "slogdet", "matrix_exp")},
    "solve": [
        one(square(3), some(3, 2)),
        one(square(2, 2), some(2, 1)),
        one(square(2), some(2, 2, 1)),
    ],
    "qr": [
        *[one(some(*s), complete=False) for s in ((3, 3), (2, 4, 3), (2, 4))],
        *[one(some(*s), complete=True) for s in ((3, 3), (2, 3))],
    ],
    "svd": [
        *[one(spread(*s), full=False) for s in ((3, 3), (4, 2), (2, 2, 3))],
        one(spread(3, 3), full=True),
    ],
}
"""One row and more for every op with a gradient."""

ONCE = {
    "attention": "its kernels take no f64: beside its formula in test_attention.py, which is "
    "checked there",
    "attention_forward": "as attention",
    "attention_gradients": "as attention, whose second derivatives it has",
    "digamma": "its second derivative is none of an op: in that of lgamma, and in test_more_ops.py",
    "program": "no op that tensors run: a call of a program, see tests/tensor/program",
    "composed": "no op that tensors run: a function that came often, see test_composed.py",
    "alias": "no op that tensors run: the same elements as another handle",
    **dict.fromkeys(
        ("checkpoint", "cond", "scan"), "has functions of the user: see tests/tensor/control"
    ),
    **dict.fromkeys(("custom", "custom_call"), "the user's gradient: see tests/tensor/custom"),
}
"""Ops with a gradient that are looked at within others only, and why."""

OF_USERS = {
    "launch": "a kernel of the user's: see tests/tensor/custom",
    "while_loop": "as many rounds as data say: see tests/tensor/control",
}
"""Ops that have no gradient, because users give it, or what they run."""

WITHOUT = {"trigamma": "the third derivative of lgamma is no op"}
"""Ops of floats whose gradient is missing, and why; fused ones are of programs, which differentiate
the graphs that they are made of.
"""
