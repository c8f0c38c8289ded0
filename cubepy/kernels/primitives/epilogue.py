"""The last step of products and convolutions: what becomes of a line of sums when it is stored."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import cubepy as cb


@dataclass(frozen=True, kw_only=True)
class Epilogue:
    """The part of a blueprint that says how a product ends:
    `activation(alpha * sum + bias) + residual`.

    Attributes:
        bias, residual: whether there are any.
        activation: a function of the kernel language, or None.
        scaled: alpha is not 1.
        joined: what is done with the residual: as a "residual" it is added behind the activation,
            as "add" before it; a "gate" is multiplied behind it.
    """

    bias: bool = False
    residual: bool = False
    activation: Any = None
    scaled: bool = False
    joined: str = "residual"


@cb.struct
class LineEpilogue:
    """out = `activation(alpha * sums + bias) + residual` where the mask is set, else `fill`;
    `joined` may have the residual elsewhere (see `Epilogue`).

    What is None is left out. `out`, `residual` and `mask` have the same axes; neighbours of a line
    are neighbours along the last one. The bias lies along `axis` of them: along a line, or it is
    one number for all of it.
    """

    out: Any
    activation: cb.Comptime[Any]
    bias: Any = None
    residual: Any = None
    alpha: Any = None
    mask: Any = None
    fill: Any = 0.0
    axis: cb.Comptime[int] = 2
    joined: cb.Comptime[str] = "residual"

    def shift(self, at, lanes, valid=None):
        """The bias of a line of the result that begins at `at`."""
        if self.axis < len(at) - 1:
            line = self.bias[at[self.axis]]
        else:
            line = self.bias.load((at[self.axis],), lanes, valid=valid)
        return cb.cast(line, cb.f32)

    def value(self, sums, at, valid=None, shift=None):
        """What becomes of a line of sums, of which `valid` are inside the result, before it takes
        the result's dtype; `shift`: its bias, if that is at hand.
        """
        lanes = len(sums)
        if self.alpha is not None:
            sums = sums * self.alpha
        if self.bias is not None:
            sums = sums + (self.shift(at, lanes, valid) if shift is None else shift)
        if self.residual is None:
            sums = ended(sums, None, self.activation, self.joined)
        else:
            other = cb.cast(self.residual.load(at, lanes, valid=valid), cb.f32)
            sums = ended(sums, other, self.activation, self.joined)
        if self.mask is not None:
            kept = self.mask.load(at, lanes, valid=valid)
            sums = cb.select(kept, sums, cb.splat(cb.cast(self.fill, cb.f32), lanes))
        return sums

    def finish(self, sums, at, valid=None, streaming=False, shift=None):
        """Store what becomes of a line of sums; with `streaming`, a whole line past the caches."""
        value = self.value(sums, at, valid, shift)
        if streaming:
            self.out.store_stream(at, cb.cast(value, self.out.dtype))
        else:
            self.out.store(at, cb.cast(value, self.out.dtype), valid=valid)

    def finish_inside(self, sums, batch, row, column):
        """`finish` for a line that may hang over the result, or lie outside."""
        out = self.out
        left = cb.select(row < out.shape[1], cb.max(out.shape[2] - column, 0), 0)
        self.finish(sums, (batch, row, column), left)


@cb.func
def ended(sums, other, activation, joined):
    """What becomes of sums with the residual's numbers, or None."""
    if other is not None and joined == "add":
        sums = sums + other
    if activation is not None:
        sums = activation(sums)
    if other is not None and joined == "gate":
        sums = sums * other
    if other is not None and joined == "residual":
        sums = sums + other
    return sums


@cb.func
def epilogue_of(blueprint, out, bias, residual, alpha):
    """The epilogue that a blueprint says: what it lacks is not looked at."""
    return LineEpilogue(
        out,
        blueprint.activation,
        bias if blueprint.bias else None,
        residual if blueprint.residual else None,
        alpha if blueprint.scaled else None,
        joined=blueprint.joined,
    )


@lru_cache(maxsize=256)
def after_sum(function: Any) -> Any:
    """A func of two values: `function` of their sum."""

    @cb.func
    def of_sum(a, b):  # type: ignore[no-untyped-def]
        total = cb.cast(a, cb.f32) + cb.cast(b, cb.f32)
        return total if function is None else function(total)

    return of_sum
