"""Layouts whose lengths are symbols: views are worked out here, where NumPy would need numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from cubepy.runtime.backend import Unsuitable
from cubepy.runtime.device import Device
from cubepy.runtime.memory.layout import Layout, layout_of
from cubepy.runtime.symbolic.number import Needed, is_symbol


class SymbolicLayout(Layout):
    """A layout with symbols among its lengths and strides."""

    __slots__ = ()

    def __init__(
        self,
        shape: tuple[Any, ...],
        strides: tuple[Any, ...] | None,
        dtype: np.dtype,
        device: Device,
        contiguous: bool | None = None,
    ) -> None:
        known = strides is None
        steps = c_strides(shape, dtype.itemsize) if strides is None else strides
        self.shape, self.strides, self.dtype, self.device = shape, steps, dtype, device
        self.element, self.spec = layout_of((), None, dtype, device).element, None
        self.itemsize, self.ndim, self.size = dtype.itemsize, len(shape), math.prod(shape)
        self.nbytes = self.size * self.itemsize
        if contiguous is None:
            contiguous = known or self.size == 0 or self._ignoring_ones()
        self.contiguous = contiguous
        self.extent = (0, self.nbytes) if contiguous else self._span()
        self.memo = {}

    def _span(self) -> tuple[Any, Any]:
        low = high = 0
        for n, s in zip(self.shape, self.strides, strict=True):
            low, high = (low + (n - 1) * s, high) if s < 0 else (low, high + (n - 1) * s)
        return (low, high + self.itemsize) if self.size else (0, 0)

    def alike(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Layout:
        if not any(map(is_symbol, (*shape, *(strides or ())))):
            return layout_of(shape, strides, self.dtype, self.device)
        return SymbolicLayout(shape, strides, self.dtype, self.device)

    def view(self, key: Hashable, make: Callable[[np.ndarray], np.ndarray]) -> tuple[Layout, int]:
        """The layout of a view and where it begins.

        Raises:
            Needed: a view that only NumPy can work out.
        """
        parts: Any = key
        kind, *given = parts
        if kind == "transpose":
            axes = given[0] or range(self.ndim)[::-1]
            axes = [a % self.ndim for a in axes]
            return self._of([self.shape[a] for a in axes], [self.strides[a] for a in axes]), 0
        if kind == "[":
            return self._sliced(given)
        if kind == "broadcast":
            return self._stretched(given[0]), 0
        if kind == "reshape":
            found = self._reshaped(given[0])
            if found is not None:
                return found, 0
        if kind == "view":
            return self._viewed(make), 0
        if kind == "squeeze" and given[0] is None:
            kept = [d for d in range(self.ndim) if self.shape[d] != 1]
            return self._of([self.shape[d] for d in kept], [self.strides[d] for d in kept]), 0
        raise self.needed()

    def needed(self) -> BaseException:
        """What says that some length has to be known."""
        numbers: tuple[Any, ...] = (*self.shape, *self.strides)
        for n in numbers:
            if is_symbol(n):
                return Needed(n.key)
        return Unsuitable("a view that depends on what is no length")

    def _of(self, shape: Sequence[Any], strides: Sequence[Any]) -> Layout:
        return self.alike(tuple(shape), tuple(strides))

    def _viewed(self, make: Callable[[np.ndarray], np.ndarray]) -> Layout:
        """The same bytes as another dtype."""
        dtype = make(np.empty(0, self.dtype)).dtype
        old, new = self.itemsize, dtype.itemsize
        if old == new:
            return SymbolicLayout(self.shape, self.strides, dtype, self.device, self.contiguous)
        if self.ndim == 0 or self.strides[-1] != old or self.shape[-1] * old % new != 0:
            raise self.needed()
        shape = (*self.shape[:-1], self.shape[-1] * old // new)
        strides = (*self.strides[:-1], new)
        return SymbolicLayout(shape, strides, dtype, self.device, self.contiguous or None)

    def _sliced(self, given: Sequence[Any]) -> tuple[Layout, int]:
        """Basic indexing: whole numbers, slices, None and one `...`."""
        taken = sum(p is not None and p is not Ellipsis for p in given)
        parts: list[Any] = []
        for p in given if Ellipsis in given else (*given, Ellipsis):
            parts += [slice(None)] * (self.ndim - taken) if p is Ellipsis else [p]
        shape, strides, at, axis = [], [], 0, 0
        for p in parts:
            if p is None:
                shape.append(1)
                strides.append(0)
                continue
            n, step = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(p, int):
                inside = -n <= p < n
                if not inside:
                    raise self.needed()  # NumPy says what is wrong
                at = at + (p + n if p < 0 else p) * step
                continue
            begin, end, hop = (p.start, p.stop, p.step) if isinstance(p, slice) else p
            if hop == 0:
                raise self.needed()
            first, hop, length = sliced(begin, end, hop, n)
            shape.append(length)
            strides.append(step * hop)
            if length != 0:
                at = at + first * step
        return self._of(shape, strides), at

    def _stretched(self, wanted: Sequence[Any]) -> Layout:
        missing = len(wanted) - self.ndim
        if missing < 0:
            raise self.needed()
        strides: list[Any] = [0] * missing
        for n, have, step in zip(wanted[missing:], self.shape, self.strides, strict=True):
            if have == n:
                strides.append(step)
            elif have == 1:
                strides.append(0)
            else:
                raise self.needed()
        return self._of(wanted, strides)

    def _reshaped(self, wanted: Sequence[Any]) -> Layout | None:
        """Axes that are split, joined or kept, where the strides allow a view; None where that is
        not easily seen.
        """
        wanted = list(wanted)
        if -1 in wanted:
            rest = math.prod(n for n in wanted if n != -1)
            if rest == 0 or self.size % rest != 0:
                return None
            wanted[wanted.index(-1)] = self.size // rest
        if self.size == 0 or math.prod(wanted) != self.size:
            return None
        if self.contiguous:
            return self.alike(tuple(wanted), None)
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[Any] = []
        at = 0
        for n in wanted:
            if n == 1:
                strides.append(None)
                continue
            if at == len(old):
                return None
            length, step = old[at]
            if length == n:
                strides.append(step)
                at += 1
            elif length < n:  # axes that are joined
                while length < n:
                    at += 1
                    if at == len(old) or old[at][0] * old[at][1] != step:
                        return None
                    length, step = length * old[at][0], old[at][1]
                if length != n:
                    return None
                strides.append(step)
                at += 1
            else:  # one that is split
                if length % n != 0:
                    return None
                inner = length // n
                strides.append(step * inner)
                old[at] = inner, step
                if inner == 1:
                    at += 1
        return self._of(wanted, self._filled(wanted, strides)) if at == len(old) else None

    def _filled(self, wanted: Sequence[Any], strides: list[Any]) -> list[Any]:
        """Strides of a view with those of its axes of one element, as NumPy gives them: over the
        axis behind them; at the end that of the last longer one.
        """
        longer = [k for k, step in enumerate(strides) if step is not None]
        end = longer[-1] if longer else -1
        strides[end + 1 :] = [strides[end] if longer else self.itemsize] * (len(strides) - end - 1)
        for k in reversed(range(end)):
            if strides[k] is None:
                strides[k] = strides[k + 1] * wanted[k + 1]
        return strides


def sliced(start: Any, stop: Any, step: Any, n: Any) -> tuple[Any, Any, Any]:
    """What a slice takes of n elements: the first, from one to the next, and how many.

    Example:
        >>> sliced(None, -1, 2, 10), sliced(None, None, -1, 4)
        ((0, 2, 5), (3, -1, 4))
    """
    hop = 1 if step is None else step
    low, high = (0, n) if hop > 0 else (-1, n - 1)
    first, last = (low, high) if hop > 0 else (high, low)
    if start is not None:
        first = max(start + n, low) if start < 0 else min(start, high)
    if stop is not None:
        last = max(stop + n, low) if stop < 0 else min(stop, high)
    between = last - first if hop > 0 else first - last
    return first, hop, -(-between // abs(hop)) if between > 0 else 0


def c_strides(shape: Sequence[Any], itemsize: int) -> tuple[Any, ...]:
    """Strides in bytes of C order."""
    out, step = [], itemsize
    for n in reversed(shape):
        out.append(step)
        step = step * (n if n != 0 else 1)
    return tuple(reversed(out))
