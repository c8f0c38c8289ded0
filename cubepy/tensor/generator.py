"""Explicit generators of random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError
from cubepy.lang.dtypes import as_dtype, f32, f64, i64
from cubepy.runtime.device import use
from cubepy.tensor.array import Tensor, apply, as_tensor, tensor
from cubepy.tensor.methods.applied import ints


class Generator:
    """A stream of random numbers: Philox4x32-10 (Salmon et al., 2011) of a seed and a counter.

    The same seed gives the same numbers on every device, for any number of threads. There is no
    generator that nobody named.

    Args:
        seed: any integer; its low 64 bits count.
        device: where its numbers are; by default the current device.
        stream: number of an independent stream under the same seed.

    Attributes:
        state: a tensor (u64) of seed, stream and the number of the next block of four words; set it
            back to repeat numbers.

    Example:
        >>> import cubepy as cb
        >>> g = cb.Generator(7)
        >>> x = g.normal((2, 3))
        >>> x.shape, bool((cb.Generator(7).normal((2, 3)) == x).all())
        ((2, 3), True)
        >>> sorted(g.permutation(4).tolist())
        [0, 1, 2, 3]
    """

    def __init__(self, seed: int = 0, device: Any = None, *, stream: int = 0) -> None:
        words = np.array([seed % 2**64, stream % 2**64, 0], np.uint64)
        self.state = tensor(words, device=device)

    def _drawn(self, shape: Any, kind: str, low: Any, high: Any, dtype: Any) -> Tensor:
        found, lengths = as_dtype(dtype), ints((shape,))
        wide = kind == "integers" or (found is f64 and kind != "bernoulli")
        before = self._advanced(math.prod(lengths), 2 if wide else 1)
        attrs = {"kind": kind, "low": low, "high": high, "dtype": found.name}
        with use(before.device):
            return apply("random", before, shape=lengths, **attrs)  # type: ignore[no-any-return]

    def _advanced(self, size: int, words: int) -> Tensor:
        """The state, which is then behind what `size` numbers of some words take."""
        before = self.state
        blocks = -(-size * words // 4)
        self.state = apply("advance", before, blocks=blocks)
        return before

    def uniform(self, shape: Any = (), low: float = 0, high: float = 1, dtype: Any = f32) -> Tensor:
        """Floats spread evenly over [low, high)."""
        return self._drawn(shape, "uniform", float(low), float(high), dtype)

    def normal(self, shape: Any = (), mean: float = 0, std: float = 1, dtype: Any = f32) -> Tensor:
        """Floats of the normal distribution."""
        if std < 0:
            raise ArgumentError(f"a deviation is at least 0, not {std}")
        return self._drawn(shape, "normal", float(mean), float(std), dtype)

    def integers(
        self, low: int, high: int | None = None, shape: Any = (), dtype: Any = i64
    ) -> Tensor:
        """Integers of [low, high), all as likely as each other; of one end, those from 0 to it."""
        low, high = (0, low) if high is None else (low, high)
        found = as_dtype(dtype)
        if low >= high:
            raise ArgumentError(f"integers need low < high, not {low} and {high}")
        if found.is_int:
            info = np.iinfo(found.numpy)
            if low < info.min or high - 1 > info.max or high - low >= 2**64:
                raise ArgumentError(f"{found.name} does not hold all of [{low}, {high})")
        return self._drawn(shape, "integers", int(low), int(high), found)

    def bernoulli(self, p: float, shape: Any = (), dtype: Any = f32) -> Tensor:
        """Ones with a probability, zeros otherwise."""
        if not 0 <= p <= 1:
            raise ArgumentError(f"a probability lies between 0 and 1; {p} does not")
        return self._drawn(shape, "bernoulli", float(p), 0.0, dtype)

    def permutation(self, x: Any, axis: int = 0) -> Tensor:
        """The numbers below x in random order, or the slices of a tensor along an axis."""
        n = x if isinstance(x, int) else as_tensor(x).shape[axis]
        order = self.integers(0, 2**63 - 1, n).argsort()
        return order if isinstance(x, int) else apply("take", as_tensor(x), order, axis=axis)

    def dropout(self, x: Any, p: float = 0.5) -> Tensor:
        """Elements set to 0 with a probability, and the others divided by 1 - p. The mask comes
        from counters wherever it is needed, also for gradients, and is never stored.
        """
        given = as_tensor(x)
        before = self._advanced(given.size, 1)
        return apply("dropout", given, before, p=float(p))  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        seed, stream, block = self.state.tolist()
        return f"Generator(seed={seed}, stream={stream}, block={block}, device={self.state.device})"
