"""Explicit generators of random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import as_dtype, f32, f64, i64
from cubepy.runtime.device import use
from cubepy.tensor.array import Tensor, apply, as_tensor, tensor
from cubepy.tensor.methods.applied import ints
from cubepy.tensor.program import observe


class Generator:
    """A stream of random numbers: Philox4x32-10 (Salmon et al., 2011) of a seed and a counter.

    The same seed gives the same numbers on every device, for any number of threads. There is no
    generator that nobody named.

    Args:
        seed: any integer; its low 64 bits count.
        device: where its numbers are; by default the current device.
        stream: number of an independent stream under the same seed.

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
        self._state = tensor(words, device=device)  # this handle stays: programs exchange its value

    @property
    def state(self) -> Tensor:
        """A tensor (u64) of seed, stream and the number of the next block of four words; set it
        back to repeat numbers.
        """
        return self._state.detach()  # type: ignore[no-any-return]

    @state.setter
    def state(self, state: Any) -> None:
        self._state.assign_(state)

    def lasting(self) -> None:
        """Say that the generator outlives a function of `cb.jit` that made it: it goes on."""
        observe.lasting(self._state)

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

    def bernoulli(self, p: Any, shape: Any = (), dtype: Any = f32) -> Tensor:
        """Ones with a probability, zeros otherwise; a tensor of probabilities has one for each
        element of the shape, which is its own unless it is given.
        """
        if isinstance(p, Tensor):
            shares = p.detach()
            lengths = ints((shape,)) or shares.shape
            wide = shares.dtype if shares.dtype is f64 else f32
            drawn = self.uniform(lengths, dtype=wide).to(shares.device)
            return (drawn < shares.astype(wide).expand(lengths)).astype(dtype)
        if not 0 <= p <= 1:
            raise ArgumentError(f"a probability lies between 0 and 1; {p} does not")
        return self._drawn(shape, "bernoulli", float(p), 0.0, dtype)

    def multinomial(self, weights: Any, num_samples: int, replacement: bool = False) -> Tensor:
        """Indices of samples of the last axis, each as likely as its weight.

        Args:
            weights: (n) or (m, n), not below 0; they need no sum of 1.
            num_samples: how many of each row.
            replacement: whether an index may come again; else there must be as many weights above
                0, which is not looked at.

        Returns:
            Indices (i64), (num_samples) or (m, num_samples).

        Raises:
            ShapeError: more samples than weights, without replacement, or other shapes.

        Example:
            >>> import cubepy as cb
            >>> sorted(cb.Generator(0).multinomial(cb.tensor([1.0, 0.0, 2.0]), 2).tolist())
            [0, 2]
        """
        given = as_tensor(weights).detach()
        if given.ndim not in (1, 2) or not given.shape[-1] or num_samples < 1:
            raise ShapeError(
                f"multinomial draws 1 sample or more of rows of weights, not {num_samples} of the "
                f"shape {given.shape}"
            )
        n = given.shape[-1]
        wide = given.astype(f64)
        if replacement:
            ends = wide.cumsum(-1)
            drawn = self.uniform((*given.shape[:-1], num_samples), dtype=f64).to(given.device)
            spots = (drawn * ends[..., -1:]).unsqueeze(-1) >= ends.unsqueeze(-2)
            last = (wide > 0).astype(i64) * apply("arange", start=0, step=1, count=n, dtype="i64")
            return spots.sum(-1).minimum(last.amax(-1, keepdim=True))  # of sums that were rounded
        if num_samples > n:
            raise ShapeError(
                f"multinomial: {num_samples} samples of {n} weights",
                hint="replacement=True lets an index come again",
            )
        drawn = -(-self.uniform(given.shape, dtype=f64).to(given.device)).log1p()
        return (wide / drawn.clip(1e-300)).topk(num_samples, -1)[1]  # type: ignore[no-any-return]

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
