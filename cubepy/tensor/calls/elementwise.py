"""Functions of elements of tensors: those of the library and the builtins that are ops."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.primitives import functions as f
from cubepy.lang.builtins import Builtin
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.calls.table import call_of, refused
from cubepy.tensor.ops import OPS

_OPS = {
    f.add: "add",
    f.sub: "sub",
    f.mul: "mul",
    f.div: "div",
    f.smaller: "minimum",
    f.larger: "maximum",
    f.relu: "relu",
    f.silu: "silu",
    f.sigmoid: "sigmoid",
    f.tanh: "tanh",
}
_BUILTINS = {"pow": "pow", "min": "minimum", "max": "maximum"}
_GELU = {f.gelu_erf: "none", f.gelu_tanh: "tanh"}


@call_of("map")
def mapped(function: Any, arrays: tuple[Any, ...], dtype: Any) -> Tensor:
    """`map` of a function that is an op."""
    given = [as_tensor(a) for a in arrays]
    y = apply(_op_of(function), *given, **_attrs_of(function))
    return y if dtype is None else y.astype(dtype)  # type: ignore[no-any-return]


def _op_of(function: Any) -> str:
    if function in _GELU:
        return "gelu"
    name = _OPS.get(function, "")
    if isinstance(function, Builtin):
        name = _BUILTINS.get(function.name, function.name)
    if name not in OPS or OPS[name].kind != "map":
        raise refused(
            f"{function!r} is no op: what it gives of a tensor has no gradient",
            "compute it with operators and methods of tensors",
        )
    return name


def _attrs_of(function: Any) -> dict[str, Any]:
    return {"approximate": _GELU[function]} if function in _GELU else {}


@call_of("gelu")
def gelu(x: Any, approximate: str) -> Tensor:
    """`gelu`."""
    return as_tensor(x).gelu(approximate)


def activated(y: Tensor, activation: Any) -> Tensor:
    """A result with an activation behind it: a name, a function of the library, or None."""
    function = f.activation_of(activation)
    if function is None:
        return y
    return apply(_op_of(function), y, **_attrs_of(function))  # type: ignore[no-any-return]
