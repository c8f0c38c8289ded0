"""Views of layouts whose lengths are symbols: what NumPy gives for each length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubepy.kernels.entry.shapes import joined_shape
from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import Device
from cubepy.runtime.generated import written
from cubepy.runtime.memory.device_array import DeviceArray, broadcast_to
from cubepy.runtime.symbolic.layout import SymbolicLayout, sliced
from cubepy.runtime.symbolic.number import Needed, Trace

BOUND = st.one_of(st.none(), st.integers(-6, 6))
PART = st.one_of(
    st.builds(slice, BOUND, BOUND, st.one_of(st.none(), st.sampled_from([1, 2, 3, -1, -2]))),
    st.integers(-2, 1),
    st.none(),
    st.just(Ellipsis),
)
SHAPE = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)


def operations(draw: Any, rank: int) -> list[tuple[str, Any]]:
    """A few views in a row, by name and argument."""
    made: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(
            st.sampled_from(["[", "T", "transpose", "flat", "split", "squeeze", "stretch", "words"])
        )
        if kind == "[":
            parts = draw(st.lists(PART, max_size=3))
            if sum(p is Ellipsis for p in parts) <= 1:
                made.append((kind, tuple(parts)))
        else:
            made.append((kind, draw(st.integers(0, 5))))
    return made


def viewed(array: Any, steps: list[tuple[str, Any]]) -> Any:
    """The views of an array of NumPy, or on a device."""
    for kind, given_ in steps:
        if kind == "[":
            array = array[given_] if Ellipsis in given_ else array[(*given_, Ellipsis)]
        elif kind == "T":
            array = array.T
        elif kind == "transpose":
            array = array.transpose([(k + given_) % array.ndim for k in range(array.ndim)])
        elif kind == "flat":
            rest = array.size // (array.shape[0] or 1 if array.ndim else 1)
            shape = (array.shape[0], rest) if array.ndim else (1, 1)
            array = reshape(array, shape)
        elif kind == "split":
            array = reshape(array, (1, *array.shape[:-1], *array.shape[-1:], 1))
        elif kind == "squeeze":
            array = array.squeeze()
        elif kind == "words":
            array = array.view(np.int32)
        else:
            wanted = (3, *array.shape)
            array = (
                broadcast_to(array, wanted)
                if isinstance(array, DeviceArray)
                else np.broadcast_to(array, wanted)
            )
    return array


def reshape(array: Any, shape: tuple[Any, ...]) -> Any:
    if isinstance(array, DeviceArray):
        return array.reshape_view(shape)
    view = array.view()
    view.shape = shape
    return view


@settings(deadline=None, max_examples=300)
@given(st.data(), SHAPE, SHAPE, st.booleans())
def test_views_are_those_of_numpy(data: Any, first: Any, second: Any, gaps: bool) -> None:
    second = tuple(data.draw(st.integers(1, 6)) for _ in first)
    steps = operations(data.draw, len(first))
    trace = Trace()

    def whole(shape: Any) -> np.ndarray:
        base = np.zeros(tuple(n + gaps for n in shape), np.float32)
        return base[tuple(slice(0, n) for n in shape)] if gaps else base

    one = whole(first)
    given_ = one.strides if gaps else ()
    shape = tuple(trace.input(k, n) for k, n in enumerate(first))
    strides = tuple(
        trace.input(len(first) + k, s, -(1 << 40), 1 << 40) for k, s in enumerate(given_)
    )
    layout = SymbolicLayout(
        shape, strides if gaps else None, one.dtype, Device("cpu"), one.flags.c_contiguous
    )
    try:
        found = viewed(DeviceArray(1 << 20, layout, None), steps)
    except (Needed, Unsuitable, ValueError, IndexError, AttributeError):
        return  # NumPy refuses it, or it is left to NumPy
    results = [*found.shape, *found.strides, found.address - (1 << 20), found.layout.contiguous]
    text, scope = trace.written(results, len(first) + len(given_))
    fit = written(text, "<test>", scope)
    for array in (one, whole(second)):
        if array.flags.c_contiguous != one.flags.c_contiguous:
            continue  # another kind of call
        steps_of = array.strides if gaps else ()
        made = fit(*array.shape, *steps_of)
        if made is None:
            assert array is not one
            continue
        real = viewed(array, steps)
        rank = real.ndim
        start = real.__array_interface__["data"][0] - array.__array_interface__["data"][0]
        assert made[:rank] == real.shape
        new = [s[0] for s in steps] in (["split"], ["["], ["[", "words"])
        alike = new and min(array.shape) > 1  # new axes, too
        if real.size:
            assert all(
                (n <= 1 and not alike) or a == b
                for n, a, b in zip(real.shape, made[rank:], real.strides, strict=False)
            )
            assert made[-2] == start
            assert bool(made[-1]) == real.flags.c_contiguous


@given(BOUND, BOUND, st.sampled_from([None, 1, 2, 3, -1, -2, -5]), st.integers(0, 12))
def test_slices_take_what_python_says(start: Any, stop: Any, step: Any, n: int) -> None:
    first, hop, length = sliced(start, stop, step, n)
    taken = range(*slice(start, stop, step).indices(n))
    assert (hop, length) == (taken.step, len(taken)) and (not taken or first == taken[0])


@given(st.lists(st.lists(st.integers(0, 3), max_size=4).map(tuple), min_size=1, max_size=4))
def test_shapes_join_as_those_of_numpy(shapes: Any) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            joined_shape(*shapes)
    else:
        assert joined_shape(*shapes) == expected
