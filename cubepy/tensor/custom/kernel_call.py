"""`cb.kernel_call`: a kernel as a function of tensors."""

from __future__ import annotations

from typing import Any

from cubepy.compiler.signature import exact
from cubepy.errors import ArgumentError, CubeError, DeviceError, LaunchError
from cubepy.lang.declare import Launch
from cubepy.lang.dtypes import as_dtype
from cubepy.lang.grid import Over
from cubepy.runtime import memory
from cubepy.runtime.device import as_device, current, use
from cubepy.runtime.tables import room
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.custom.arguments import Arguments, plain_grid
from cubepy.tensor.custom.launches import Given, grid_of, is_array, replaced, written
from cubepy.tensor.custom.names import name_of
from cubepy.tensor.program.promised import sketches
from cubepy.tensor.record import recording_here
from cubepy.tensor.value import located, outside

LIMIT = 4096
_known: dict[Any, dict[str, Any]] = {}
"""Attributes of calls whose kernels write what they are said to write."""


def kernel_call(launch: Any, *args: Any, mode: str | None = None, **kwargs: Any) -> Any:
    """Launch a kernel on tensors, and give what it writes as new tensors.

    A `cb.TensorSpec` among the arguments stands for a tensor that the kernel writes; all others are
    only read. It is an op: it runs at once, is recorded in programs, and `cb.custom_vjp` says what
    its gradient is.

    Args:
        launch: a kernel with its grid, `kernel[grid]`.
        args, kwargs: of the kernel.
        mode: "checked", "validate" or "unchecked", as of any launch.

    Returns:
        The tensor of the TensorSpec, or a tuple of those of several, in the order of the kernel's
        parameters. Elements that the kernel does not write have any value.

    Raises:
        ArgumentError: no kernel with its grid, or nothing that it shall write.
        LaunchError: it writes a tensor that is given, or does not write one that is wanted.
        DeviceError: tensors of several devices.

    Example:
        >>> import cubepy as cb
        >>> @cb.kernel
        ... def axpy(a: cb.f32, x: cb.Array, y: cb.Array, out: cb.Array):
        ...     i = cb.ABSOLUTE_POS
        ...     if i < out.size:
        ...         out[i] = a * x[i] + y[i]
        >>> x, y = cb.tensor([1.0, 2.0]), cb.tensor([10.0, 20.0])
        >>> cb.kernel_call(axpy[cb.over(x)], 3.0, x, y, cb.TensorSpec(x.shape, x.dtype))
        tensor([13., 26.])
    """
    try:
        made = _called(launch, args, mode, kwargs)
    except CubeError as error:
        if error.location is None:
            error.location = located(outside())
        raise
    return made[0] if len(made) == 1 else tuple(made)


def _called(launch: Any, args: tuple, mode: str | None, kwargs: dict[str, Any]) -> list[Tensor]:
    if not isinstance(launch, Launch):
        raise ArgumentError(
            f"cb.kernel_call takes a kernel with its grid, not {type(launch).__name__}",
            hint="write cb.kernel_call(kernel[cb.over(x)], x, cb.TensorSpec(x.shape, x.dtype))",
        )
    kernel = launch.kernel
    if not recording_here():
        args = tuple([as_tensor(a) if is_array(a) else a for a in args])
        kwargs = {k: as_tensor(a) if is_array(a) else a for k, a in kwargs.items()}
    found = Arguments(kernel, args, kwargs, False)
    if not found.new:
        raise ArgumentError(
            f"{kernel.__name__} is given no cb.TensorSpec: nothing that it shall write",
            hint="give cb.TensorSpec(shape, dtype) for each array that it writes",
        )
    home = _home(found)
    form = plain_grid(launch.grid)
    key = (kernel, form, mode, exact(found.given), *_specs(found), home)
    attrs = _known.get(key)
    if attrs is None:
        with use(home):
            _check(found, grid_of(form), mode)
        room(_known, LIMIT)
        attrs = _known[key] = {
            "kernel": name_of(kernel),
            "grid": form,
            "mode": mode,
            "given": found.given,
            "results": tuple(("new", *spec) for spec in _specs(found)[len(found.tensors) :]),
        }
    with use(home):
        return apply("launch", *found.tensors, **attrs)  # type: ignore[no-any-return]


def _home(found: Arguments) -> Any:
    """The device that the tensors are on, and that results shall be on."""
    homes = [t.device for t in found.tensors if t.shape]
    homes += [as_device(spec.device) for spec in found.new if spec.device is not None]
    other = next((d for d in homes if d != homes[0]), None)
    if other is not None:
        raise DeviceError(
            f"{found.kernel.__name__} is given tensors on {homes[0]} and {other}",
            hint=f'move one with .to("{homes[0]}")',
        )
    return homes[0] if homes else current()


def _specs(found: Arguments) -> tuple[Any, ...]:
    every: list[Any] = [*found.tensors, *found.new]
    return tuple([(tuple(t.shape), as_dtype(t.dtype).name) for t in every])


def _check(found: Arguments, grid: Any, mode: str | None) -> None:
    """Whether a kernel writes what is wanted, and nothing else."""
    if isinstance(grid, Over) and grid.size == 0:
        return
    count = len(found.tensors)
    arrays = sketches([t.storage for t in found.tensors])
    arrays += [memory.empty(tuple(s.shape), as_dtype(s.dtype).numpy) for s in found.new]

    def numbered(one: Given) -> Given:
        return ("input", count + one[1]) if one[0] == "result" else one

    given = tuple([replaced(one, numbered) for one in found.given])
    outputs = written(found.kernel, grid, mode, given, arrays)
    name = found.kernel.__name__
    for n in range(len(arrays)):
        wanted = n >= count
        if wanted and n not in outputs:
            said = found.names["result", n - count]
            raise LaunchError(
                f"{name} does not write {said!r}, for which it is given a cb.TensorSpec",
                hint="give it a tensor, or leave it away",
            )
        if n in outputs and not wanted:
            said = found.names["input", n]
            raise LaunchError(
                f"{name} writes {said!r}, for which it is given a tensor: values do not change",
                hint=f"give a cb.TensorSpec for {said!r}; or launch the kernel itself, "
                f"{name}[grid](...), on a clone",
            )
