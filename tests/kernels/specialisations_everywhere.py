"""How many specialisations each public function needs for arrays of any sizes from 1 to some
hundreds, as JSON.

A program of its own (`python -m tests.kernels.specialisations_everywhere`), as `specialisations`
is. What decides code by design (dtypes, ranks, windows, groups, axes) is the same in all calls of a
function; sizes are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.primitives import functions as f
from tests.kernels.by_axis import functions_of_an_axis
from tests.kernels.specialisations import count, some

CALLS = 8
rng = np.random.default_rng(1)


def n(high: int = 300, low: int = 1) -> int:
    """A length; one below 20 is as likely as one above."""
    return int(low * np.exp(rng.uniform(0, np.log(high / low + 1e-9))))


def zeros(*shape: int) -> np.ndarray:
    """Places: all of them are inside."""
    return np.zeros(shape, np.int64)


def image(axes: int, channels: int = 0) -> np.ndarray:
    return some(n(4), channels or n(80), *(n(60 if axes < 3 else 20, 5) for _ in range(axes)))


def convolved(axes: int, transposed: bool = False) -> Callable[[], Any]:
    def call() -> Any:
        x, features = image(axes), n(80)
        filters = (x.shape[1], features) if transposed else (features, x.shape[1])
        name = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
        return getattr(K, name)(x, some(*filters, *[3] * axes), padding=1)

    return call


def convolution_back(weight: bool) -> Callable[[], Any]:
    def call() -> Any:
        x, features = image(2), n(80)
        filters, grad = (features, x.shape[1], 3, 3), some(len(x), features, *x.shape[2:])
        if weight:
            return K.conv_weight(x, filters, grad, padding=1)
        return K.conv_input(x.shape, some(*filters), grad, padding=1)

    return call


def pooled(kind: str, axes: int) -> dict[str, Callable[[], Any]]:
    """Pooling by windows of 3, and by parts."""
    plain, adaptive = getattr(K, f"{kind}_pool{axes}d"), getattr(K, f"adaptive_{kind}_pool{axes}d")
    back, adaptive_back = (getattr(K, f"{g.__name__}_input") for g in (plain, adaptive))

    def of_windows() -> Any:
        return plain(image(axes), 3, 2, 1)

    def of_windows_back() -> Any:
        x = image(axes)
        shape = (*x.shape[:2], *((s - 1) // 2 + 1 for s in x.shape[2:]))
        return back(x.shape, some(*shape), *((zeros(*shape),) if kind == "max" else ()), 3, 2, 1)

    def of_parts() -> Any:
        x = image(axes)
        return adaptive(x, tuple(n(s) for s in x.shape[2:]))

    def of_parts_back() -> Any:
        x = image(axes)
        shape = (*x.shape[:2], *(n(s) for s in x.shape[2:]))
        return adaptive_back(x.shape, some(*shape), *((zeros(*shape),) if kind == "max" else ()))

    return {g.__name__: c for g, c in (
        (plain, of_windows), (back, of_windows_back), (adaptive, of_parts), (adaptive_back, of_parts_back),
    )}  # fmt: skip


def matrix() -> np.ndarray:
    return some(n(), n())


def with_places(function: Callable[..., Any], rest: bool = False) -> Callable[[], Any]:
    def call() -> Any:
        x = matrix()
        index = zeros(n(), x.shape[1])
        return function(x, 0, index, *((some(*index.shape),) if rest else ()))

    return call


def recurred(function: Callable[..., Any], gates: int) -> Callable[[], Any]:
    def call() -> Any:
        x, width = some(n(30, 7), n(9), n(60)), n(200)
        rows = gates * width
        return function(x, some(1, rows, x.shape[2]), some(1, rows, width), some(1, rows))

    return call


def attended(back: bool, forward: bool = False) -> Callable[[], Any]:
    def call() -> Any:
        heads, length, keys = n(6), n(), n()
        q, k = some(n(3), heads, length, 64), None
        k = some(len(q), heads, keys, 64)
        if back:
            return K.attention_gradients(q, q, k, k, q, some(*q.shape[:3]))
        return (K.attention_forward if forward else K.attention)(q, k, k)

    return call


def normalised(function: Callable[..., Any], *rest: Any) -> Callable[[], Any]:
    def call() -> Any:
        x = matrix()
        return function(x, x.shape[1], some(x.shape[1]), *rest)

    return call


def moments() -> Any:
    x = image(2)
    return K.batch_norm(x, some(x.shape[1]), some(x.shape[1]), training=True)


def product() -> Any:
    m, k = n(), n()
    return K.matmul(some(m, k), some(k, n()))


CASES: dict[str, Callable[[], Any]] = {
    **{name: (lambda g=getattr(K, name): g(matrix(), int(rng.integers(2)))) for name in (
        "all", "any", "argmax", "argmin", "argsort", "cumprod", "cumsum", "flip", "log_softmax", "logsumexp", "max", "mean",
        "min", "prod", "softmax", "sort", "std", "sum", "var",
    )},
    "norm": lambda: K.norm(matrix(), axis=1), "copy": lambda: K.copy(some(n(), n(), n(9)).swapaxes(0, 1)),
    "transpose": lambda: K.transpose(matrix()), "gelu": lambda: K.gelu(matrix()),
    "map": lambda: K.map(f.mul, x := matrix(), some(x.shape[1])), "concat": lambda: K.concat([some(n(), 5), some(n(), 5)]),
    "pad": lambda: K.pad(matrix(), (n(9), n(9), n(9), n(9))), "topk": lambda: K.topk(some(n(), n(300, 8)), 4),
    "matmul": product, "prepack": lambda: K.prepack(matrix()), "prepack_filter": lambda: K.prepack_filter(some(n(), n(), 3, 3)),
    "embedding": lambda: K.embedding(zeros(n()), matrix()), "select": lambda: K.select(matrix(), 0, zeros(n())),
    "gather": with_places(K.gather), "scatter": with_places(K.scatter, True),
    "take_along_axis": lambda: K.take_along_axis(x := matrix(), zeros(n(), x.shape[1]), 0),
    "index_put": lambda: K.index_put(x := matrix(), (zeros(k := n()),), some(k, x.shape[1])),
    "lstm": recurred(K.lstm, 4), "gru": recurred(K.gru, 3), "rnn": recurred(K.rnn, 1),
    "attention": attended(False), "attention_forward": attended(False, True), "attention_gradients": attended(True),
    "layer_norm": normalised(K.layer_norm), "rms_norm": normalised(K.rms_norm),
    "group_norm": lambda: K.group_norm(image(2, 4 * n(16)), 4), "batch_norm": moments,
    **{f"conv{d}d": convolved(d) for d in (1, 2, 3)}, **{f"conv_transpose{d}d": convolved(d, True) for d in (1, 2, 3)},
    "conv_input": convolution_back(False), "conv_weight": convolution_back(True),
    "interpolate": lambda: K.interpolate(image(2), (n(90), n(90)), mode="bilinear"),
    "interpolate_input": lambda: K.interpolate_input((g := image(2)).shape[:2] + (n(90), n(90)), g, mode="bilinear"),
    "bernoulli": lambda: K.bernoulli(matrix()), "normal": lambda: K.normal(size=n(3000)),
    "uniform": lambda: K.uniform(size=n(3000)), "randint": lambda: K.randint(0, 9, n(3000)),
    **{name: c for kind in ("max", "avg") for axes in (1, 2, 3) for name, c in pooled(kind, axes).items()},
}  # fmt: skip
for name, function in functions_of_an_axis().items():
    CASES.setdefault(name, lambda g=function: g(matrix(), int(rng.integers(2))))
OTHERS = {"Generator", "functions", "manual_seed", "views"}
"""Public names that are no functions of arrays."""


@cb.kernel
def over(out: cb.Array):
    """What a user launches over an array."""
    if cb.ABSOLUTE_POS < out.size:
        out[cb.ABSOLUTE_POS] = 1


@cb.kernel
def over_axes(out: cb.Array):
    """The same along axes."""
    if cb.ABSOLUTE_POS_Y < out.shape[0] and cb.ABSOLUTE_POS_X < out.shape[1]:
        out[cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X] = 1


def main() -> None:
    missing = set(K.__all__) - OTHERS - set(CASES)
    assert not missing, missing
    CASES["over"] = lambda: over[cb.over(k := n(600))](some(k))
    CASES["over axes"] = lambda: over_axes[cb.over(x := matrix())](x)
    print(json.dumps(count(CASES, CALLS)))


if __name__ == "__main__":
    main()
