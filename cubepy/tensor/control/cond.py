"""`cb.cond`: one of two functions, chosen by a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError
from cubepy.lang.dtypes import bool_
from cubepy.runtime import memory, recording
from cubepy.runtime.memory.device_array import host
from cubepy.runtime.replay.record import Mark
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.control.body import Body, arrays_of, graph_of, shaped, traced
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.namespace.creation import zeros_like
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.op import Spec, define
from cubepy.tensor.program.differentiated import gradients
from cubepy.tensor.program.form import leaves_of, rebuilt
from cubepy.tensor.record import recording_here
from cubepy.tensor.value import located, outside


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """What one of two functions gives: `true_fn(*operands)` where `pred` is true, else
    `false_fn(*operands)`.

    Inside `cb.jit` both are traced and must give the same tree, shapes and dtypes; a call runs one
    of them, and another `pred` is no new trace. Elsewhere it is Python's `if`.

    Args:
        pred: a tensor of one element, or a bool.
        true_fn, false_fn: of the operands.
        operands: tensors, or trees of them.

    Raises:
        ShapeError: `pred` is no single element, or the functions give different things.
        ArgumentError: something that cannot be called.

    Example:
        >>> import cubepy as cb
        >>> clipped = cb.jit(lambda x: cb.cond(x.sum() > 3, lambda x: x / x.sum(), lambda x: x, x))
        >>> clipped(cb.tensor([1.0, 1.0])), clipped(cb.tensor([2.0, 6.0]))
        (tensor([1., 1.]), tensor([0.25, 0.75]))
    """
    for function in (true_fn, false_fn):
        if not callable(function):
            raise ArgumentError(f"cb.cond takes two functions, not {type(function).__name__}")
    if isinstance(pred, Tensor) and pred.size != 1:
        raise ShapeError(
            f"cb.cond chooses by one element, not by a tensor of shape {pred.shape}",
            location=located(outside()),
            hint="choose element by element with cubepy.tensor.where",
        )
    if not isinstance(pred, Tensor) or not recording_here():
        return (true_fn if bool(pred) else false_fn)(*operands)
    leaves: list[Any] = []
    structure = leaves_of(operands, leaves)
    given = [as_tensor(x) for x in leaves if x is not None]
    rest = iter(given)
    args = rebuilt(structure, iter([None if x is None else next(rest) for x in leaves]))
    bodies = [traced(f, args, "cb.cond") for f in (true_fn, false_fn)]
    _equal(*bodies)
    return shaped(bodies[0].form, _chosen(pred, given, bodies))


def _chosen(pred: Tensor, given: Sequence[Tensor], bodies: Sequence[Body]) -> list[Tensor]:
    chooses = pred.reshape(()) if pred.shape else pred
    held = [len(b.held) for b in bodies]
    made: list[Tensor] = apply(
        "cond",
        chooses if pred.dtype is bool_ else chooses != 0,
        *given,
        *bodies[0].held,
        *bodies[1].held,
        bodies=tuple(b.text for b in bodies),
        held=tuple(held),
    )
    return made


def _equal(one: Body, other: Body) -> None:
    """Whether both functions give the same."""
    if one.form != other.form or one.specs != other.specs:
        said = [", ".join(f"{s.dtype.name}{list(s.shape)}" for s in b.specs) for b in (one, other)]
        raise ShapeError(
            f"both functions of cb.cond give the same tree, shapes and dtypes; one gives "
            f"({said[0]}), the other one ({said[1]})"
            + (" in another tree" if one.specs == other.specs else ""),
            location=located(outside()),
        )


def _parts(values: Sequence[Any], held: tuple[int, int]) -> tuple[list[Any], list[Any]]:
    """What each of the two bodies reads, of all that both read."""
    shared = len(values) - sum(held)
    one = values[: shared + held[0]]
    return list(one), [*values[:shared], *values[shared + held[0] :]]


def _run(dtype: np.dtype, pred: Any, *arrays: Any, bodies: Any, held: Any) -> list[Any]:
    recorder, which = recording.current(), 0 if bool(host(pred)) else 1
    parts = _parts(arrays, held)
    if recorder is not None and recorder.marks:
        try:
            return _both(recorder, pred, which, bodies, parts)
        except OutOfBoundsError:  # perhaps in the branch that is not taken
            recorder.spoiled = True
    elif recorder is not None:
        recorder.spoiled = True  # another element is another list of launches
    return arrays_of(bodies[which], parts[which])


def _both(recorder: Any, pred: Any, which: int, bodies: Any, parts: Any) -> list[Any]:
    """What one branch gives, where both are recorded."""
    copy = kernels().copy
    recorder.steps.append(Mark("fork", pred))
    made = [arrays_of(bodies[0], parts[0])]
    out = [memory.empty(a.shape, a.dtype) for a in made[0]]
    for a, given in zip(made[0], out, strict=True):
        copy(a, out=given)
    recorder.steps.append(Mark("otherwise"))
    made.append(arrays_of(bodies[1], parts[1]))
    for a, given in zip(made[1], out, strict=True):
        copy(a, out=given)
    recorder.steps.append(Mark("join"))
    with recording.suspended():
        for a, given in zip(made[which], out, strict=True):
            copy(a, out=given)
    return out


@define("opaque", {"cond": _run}, composed=True)
def _cond(pred: Spec, *specs: Spec, bodies: tuple[str, str], held: tuple[int, int]) -> list[Spec]:
    """What the first body gives where `pred` is true, else what the second one gives; `held`: how
    many inputs, behind those that both read, only the first and only the second reads.
    """
    if pred.dtype is not bool_ or pred.shape:
        raise DTypeError(f"cond chooses by a bool of shape (), not {pred.dtype.name}{pred.shape}")
    found = []
    for text, given in zip(bodies, _parts(specs, held), strict=True):
        graph = graph_of(text)
        wanted = [graph.values[i] for i in graph.inputs]
        if wanted != given:
            raise ShapeError(f"cond: a body takes {wanted}, not {given}")
        found.append([graph.values[i] for i in graph.outputs])
    if found[0] != found[1]:
        raise ShapeError(f"cond: the bodies give {found[0]} and {found[1]}")
    return found[0]


@vjp("cond")
def _gradient(seen: Backward, *grads: Any) -> list[Any]:
    pred, *inputs = seen.inputs
    held, needs = seen.attrs["held"], seen.needs[1:]
    wanted = [n for n, need in enumerate(needs) if need]
    places = _parts(range(len(inputs)), held)
    present = [g is not None for g in grads]

    def walked(which: int) -> Callable[..., list[Any]]:
        def walk(values: list[Any], given: list[Any]) -> list[Any]:
            rest = iter(given)
            seeds = [next(rest) if there else None for there in present]
            mine = [values[n] for n in places[which]]
            asked = [needs[n] for n in places[which]]
            graph = graph_of(seen.attrs["bodies"][which])
            found = dict(
                zip(places[which], gradients(graph, mine, asked, seeds, True), strict=True)
            )
            return [zeros_like(values[n]) if found.get(n) is None else found[n] for n in wanted]

        return walk

    given = [g for g in grads if g is not None]
    bodies = [traced(walked(which), (inputs, given), "cb.cond") for which in (0, 1)]
    result = [None] * len(seen.inputs)
    for n, grad in zip(wanted, _chosen(pred, [*inputs, *given], bodies), strict=True):
        result[n + 1] = grad  # type: ignore[call-overload]
    return result
