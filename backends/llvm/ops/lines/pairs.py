"""Products of pairs of bf16, summed in f32: one instruction where the machine has it."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import errors

from cubepy.backends.llvm.ops.host import host_features
from cubepy.backends.llvm.ops.lines.lanes import picked
from cubepy.backends.llvm.ops.memory.elements import line
from cubepy.backends.llvm.ops.registry import op
from cubepy.backends.llvm.ops.types import Line
from cubepy.backends.llvm.ops.values import const, intrinsic, on_gpu, shuffled


class _BFloat(ir.Type):
    """LLVM's `bfloat`, which llvmlite has no class for."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


@cache
def _pair_dot_lanes() -> tuple[int, ...]:
    """Lanes of the accumulators that the host's `vdpbf16ps` takes, widest first; empty
    without it.
    """
    has = host_features()
    if "avx512bf16" not in has:
        return ()
    return (16, 8, 4) if "avx512vl" in has else (16,)


def _widened_dot(b: Any, acc: Any, x: Any, y: Any) -> Any:
    """The same sum without special instructions: a bf16 is the upper half of an f32."""
    half, upper = const(x.type, 16), const(x.type, 0xFFFF0000)
    for cut in (lambda v: b.and_(v, upper), lambda v: b.shl(v, half)):
        left, right = b.bitcast(cut(x), acc.type), b.bitcast(cut(y), acc.type)
        acc = intrinsic(b, "llvm.fma", acc.type, [left, right, acc], [acc.type])
    return acc


def _native_dot(b: Any, acc: Any, x: Any, y: Any) -> Any:
    n = acc.type.count
    pairs = ir.VectorType(_BFloat(), 2 * n)
    name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * n}"
    fn_type = ir.FunctionType(acc.type, [acc.type, pairs, pairs])
    fn = b.module.globals.get(name) or ir.Function(b.module, fn_type, name)
    return b.call(fn, [acc, b.bitcast(x, pairs), b.bitcast(y, pairs)])


@op
def dot_bf16(acc: Any, x: Any, y: Any) -> Any:
    """`dot_bf16(acc, x, y)`: acc (f32, L lanes) plus two products a lane of the bf16 pairs in x and
    y (u32, L).
    """
    acc, x, y = line(acc), line(x), line(y)
    n = acc.lanes
    if (acc.dtype, x, y) != ("f32", Line("u32", n), Line("u32", n)):
        raise errors.TypingError(
            f"dot_bf16 needs lines f32 x L, u32 x L, u32 x L, not {acc}, {x}, {y}"
        )

    def emit(b: Any, s: Any, u: Any, v: Any) -> Any:
        width = 0 if on_gpu(b) else next((w for w in _pair_dot_lanes() if n % w == 0), 0)
        if not width:
            return _widened_dot(b, s, u, v)
        out = None
        for k in range(0, n, width):
            lanes = list(range(k, k + width))
            part = _native_dot(
                b, *(shuffled(b, w, w, lanes) if width < n else w for w in (s, u, v))
            )
            out = part if out is None else picked(b, out, part, list(range(k + width)))
        return out

    return acc(acc, x, y), emit
