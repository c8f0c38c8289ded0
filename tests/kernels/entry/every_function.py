"""A small call of every public function of the library, for rules that hold for all of them.

`CALLS` has (positional arguments, keywords) by name, and `variants` the calls in which each array
in turn is another.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cubepy import kernels as K
from tests.kernels.by_axis import functions_of_an_axis

Call = tuple[tuple[Any, ...], dict[str, Any]]
F = np.float32


def some(*shape: int) -> np.ndarray:
    """Numbers that differ, all below 1."""
    return (np.arange(np.prod(shape), dtype=F).reshape(shape) * F(0.37)) % F(1)


def places(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape) % 2


def _images() -> dict[str, Call]:
    found: dict[str, Call] = {}
    for axes in (1, 2, 3):
        x, window = some(1, 4, *[4] * axes), (3,) * axes
        halves, at = (1, 4, *[2] * axes), places(1, 4, *[2] * axes)
        for kind in ("max", "avg"):
            rest = (at,) if kind == "max" else ()
            found |= {
                f"{kind}_pool{axes}d": ((x, 2), {}),
                f"{kind}_pool{axes}d_input": ((x.shape, some(*halves), *rest, 2), {}),
                f"adaptive_{kind}_pool{axes}d": ((x, 2), {}),
                f"adaptive_{kind}_pool{axes}d_input": ((x.shape, some(*halves), *rest), {}),
            }
        found[f"conv{axes}d"] = (x, some(8, 4, *window), some(8), 1, 1), {}
        found[f"conv_transpose{axes}d"] = (x, some(4, 8, *window), some(8), 1, 1), {}
    return found


_heads, _rows, _square = some(1, 2, 6, 8), some(1, 2, 6), some(6, 8)
_image = some(1, 4, 4, 4)
_sequence = some(5, 2, 3)


def _recurrent(gates: int) -> Call:
    rows = gates * 4
    return (_sequence, some(1, rows, 3), some(1, rows, 4), some(1, rows), some(1, rows) + 1), {}


CALLS: dict[str, Call] = {
    **_images(),
    **{name: ((_square, 1), {}) for name in functions_of_an_axis()},
    **{name: ((_square,), {}) for name in ("copy", "gelu", "norm", "transpose", "prepack")},
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "rnn": _recurrent(1),
    "attention": ((_heads, _heads + 0, _heads + 0, places(6, 6).astype(bool)), {}),
    "attention_forward": ((_heads, _heads + 0, _heads + 0), {}),
    "attention_gradients": ((_heads, *[_heads + 0] * 4, _rows), {}),
    "batch_norm": ((_image, some(4), some(4) + 1, some(4), some(4)), {}),
    "bernoulli": ((_square,), {}),
    "concat": (([_square, some(2, 8)],), {}),
    "conv_input": (((1, 4, 4, 4), some(8, 4, 3, 3), some(1, 8, 4, 4), 1, 1), {}),
    "conv_weight": ((_image, (8, 4, 3, 3), some(1, 8, 4, 4), 1, 1), {}),
    "embedding": ((places(3), _square), {}),
    "gather": ((_square, 1, places(6, 2)), {}),
    "group_norm": ((_image, 2, some(4), some(4)), {}),
    "index_put": ((_square, (np.arange(3),), some(3, 8)), {}),
    "interpolate": ((_image, 8), {}),
    "interpolate_input": (((1, 4, 2, 2), _image), {}),
    "layer_norm": ((_square, 8, some(8), some(8)), {}),
    "map": ((K.functions.add, _square, _square + 0), {}),
    "matmul": ((_square, some(8, 4)), {"bias": some(4)}),
    "pad": ((_square, (1, 1)), {}),
    "prepack_filter": ((some(8, 4, 3, 3),), {}),
    "rms_norm": ((_square, 8, some(8)), {}),
    "scatter": ((_square, 1, places(6, 1), some(6, 1)), {}),
    "select": ((_square, 1, places(3)), {}),
    "take_along_axis": ((_square, places(6, 2), 1), {}),
    "topk": ((_square, 2), {}),
}
DRAWS: dict[str, Call] = {
    "normal": ((0.0, 1.0, (3, 4)), {}),
    "randint": ((9, None, (3, 4)), {}),
    "uniform": ((0.0, 1.0, (3, 4)), {}),
}
"""Functions that take no array but `out`."""
PACKED = {"prepack", "prepack_filter"}
"""Functions that give no array."""
NO_ARRAYS = {"manual_seed"}


def missing() -> set[str]:
    """Public functions that stand nowhere here."""
    public = {n for n in K.__all__ if inspect.isfunction(getattr(K, n))}
    return public ^ (set(CALLS) | set(DRAWS) | NO_ARRAYS)


def takes_out(name: str) -> bool:
    """Whether a function has `out=`."""
    return "out" in inspect.signature(getattr(K, name)).parameters


def changed(value: Any, change: Callable[[np.ndarray], Any]) -> Any:
    """An argument with every array in it changed."""
    if isinstance(value, np.ndarray):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(changed(v, change) for v in value)
    return value


def with_all(call: Call, change: Callable[[np.ndarray], Any]) -> Call:
    """A call with all of its arrays changed."""
    args, kwargs = call
    return changed(args, change), {k: changed(v, change) for k, v in kwargs.items()}


def variants(call: Call, change: Callable[[np.ndarray], Any]) -> Iterator[Call]:
    """The call with one of its arrays changed, for each of them."""
    seen = 0

    def count(a: np.ndarray) -> np.ndarray:
        nonlocal seen
        seen += 1
        return a

    with_all(call, count)
    for chosen in range(seen):
        place = iter(range(seen))
        yield with_all(call, lambda a, c=chosen, p=place: change(a) if next(p) == c else a)
