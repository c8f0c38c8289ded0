"""Launches of kernels as an op: what is read goes in, what is written comes out as new values.

The arguments of a launch are plain values in the op's attributes, in the order of the kernel's
parameters: ("input", n), ("result", n), ("element", n) for a number that is the only element of an
input, ("number", value), ("scalar", dtype, value) for NumPy's, ("fixed", value) for what is known
when the kernel is compiled, and ("tuple", ...).
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.errors import LaunchError
from cubepy.lang.annotations import Array, Comptime, TensorMap, View
from cubepy.lang.declare import Func, Kernel
from cubepy.lang.dtypes import dtype_named
from cubepy.lang.grid import Over
from cubepy.runtime import memory
from cubepy.runtime.device import use
from cubepy.runtime.launch.aliasing import plan
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.spans import beginning
from cubepy.tensor.custom.names import Name
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import Spec, define

Given = tuple[Any, ...]
"""An argument as a plain value."""


def parts(given: Given) -> Iterator[Given]:
    """The arguments in an argument, those of tuples one by one."""
    if given[0] == "tuple":
        for part in given[1:]:
            yield from parts(part)
    else:
        yield given


def replaced(given: Given, function: Callable[[Given], Given]) -> Given:
    """An argument with a function on each part."""
    if given[0] == "tuple":
        return ("tuple", *[replaced(part, function) for part in given[1:]])
    return function(given)


def value_of(given: Given, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
    """What a launch is given for an argument."""
    kind, *rest = given
    if kind == "tuple":
        return tuple([value_of(part, inputs, results) for part in rest])
    if kind in ("input", "element"):
        return inputs[rest[0]]
    if kind == "result":
        return results[rest[0]]
    if kind == "scalar":
        return dtype_named(rest[0]).numpy.type(rest[1])
    return rest[0].of if isinstance(rest[0], Name) else rest[0]


def grid_of(form: tuple[Any, ...]) -> Any:
    """The grid of its plain form."""
    kind, *rest = form
    return Over(*rest) if kind == "over" else tuple(rest)


def runnable(kernel: Kernel, given: Sequence[Given]) -> Kernel:
    """The kernel, or one that reads numbers from the arrays that hold them."""
    elements = tuple([n for n, one in enumerate(given) if one[0] == "element"])
    return _reading(kernel, elements) if elements else kernel


@lru_cache(256)
def _reading(kernel: Kernel, elements: tuple[int, ...]) -> Kernel:
    """A kernel that takes arrays of one element for some numbers."""
    scope: dict[str, Any] = {"__name__": kernel.__module__, "kernel_of_user": Func(kernel.fn)}
    kinds = {"array": Array, "view": View, "map": TensorMap, "comptime": Comptime}
    taken, passed = [], []
    for n, p in enumerate(kernel.parameters):
        kind = Array if n in elements else kinds.get(p.kind, p.dtype or p.struct)
        scope[f"kind_{n}"] = kind
        taken.append(p.name if kind is None else f"{p.name}: kind_{n}")
        value = f"{p.name}[0]" if n in elements else p.name
        passed.append(f"{p.name}={value}" if p.keyword_only else value)
    name = kernel.__name__
    text = f"def {name}({', '.join(taken)}):\n    kernel_of_user({', '.join(passed)})\n"
    file = f"<{name} of numbers in arrays {id(kernel)} {elements}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile(text, file, "exec"), scope)
    return Kernel(scope[name], kernel.fast_math)


def written(
    kernel: Kernel, grid: Any, mode: str | None, given: Sequence[Given], arrays: Sequence[Any]
) -> set[int]:
    """The arrays that a launch writes, by their numbers; the kernel is compiled for that.

    Raises:
        CompileError, LaunchError: the kernel does not take such arguments.
    """
    launcher, arrays = runnable(kernel, given).launches, _side_by_side(arrays)
    values = launcher.bound(tuple([value_of(g, arrays, arrays) for g in given]), {})[0]
    executable, _, leaves, _, _ = launcher.find(grid, mode, None, values)
    outputs, _ = plan(executable.program, leaves)
    return {n for at in outputs for n, array in enumerate(arrays) if _is(leaves[at], array)}


def _side_by_side(arrays: Sequence[Any]) -> Sequence[Any]:
    """Arrays to compile for: numbers, which are at home everywhere, beside the others on a GPU."""
    home = next((a.device for a in arrays if type(a) is DeviceArray), None)
    if home is None:
        return arrays
    with use(home):
        return [
            a if a.ndim or type(a) is DeviceArray else memory.empty((), a.dtype) for a in arrays
        ]


def _is(operand: Any, array: Any) -> bool:
    """Whether an operand of a launch is an array; those of no axes get one."""
    if operand is array or array.ndim or operand.shape != (1,):
        return operand is array
    return beginning(operand) == beginning(array)


def _run_launch(
    dtype: np.dtype,
    *arrays: Any,
    kernel: Name,
    grid: tuple[Any, ...],
    mode: str | None,
    given: tuple[Given, ...],
    results: tuple[tuple[Any, ...], ...],
) -> list[Any]:
    made = []
    for kind, *rest in results:
        if kind == "of":
            made.append(kernels().copy(arrays[rest[0]]))
        else:
            made.append(memory.empty(tuple(rest[0]), dtype_named(rest[1]).numpy))
    inputs = list(arrays)
    for one in given:
        if one[0] == "element":
            inputs[one[1]] = arrays[one[1]].reshape(1)
    values = tuple([value_of(one, inputs, made) for one in given])
    runnable(kernel.of, given).launches.launch(
        grid_of(grid), values, {} if mode is None else {"mode": mode}
    )
    return made


@define("opaque", {"launch": _run_launch})
def _launch(
    *arrays: Spec,
    kernel: Name,
    grid: tuple[Any, ...],
    mode: str | None,
    given: tuple[Given, ...],
    results: tuple[tuple[Any, ...], ...],
) -> list[Spec]:
    """A kernel of the user's; `results` are ("of", input), written on a copy of it, or
    ("new", shape, dtype).
    """
    if not isinstance(getattr(kernel, "of", None), Kernel):
        raise LaunchError(f"{kernel} is no kernel")
    return [
        arrays[rest[0]] if kind == "of" else Spec(tuple(rest[0]), dtype_named(rest[1]))
        for kind, *rest in results
    ]


def is_array(value: Any) -> bool:
    """Whether a value is an array that is no tensor."""
    return isinstance(value, (np.ndarray, DeviceArray))
