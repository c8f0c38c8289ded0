"""Steps of optimizers: a parameter, its gradient and its states give the next parameter and states.

The numbers of a step (learning rate, decays) are a tensor, so that another one is no other op.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import Run, Spec, define


@cache
def _module(name: str) -> Any:
    return importlib.import_module(f"cubepy.kernels.{name}")


def function_of(op: str) -> Any:
    """The function of elements that a step is."""
    return getattr(_module("primitives.updates"), op.removesuffix("_step"))


def _step(name: str, in_place: bool = False) -> Run:
    def run_step(dtype: np.dtype, numbers: Any, *arrays: Any) -> Any:
        function = function_of(name)
        rows = [x if x.flags.c_contiguous else kernels().copy(x) for x in arrays]
        dtypes = [dtype] * (len(rows) - 1)
        results = [arrays[0], *arrays[2:]] if in_place else None
        map_of = _module("fused.maps").fused_map
        return map_of(function, rows, rows[0].shape, dtypes, (numbers,), results)

    return run_step


_STEPS = {
    "average": 0,
    "sgd": 0,
    "sgd_momentum": 1,
    "adam": 2,
    "adam_amsgrad": 3,
    "nadam": 2,
    "radam": 2,
    "adamax": 2,
    "adadelta": 2,
    "adagrad": 1,
    "rmsprop": 1,
    "rmsprop_momentum": 2,
    "rmsprop_centered": 2,
    "rmsprop_centered_momentum": 3,
    "rprop": 2,
    "asgd": 1,
}
"""How many states there are beside the parameter."""
WRITING = {f"{name}_step": f"{name}_step_in_place" for name in _STEPS}
"""The op that writes the next parameter and states where they are, by the one that makes new ones:
result 0 in input 1, result n in input n + 2. Programs take it where nobody would see it."""


@define("map", {f"{name}_step": _step(name) for name in _STEPS}, constant=True)
def _update(numbers: Spec, p: Spec, g: Spec, *states: Spec) -> list[Spec]:
    """Specs of the next parameter and states: those of the ones before."""
    if not p.dtype.is_float:
        raise DTypeError(f"floats are trained, not {p.dtype.name}")
    for x in (g, *states):
        if x != p:
            raise ShapeError(
                f"a parameter of {p.dtype.name}{p.shape} has a gradient and states of this dtype "
                f"and shape, not {x.dtype.name}{x.shape}"
            )
    return [p, *states]


for _name, _count in _STEPS.items():
    _run = {WRITING[f"{_name}_step"]: _step(_name, in_place=True)}
    define("effect", _run, constant=True, writes=(1, *range(3, 3 + _count)))(_update)
