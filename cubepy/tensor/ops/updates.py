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


def _step(name: str) -> Run:
    def run_step(dtype: np.dtype, numbers: Any, *arrays: Any) -> Any:
        function = getattr(_module("primitives.updates"), name)
        rows = [x if x.flags.c_contiguous else kernels().copy(x) for x in arrays]
        dtypes = [dtype] * (len(rows) - 1)
        return _module("fused.maps").fused_map(function, rows, rows[0].shape, dtypes, (numbers,))

    return run_step


_STEPS = """sgd sgd_momentum adam adam_amsgrad adagrad rmsprop rmsprop_momentum rmsprop_centered
rmsprop_centered_momentum""".split()


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
