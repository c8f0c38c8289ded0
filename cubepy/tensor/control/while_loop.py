"""Loops as long as data say: `while_loop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, ShapeError
from cubepy.lang.dtypes import bool_
from cubepy.runtime import recording
from cubepy.runtime.memory.device_array import host
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.control.body import arrays_of, graph_of, shaped, traced
from cubepy.tensor.ops.op import Spec, define
from cubepy.tensor.program.form import leaves_of, rebuilt
from cubepy.tensor.record import recording_here
from cubepy.tensor.value import located, outside


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Apply `carried = body_fn(*carried)` as long as `cond_fn(*carried)` is true.

    Inside `cb.jit` both are traced once, and each call runs as many rounds as its data say, op by
    op. Nothing passes a gradient through it; `cb.scan` does, where a length is known.

    Args:
        cond_fn: gives a tensor of one element, or a bool.
        body_fn: gives what is carried, of the same tree, shapes and dtypes.
        carried: tensors, or trees of them.

    Raises:
        ShapeError: what is carried becomes something else, or the condition is no single element.
        ArgumentError: something that cannot be called, or `carried` is no tuple.

    Example:
        >>> import cubepy as cb
        >>> cb.tensor.while_loop(
        ...     lambda n, x: x < 100, lambda n, x: (n + 1, x * 3), (cb.tensor(0), cb.tensor(2))
        ... )
        (tensor(4), tensor(162))
    """
    for function in (cond_fn, body_fn):
        if not callable(function):
            raise ArgumentError(f"while_loop takes two functions, not {type(function).__name__}")
    if not isinstance(carried, (tuple, list)):
        raise ArgumentError(f"while_loop carries a tuple, not a {type(carried).__name__}")
    leaves: list[Any] = []
    form = leaves_of(tuple(carried), leaves)
    carry = rebuilt(form, iter([t if t is None else as_tensor(t) for t in leaves]))
    if not recording_here():
        while _single(cond_fn(*carry)):
            carry = _same(body_fn(*carry), carry)
        return carry  # type: ignore[no-any-return]
    there = [as_tensor(t) for t in leaves if t is not None]
    asked = traced(lambda *c: as_tensor(cond_fn(*c)).reshape(()) != 0, carry, "while_loop")
    body = traced(lambda *c: _same(body_fn(*c), carry), carry, "while_loop")
    made: list[Tensor] = apply(
        "while_loop",
        *there,
        *asked.held,
        *body.held,
        bodies=(asked.text, body.text),
        held=(len(asked.held), len(body.held)),
    )
    return shaped(body.form, made)  # type: ignore[no-any-return]


def _single(value: Any) -> bool:
    found = as_tensor(value)
    if found.size != 1:
        raise ShapeError(
            f"while_loop goes on by one element, not by a tensor of shape {found.shape}",
            location=located(outside()),
        )
    return bool(found.item())


def _same(result: Any, carried: Any) -> Any:
    """What a round gave, which is as what it was given."""
    said = []
    for value in (carried, tuple(result) if isinstance(result, list) else result):
        leaves: list[Any] = []
        form = leaves_of(value, leaves)
        tensors = [t if t is None else as_tensor(t) for t in leaves]
        said.append((form, [None if t is None else (t.dtype.name, t.shape) for t in tensors]))
    if said[0] != said[1]:
        raise ShapeError(
            f"while_loop carries the same tree, shapes and dtypes; {said[0][1]} became "
            f"{said[1][1]}" + (" in another tree" if said[0][1] == said[1][1] else ""),
            location=located(outside()),
        )
    return rebuilt(form, iter(tensors))


def _run(dtype: np.dtype, *arrays: Any, bodies: Any, held: Any) -> list[Any]:
    recorder = recording.current()
    if recorder is not None:
        recorder.spoiled = True  # other data are another list of launches
    count = len(arrays) - sum(held)
    carry, first = list(arrays[:count]), list(arrays[count : count + held[0]])
    second = list(arrays[count + held[0] :])
    while bool(host(arrays_of(bodies[0], [*carry, *first])[0])):
        carry = arrays_of(bodies[1], [*carry, *second])
    return carry


@define("opaque", {"while_loop": _run}, composed=True)
def _while_loop(*specs: Spec, bodies: tuple[str, str], held: tuple[int, int]) -> list[Spec]:
    """What the second body makes of what is carried, again and again as long as the first one says
    true of it; `held`: how many inputs, behind those carried, only the first and only the second
    reads.
    """
    count = len(specs) - sum(held)
    carried = list(specs[:count])
    parts = (specs[count : count + held[0]], specs[count + held[0] :])
    for text, part, wanted in zip(bodies, parts, ([Spec((), bool_)], carried), strict=True):
        graph = graph_of(text)
        takes = [graph.values[i] for i in graph.inputs]
        gives = [graph.values[i] for i in graph.outputs]
        if takes != [*carried, *part] or gives != wanted:
            raise ShapeError(f"while_loop: a body makes {gives} of {takes}, not {wanted}")
    return carried
