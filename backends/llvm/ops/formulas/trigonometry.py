"""sin and cos on scalars and lines.

Arguments up to 2**17 (f32) or 2**30 (f64) are reduced by pi / 2 in three parts with fma, which is
exact in the first step (Cody and Waite). Larger ones go to libm (on an AMD GPU to `large_angles`)
lane by lane, behind a branch that ordinary arguments do not take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.backends.llvm.ops.elementwise import elementwise
from cubepy.backends.llvm.ops.formulas.large_angles import large_angle
from cubepy.backends.llvm.ops.formulas.vectormath import horner
from cubepy.backends.llvm.ops.formulas.vectormath_tables import TABLES, Table
from cubepy.backends.llvm.ops.values import (
    KEPT,
    any_lane,
    const,
    each_lane,
    fma,
    int_like,
    math,
    negated,
    on_amd,
)


def _sin_small(b: Any, t: Table, r: Any, z: Any) -> Any:
    return fma(b, b.fmul(z, r), horner(b, z, t.sin), r)


def _cos_small(b: Any, t: Table, z: Any) -> Any:
    """1 - z/2 + z*z*C(z), with what rounding 1 - z/2 cut off."""
    one = const(z.type, 1.0)
    half = b.fmul(z, const(z.type, 0.5))
    w = b.fsub(one, half, flags=KEPT)
    tail = b.fsub(b.fsub(one, w, flags=KEPT), half, flags=KEPT)
    return b.fadd(w, fma(b, b.fmul(z, z), horner(b, z, t.cos), tail))


def _quadrant(name: str, quarters: int) -> Callable[..., Any]:
    """sin (turn 0) or cos (turn 1): sin of the angle plus `turn` quarters of a circle."""

    def emit(b: Any, dtype: str, x: Any) -> Any:
        t = TABLES[dtype]
        zero = const(x.type, 0.0)
        large = b.fcmp_ordered(">", math(b, "fabs", x), const(x.type, t.trigonometric_end))
        inside = b.select(b.or_(large, b.fcmp_unordered("uno", x, x)), zero, x)
        n = math(b, "rint", b.fmul(inside, const(x.type, t.two_over_pi)))
        r = inside
        for part in t.half_pi:
            r = fma(b, n, const(x.type, -part), r)
        q = b.fptosi(n, int_like(x.type))
        q = b.add(q, const(q.type, quarters))
        z = b.fmul(r, r)
        one, two, none = (const(q.type, k) for k in (1, 2, 0))
        odd = b.icmp_unsigned("!=", b.and_(q, one), none)
        y = b.select(odd, _cos_small(b, t, z), _sin_small(b, t, r, z))
        negative = b.icmp_unsigned("!=", b.and_(q, two), none)
        y = b.select(negative, negated(b, y), y)
        y = b.select(b.fcmp_unordered("uno", x, x), x, y)
        if quarters == 0:
            y = b.select(b.fcmp_ordered("==", x, zero), x, y)  # -0 stays -0
        before = b.block
        with b.if_then(any_lane(b, large), likely=False):
            by = (lambda v: large_angle(b, name, v)) if on_amd(b) else (lambda v: math(b, name, v))
            slow = each_lane(b, x, by)
            after = b.block
        out = b.phi(x.type)
        out.add_incoming(y, before)
        out.add_incoming(slow, after)
        return out

    return emit


sin = elementwise("sin", 1, _quadrant("sin", 0), "float", doc="Sine of an angle in radians.")
cos = elementwise("cos", 1, _quadrant("cos", 1), "float", doc="Cosine of an angle in radians.")
