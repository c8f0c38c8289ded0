"""y * 2**n by one instruction, where the processor has AVX-512."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from cubepy.backends.llvm.ops.host import host_features
from cubepy.backends.llvm.ops.lines.lanes import picked
from cubepy.backends.llvm.ops.types import F32, I32
from cubepy.backends.llvm.ops.values import element_of, lanes_of, on_gpu, shuffled

_AS_MODE_SAYS = 4


def width_of(b: Any, ty: ir.Type) -> int:
    """Lanes that one instruction takes of a line of this type; 0 where there is no such
    instruction.
    """
    lanes, has = lanes_of(ty), () if on_gpu(b) else host_features()
    most = 16 if element_of(ty) == F32 else 8
    widths = (most, most // 2, most // 4) if "avx512vl" in has else (most,)
    return next((w for w in widths if lanes and lanes % w == 0), 0) if "avx512f" in has else 0


def scaled_by(b: Any, y: Any, n: Any) -> Any:
    """y * 2**n for a line of whole floats n, rounded once: to infinity, subnormals and zero, too;
    NaN stays.

    For types of which `width_of` is not 0.
    """
    width, lanes = width_of(b, y.type), lanes_of(y.type)
    if width == lanes:
        return _native(b, y, n)
    out = None
    for k in range(0, lanes, width):
        order = list(range(k, k + width))
        part = _native(b, shuffled(b, y, y, order), shuffled(b, n, n, order))
        out = part if out is None else picked(b, out, part, list(range(k + width)))
    return out


def _native(b: Any, y: Any, n: Any) -> Any:
    lanes, single = lanes_of(y.type), element_of(y.type) == F32
    bits = lanes * (32 if single else 64)
    mask = ir.IntType(max(8, lanes))
    every = ir.Constant(mask, (1 << lanes) - 1 if lanes >= 8 else 255)
    types, values = [y.type, y.type, y.type, mask], [y, n, y, every]
    if bits == 512:
        types.append(I32)
        values.append(ir.Constant(I32, _AS_MODE_SAYS))
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if single else 'pd'}.{bits}"
    fn = b.module.globals.get(name) or ir.Function(b.module, ir.FunctionType(y.type, types), name)
    return b.call(fn, values)
