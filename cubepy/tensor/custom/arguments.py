"""The arguments of a launch of tensors, as the op has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.compiler.signature import bind_parameters
from cubepy.errors import GradientError, LaunchError
from cubepy.lang.annotations import TensorMap
from cubepy.lang.declare import Kernel, Param
from cubepy.lang.dtypes import as_dtype
from cubepy.lang.grid import Over
from cubepy.lang.struct import Struct
from cubepy.tensor.array import Tensor, constant
from cubepy.tensor.custom.launches import Given, is_array
from cubepy.tensor.custom.names import BEGIN, name_of
from cubepy.tensor.modes import mode
from cubepy.tensor.program.form import TensorSpec
from cubepy.tensor.program.scalar import Scalar, number_of

_PLAIN = (int, float, bool, str, type(None))


class Arguments:
    """The arguments of a launch.

    Args:
        kernel: what is launched.
        args, kwargs: what it is given, without keywords of launches.
        refuses: whether tensors that need a gradient are refused.

    Attributes:
        given: the arguments in the order of the kernel's parameters.
        tensors: the inputs.
        handles: of each, all handles with this memory.
        new: the tensors that are wanted.
        names: of the parameters of inputs and of those that are wanted.
    """

    def __init__(
        self, kernel: Kernel, args: Sequence[Any], kwargs: dict[str, Any], refuses: bool
    ) -> None:
        self.kernel, self.refuses = kernel, refuses
        self.tensors: list[Tensor] = []
        self.handles: list[list[Tensor]] = []
        self.new: list[TensorSpec] = []
        self.names: dict[tuple[str, int], str] = {}
        bound = bind_parameters(kernel.parameters, kernel.__name__, list(args), kwargs)
        self.given = tuple([self.argument(value, p) for p, value in bound])

    def argument(self, value: Any, p: Param) -> Given:
        """A value for a parameter.

        Raises:
            GradientError: a tensor that needs a gradient.
            LaunchError: what a graph cannot hold: arrays, tensor maps, structs with arrays.
        """
        if isinstance(value, Tensor):
            return ("input", self.input(value, p.name))
        if isinstance(value, TensorSpec):
            self.names["result", len(self.new)] = p.name
            self.new.append(value)
            return ("result", len(self.new) - 1)
        if type(value) is Scalar and p.kind == "scalar" and p.dtype is not None:
            number = constant(value, p.dtype.compute)
            if number.value.call is None and p.dtype.is_float:
                return ("element", self.input(number, p.name))
        value = number_of(value)
        if type(value) is tuple and p.kind != "comptime":
            return ("tuple", *[self.argument(part, p) for part in value])
        if isinstance(value, np.generic) and p.kind != "comptime":
            return ("scalar", as_dtype(value.dtype).name, value.item())
        if is_array(value) or isinstance(value, TensorMap) or _holds_arrays(value):
            what = "an array" if is_array(value) else f"a {type(value).__name__}"
            raise LaunchError(
                f"the parameter {p.name!r} of {self.kernel.__name__} is given {what} beside "
                "tensors: what is in its memory would not be known to the graph",
                hint="give the kernel tensors, e.g. cb.tensor(array)",
            )
        if _is_plain(value):
            return ("fixed" if p.kind == "comptime" else "number", value)
        return ("fixed", name_of(value))

    def input(self, tensor: Tensor, name: str) -> int:
        """The number of a tensor among the inputs; those with the same memory are one."""
        if self.refuses and tensor.requires_grad and mode.enabled:
            raise GradientError(
                f"{self.kernel.__name__} is given a tensor that needs a gradient, and a kernel has "
                "none by itself: what it makes would have none",
                hint="say what the gradient is with cb.custom_vjp, give x.detach(), or launch it "
                "within `with cb.no_grad():`",
            )
        for n, known in enumerate(self.tensors):
            if known.storage is tensor.storage:
                if not any(tensor is one for one in self.handles[n]):
                    self.handles[n].append(tensor)
                return n
        self.tensors.append(tensor)
        self.handles.append([tensor])
        self.names["input", len(self.tensors) - 1] = name
        return len(self.tensors) - 1


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_plain, value))
    return type(value) in _PLAIN and not (type(value) is str and value.startswith(BEGIN))


def _holds_arrays(value: Any) -> bool:
    """Whether a struct has fields that are arrays."""
    if not isinstance(value, Struct):
        return False
    return any(
        is_array(v) or isinstance(v, Tensor) or _holds_arrays(v)
        for v in value.__cubepy_values__.values()
    )


def plain_grid(grid: Any) -> tuple[Any, ...]:
    """A grid as a plain value."""
    if isinstance(grid, Over):
        return ("over", *map(_number, grid))
    if isinstance(grid, tuple) and len(grid) == 2:
        return ("cubes", *map(_number, grid))
    return ("cubes", grid)  # launching says what is wrong


def _number(value: Any) -> Any:
    return tuple(map(_number, value)) if isinstance(value, tuple) else number_of(value)
