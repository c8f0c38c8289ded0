"""What random kernels are made of: expressions, structs and funcs, the frame of a kernel, and the
names that a body may use.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FLOATS = ("({} + {})", "({} - {})", "({} * {})", "cb.max({}, {})", "cb.min({}, {})", "({} if {} > 0.5 else 1.0)",
          "cb.abs({} - {})", "cb.clamp({}, -3, 3) + {}", "cb.floor({}) * {}", "branchy({}, {})",
          "cb.select({} > 0, {}, x[i])", "({} // 0.75 - {})", "Pair({}, {}).sum()", "cb.fma({}, {}, 0.5)",
          "({} or {})", "({} and {})", "(-Pair({}, {}))[k]")  # fmt: skip
INTS = ("({} + {})", "({} * {})", "({} - {})", "({} // 2 + {})", "({} % 5 + {})", "({} ^ {})", "({} // ({} | 1))",
        "({} % ({} | 1))", "(({} + i) << ({} & 35))", "({} >> ({} & 35))", "cb.min({}, {})", "steps({}, {})",
        "(~{} & {})", "cb.popcount({}) + {}", "({} if {} & 1 else 2)",
        "({} or {})", "({} and {})")  # fmt: skip
CONDITIONS = ("{f} < {f}", "0 <= {i} < 9", "{i} % 3 == 0 and {f} > 0", "{f} > 1 or {i} & 1", "not {f} <= {f}",
              "{i} != {i}", "{i} & 3 == 1", "{f} > 0.25",
              "{i} and {f} > 0", "{f} or {i}", "Pair({f}, {f}) < Pair(x[i], {f})",
              "Pair({f}, 1) != Pair(1, {f})")  # fmt: skip
UNIFORM = ("level > 0", "x[0] > 0.5", "cb.CUBE_POS == 1", "turns % 2 == 0", "level == 2")
LITERALS = ("1.5", "0.25", "-2.0")
PRELUDE = """
import cubepy as cb
from tests.conformance.random_kernels.prelude import Box, Pair, branchy, marked, met, steps
"""
KERNEL = """
@cb.kernel
def random_kernel(x: cb.Array, out: cb.Array, count: cb.Array, level, given, pair: Pair, box: Box):
    i = cb.ABSOLUTE_POS
    t = cb.UNIT_POS
    s = cb.shared(cb.CUBE_DIM, cb.f32)
    keep = cb.local(2, cb.f32)
    keep[0] = 0.5
    keep[1] = x[i + 2]
    a = x[i]
    b = x[i + 1]
    acc = a - b
    p, q = b, cb.cast(1, cb.i32)
    tup = (acc, n0)
    spare = Pair(a, 1)
    n = 1
    k = 0
    turns = 0
    spins = 0
    v = cb.splat(a, 4)
""".replace("n0", "cb.cast(level, cb.i32)")
END = """    out[i, 0] = acc + keep[0] - p
    out[i, 1] = tup[0] + given[0]
    out[i, 2] = pair.low - pair.high
    out[i, 3] = box.pair.low + box.pair.high
    out[i, 4] = spare.sum() + a
    out[i, 5] = b
    count[i, 0] = n * 10 + q
    count[i, 1] = k
    count[i, 2] = tup[1] - given[1]
    count[i, 3] = box.at[0] * 5 + box.at[1]
"""


@dataclass
class Scope:
    """What a body may use: numbers, what may be assigned, and how it returns."""

    floats: tuple[str, ...]
    ints: tuple[str, ...]
    tuples: tuple[str, ...]
    pairs: tuple[str, ...]
    boxes: tuple[str, ...]
    float_names: tuple[str, ...]
    int_names: tuple[str, ...]
    kernel: bool
    returns: str = ""
    extra_ints: list[str] = field(default_factory=list)


IN_KERNEL = Scope(
    floats=("a", "b", "x[i]", "x[n]", "acc", "keep[k % 2]", "p", "tup[0]", "given[0]", "pair.low", "pair.high",
            "box.pair.low", "box.pair.high", "spare.low", "out[i, 0]"),
    ints=("i", "k", "n", "3", "t", "q", "-2", "count[i, 0]", "tup[1]", "given[1]", "box.at[0]", "box.at[1]", "level",
          "box.code"),
    tuples=("tup", "given"), pairs=("pair", "spare", "box.pair"), boxes=("box",),
    float_names=("acc", "a", "b", "p"), int_names=("n", "q"), kernel=True,
)  # fmt: skip
IN_FUNC = Scope(
    floats=("u", "x[i]", "x[m]", "w", "pr.low", "pr.high", "tu[0]", "bo.pair.high"),
    ints=("m", "i", "h", "2", "-3", "tu[1]", "bo.at[1]", "bo.code", "c"),
    tuples=("tu",), pairs=("pr", "bo.pair"), boxes=("bo",), float_names=("u", "w"), int_names=("m", "h"), kernel=False,
)  # fmt: skip
