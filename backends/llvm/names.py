"""The names that generated code uses, without importing numba to learn them (a test compares with
`ops.OPS`).
"""

from __future__ import annotations

OPS = frozenset(
    """
    absolute add and_ atomic_cas atomic_rmw below bf16 bits_of bitcast bool_ call_kernel ceil clz
    concat cos ctz dot_bf16 dot_i7 dot_i8 eq erf exp exp2 expm1 extract f16 f32 f64 floor floordiv
    fma fp8_e4m3 fp8_e5m2 from_bits gather_line ge gt i16 i32 i64 i8 insert interleave inv iota
    isinf isnan le line_all line_any line_count line_max line_min line_prod line_sum load
    load_if load_line load_line_or load_line_part log log1p log2 lt maximum maxnum minimum
    minnum mod mul ne neg not_ offset opaque or_ own_cas own_rmw partition popcount pow_ prefetch
    print_values
    ptr_at report rint rsqrt scatter_line select shl shr shuffle sin slice_line splat sqrt stack
    store store_if store_line store_line_part store_line_stream sub take tanh tile_dot truediv
    trunc u16 u32 u64 u8 xor Line Ptr OPS load_or_report check_line acos acosh asin asinh atan
    atan2 atanh cbrt copysign cosh erfc fmod hypot isfinite ldexp lgamma log10 mulhi
    reverse_bits sign sinh tan floordiv_by mod_by
    """.split()
)
