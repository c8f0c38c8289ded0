"""Random numbers of a state: a tensor of seed, stream and the number of the next block."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.lang.dtypes import dtype_named, u64
from cubepy.tensor.ops.library import function, kernels, number, stateful
from cubepy.tensor.ops.op import Spec, define


def _states(state: Spec) -> None:
    if state.shape != (3,) or state.dtype is not u64:
        raise ShapeError(f"a state is u64 of shape (3,), not {state.dtype.name} of {state.shape}")


def _run_random(
    d: np.dtype, state: Any, shape: tuple[int, ...], kind: str, low: Any, high: Any, dtype: str
) -> Any:
    return stateful().drawn(state, shape, kind, low, high, d)


@define("make", {"random": _run_random}, constant=True)
def _random(
    state: Spec, shape: tuple[int, ...], kind: str, low: Any, high: Any, dtype: str
) -> Spec:
    """`kind`: "uniform" in [low, high), "normal" of mean low and deviation high, "integers" in
    [low, high), "bernoulli" of probability low.
    """
    _states(state)
    found = dtype_named(dtype)
    if any(n < 0 for n in shape):
        raise ShapeError(f"lengths are at least 0, not {shape}")
    if found.storage_only or found.is_float != (kind != "integers"):
        raise DTypeError(f"{kind} numbers are not {found.name}")
    return Spec(shape, found)


def _run_advance(dtype: np.dtype, state: Any, blocks: int) -> Any:
    return kernels().map(function("f:add"), state, number(state, (0, 0, blocks), dtype))


@define("map", {"advance": _run_advance}, constant=True)
def _advance(state: Spec, blocks: int) -> Spec:
    """The state behind some blocks."""
    _states(state)
    return state


@define("map", {"dropout": lambda d, x, state, p: stateful().dropped(x, state, p)})
def _dropout(x: Spec, state: Spec, p: float) -> Spec:
    """x with elements set to 0 with probability p, and the others divided by 1 - p. The same state
    drops the same elements.
    """
    _states(state)
    if not x.dtype.is_float or x.dtype.storage_only:
        raise DTypeError(f"dropout is of floats, not of {x.dtype.name}")
    if not 0 <= p <= 1:
        raise ArgumentError(f"a probability lies between 0 and 1; {p} does not")
    return x
