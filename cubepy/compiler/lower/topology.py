"""Positions and sizes of a launch."""

from __future__ import annotations

from cubepy.compiler.ir import Expr, VType
from cubepy.compiler.lower.hardware.operands import require, result
from cubepy.compiler.scope import Scope
from cubepy.compiler.values import Const, Value
from cubepy.lang import dtypes as dt


def topology(s: Scope, name: str) -> Value:
    """A position or size of the launch."""
    if name == "CLUSTER_POS":
        require(s, name)
        return result(s, "cluster_rank", VType(dt.i32), (), (), ())
    s.axes |= name.endswith(("_Y", "_Z"))
    if name.startswith("CUBE_DIM"):
        x, y, z = s.units
        return Const({"": x * y * z, "_X": x, "_Y": y, "_Z": z}[name[len("CUBE_DIM") :]])
    if name == "PLANE_DIM" or (name == "UNIT_POS_PLANE" and s.plane == 1):
        return Const(s.plane) if name == "PLANE_DIM" else _first(s)
    if name == "PLANE_POS" and s.plane == 1:
        name = "UNIT_POS"
    axis = "_XYZ".find(name[-1]) - 1 if name[-2] == "_" else -1
    if name.startswith("UNIT_POS") and (s.units[axis] if axis >= 0 else max(s.units)) == 1:
        return _first(s)
    return Expr("topology", VType(s.index), (), name)


def _first(s: Scope) -> Const:
    """The only position that there is: known, and of the dtype that positions have."""
    return Const(s.index.numpy.type(0))
