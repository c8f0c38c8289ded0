"""What a result has to be: float64 numbers, and how far from each it may lie.

A bound is made of what a dtype allows: half a unit in the last place of the result for its one
rounding, and of the sums (f32, or f64 for f64) a unit for each of the roundings that lie on one
another, relative to the terms' magnitudes, not to the result, in which they may cancel. With n
terms in lines and blocks those are fewer than n; `depth` says how many are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.draws import Call, Draw, Framed, is_float, sums, unit


class Wrong(Exception):
    """A result is not what it has to be."""


@dataclass
class Want:
    """A result: its numbers, its dtype, and how far off they may be.

    Attributes:
        value: float64, or exact ints.
        dtype: of the result.
        error: what is allowed besides the one rounding to `dtype`; None: every element exactly.
        any_order: elements that are equal count as such whatever their sign of zero (always so).
    """

    value: np.ndarray
    dtype: np.dtype
    error: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape


def depth(n: int) -> float:
    """How many roundings lie on one another in a sum of n terms that is made in lines and blocks,
    generously.
    """
    return 4 + math.sqrt(max(n, 0)) / 2


def summed(value: Any, magnitude: Any, n: int, dtype: np.dtype, extra: float = 0.0) -> Want:
    """A sum of n terms whose magnitudes add up to `magnitude`; `extra`: more roundings, relative to
    it.
    """
    return Want(np.asarray(value), dtype, (depth(n) + extra) * sums(dtype) * np.asarray(magnitude))


def exact(value: Any, dtype: Any = None) -> Want:
    """A result in which nothing is rounded, or once to `dtype` (which NumPy then does)."""
    value = np.asarray(value)
    return Want(value, np.dtype(dtype or value.dtype))


def compare(got: Any, want: Want, where: str = "result") -> None:
    """Whether a result is what it has to be.

    Raises:
        Wrong: it is not, and where.
    """
    if hasattr(got, "numpy"):
        got = got.numpy()
    got = np.asarray(got)
    if got.shape != want.shape:
        raise Wrong(f"{where}: shape {got.shape}, not {want.shape}")
    if got.dtype != want.dtype:
        raise Wrong(f"{where}: dtype {got.dtype}, not {want.dtype}")
    if not got.size:
        return
    if want.error is None:
        expected = want.value.astype(want.dtype) if want.value.dtype != want.dtype else want.value
        same = got == expected
        if is_float(want.dtype):
            same |= (got != got) & (expected != expected)
        if not same.all():
            _refuse(where, got, expected, ~same, None)
        return
    a, b = got.astype(np.float64), want.value.astype(np.float64)
    with np.errstate(all="ignore"):
        # nothing holds less than the smallest normal number of f32 for sure: subnormal numbers may
        # be taken as zero
        limits = np.finfo(np.float32) if want.dtype.itemsize < 8 else np.finfo(np.float64)
        least = max(float(limits.tiny), _smallest(want.dtype))
        error = np.broadcast_to(np.nan_to_num(np.asarray(want.error, np.float64), nan=0.0), b.shape)
        # a magnitude that overflows leaves nothing to compare with but infinities
        bound = error + unit(want.dtype) * 1.0001 * np.abs(b) + least
        good = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= bound)
        top = _largest(want.dtype)
        good |= (
            np.isinf(a)
            & (np.sign(a) == np.sign(b))
            & (np.abs(b) + bound >= top * (1 - unit(want.dtype)))
        )
    if not good.all():
        _refuse(where, a, b, ~good, bound)


def _largest(dtype: np.dtype) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).max) if is_float(dtype) else math.inf


def _smallest(dtype: np.dtype) -> float:
    import ml_dtypes

    return float(ml_dtypes.finfo(dtype).smallest_subnormal) if is_float(dtype) else 0.0


def _refuse(where: str, got: np.ndarray, want: np.ndarray, bad: np.ndarray, bound: Any) -> None:
    at = tuple(int(k[0]) for k in np.nonzero(bad)) if bad.ndim else ()
    text = f"{where}: {int(bad.sum())} of {bad.size} elements, the first at {at}: {got[at]!s}, not {want[at]!s}"
    if bound is not None:
        text += f" (off by {abs(float(got[at]) - float(want[at])):.3g}, allowed {float(np.broadcast_to(bound, got.shape)[at]):.3g})"
    raise Wrong(text)


def frames_kept(frames: list[Framed], written: tuple[np.ndarray, ...]) -> None:
    """Whether memory around arrays, and what was only read, is as it was.

    Raises:
        Wrong: something was written.
    """
    for frame in frames:
        if frame.before is None:
            continue
        now = frame.memory.copy()
        if frame.array.size and any(frame.array is w for w in written):
            # what may be written is put back as it was, through a view of the copy that lies as the
            # array does
            offset = (
                frame.array.__array_interface__["data"][0]
                - frame.memory.__array_interface__["data"][0]
            )
            make: Callable[[np.ndarray], np.ndarray] = lambda m: np.ndarray(
                frame.array.shape, frame.array.dtype, m.data, offset, frame.array.strides
            )
            make(now)[...] = make(frame.before)
        if not np.array_equal(now, frame.before):
            places = np.nonzero(now != frame.before)[0]
            offset = (
                frame.array.__array_interface__["data"][0]
                - frame.memory.__array_interface__["data"][0]
            )
            raise Wrong(
                f"{len(places)} bytes around or in an array of {frame.array.dtype} {frame.array.shape}, strides "
                f"{frame.array.strides}, were written: from byte {int(places[0]) - offset} to {int(places[-1]) - offset} of it"
            )


def run(d: Draw, call: Call, device: str = "cpu") -> None:
    """Draw `out`, call, and compare.

    Raises:
        Wrong: the result, or memory around it, is not what it has to be.
    """
    with np.errstate(all="ignore"):
        wants = call.want()
    kwargs, written = dict(call.kwargs), list(call.changed)
    if call.out and isinstance(wants, Want) and d.maybe(0.35):
        given = call.args[call.in_place] if call.in_place is not None else None
        if (
            given is not None
            and given.shape == wants.shape
            and given.dtype == wants.dtype
            and d.maybe(0.4)
        ):
            out = given
        else:
            out = d.room(wants.shape, wants.dtype)
            d.seal(out)
        kwargs["out"] = out
        written.append(out)
        call.kwargs["out"] = out
    got = call.function(*call.args, **kwargs) if device == "cpu" else there(call, kwargs, device)
    if "out" in kwargs and got is not kwargs["out"]:
        raise Wrong("what is returned is not out")
    if isinstance(wants, Want):
        compare(got, wants)
    else:
        if len(got) != len(wants):
            raise Wrong(f"{len(got)} results, not {len(wants)}")
        for k, (one, want) in enumerate(zip(got, wants, strict=True)):
            compare(one, want, f"result {k}")
    frames_kept(d.frames, tuple(written))


def there(call: Call, kwargs: dict[str, Any], device: str) -> Any:
    """The call with its arrays on a device, their axes in memory in the same order; what it writes
    comes back.
    """
    import cubepy as cb
    from cubepy.runtime.device import as_device
    from cubepy.runtime.memory.device_array import upload

    moved: dict[int, tuple[Any, np.ndarray]] = {}

    def move(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if id(value) not in moved:
                order = sorted(range(value.ndim), key=lambda k: -abs(value.strides[k]))
                far = upload(value.transpose(order).copy(), as_device(device))
                moved[id(value)] = (
                    far.transpose(*(order.index(k) for k in range(value.ndim))),
                    value,
                )
            return moved[id(value)][0]
        return type(value)(map(move, value)) if isinstance(value, (list, tuple)) else value

    given = {k: move(v) for k, v in kwargs.items()}
    with cb.use(device):
        got = call.function(*map(move, call.args), **given)
    for far, near in moved.values():
        if near is kwargs.get("out") or any(near is c for c in call.changed):
            near[...] = far.numpy()
    return kwargs["out"] if "out" in kwargs else got


def described(call: Call) -> str:
    """A call's arguments as text."""
    return ", ".join([*map(_text, call.args), *(f"{k}={_text(v)}" for k, v in call.kwargs.items())])


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}" + (
            "" if value.flags.c_contiguous else f" strides {value.strides}"
        )
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_text, value))})"
    text = getattr(value, "__name__", None) or repr(value)
    return text if len(text) < 80 else type(value).__name__
