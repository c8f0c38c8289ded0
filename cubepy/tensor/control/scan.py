"""`cb.scan`: a function that is applied again and again, to what it gave and to the next slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.lang.dtypes import bool_
from cubepy.runtime import memory, recording
from cubepy.runtime.memory.device_array import host
from cubepy.runtime.memory.pool import ALIGNMENT
from cubepy.runtime.memory.spans import beginning, meet
from cubepy.runtime.replay.host import PEELED
from cubepy.runtime.replay.record import Mark
from cubepy.tensor.array import Tensor, apply, as_tensor
from cubepy.tensor.control.body import Body, arrays_of, asked, graph_of, shaped, traced
from cubepy.tensor.control.checkpoint import alias
from cubepy.tensor.control.summed import by_use, gradients_within, uses_of
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace.creation import zeros, zeros_like
from cubepy.tensor.namespace.manipulation import stack
from cubepy.tensor.ops.library import kernels, number
from cubepy.tensor.ops.op import Spec, define, written_in_place
from cubepy.tensor.program.form import leaves_of, rebuilt
from cubepy.tensor.record import recording_here
from cubepy.tensor.value import located, outside

FURTHER = 16  # bytes


def scan(
    f: Callable[[Any, Any], Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    until: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any]:
    """Apply `carry, y = f(carry, x)` to the slices of `xs` along their first axis, one after the
    other; the last carry, and all `y` joined along a new first axis.

    Inside `cb.jit` `f` is traced once, whatever the length. Elsewhere it is a loop of Python.

    Args:
        f: of a carry and slices; gives the next carry, of the same tree, shapes and dtypes, and a
            tree of tensors (or None).
        init: the first carry: a tensor, or tuples, lists and dicts of such.
        xs: tensors of one length, as a tree; or None.
        length: how often, where `xs` is None.
        reverse: begin with the last slices; each `y` is where its `x` is.
        until: of the next carry; where it gives true (a tensor of one element) nothing comes behind
            that step, and every other `y` is zeros. Such a loop has no gradients.

    Raises:
        ShapeError: lengths that differ, a carry that becomes something else, several elements that
            say whether it ends.
        ArgumentError: no function, no length, or a result that is no pair.

    Example:
        >>> import cubepy as cb
        >>> cb.scan(lambda total, x: (total + x, total * x), cb.tensor(0), cb.tensor([1, 2, 3]))
        (tensor(6), tensor([0, 2, 9]))
    """
    if wrong := [g for g in (f, until or f) if not callable(g)]:
        raise ArgumentError(f"cb.scan takes a function, not {type(wrong[0]).__name__}")
    starts: list[Any] = []
    slices: list[Any] = []
    tree = leaves_of(init, starts)
    over = leaves_of(xs, slices)
    starts = [t if t is None else as_tensor(t) for t in starts]
    slices = [t if t is None else as_tensor(t) for t in slices]
    count = _length([t for t in slices if t is not None], length)
    init, xs = rebuilt(tree, iter(starts)), rebuilt(over, iter(slices))

    def at(n: int) -> Any:
        return rebuilt(over, iter([t if t is None else t[n] for t in slices]))

    if recording_here() or not count:
        empty = rebuilt(
            over, iter([t if t is None else zeros(t.shape[1:], dtype=t.dtype) for t in slices])
        )

        def once(carry: Any, x: Any) -> tuple[Any, ...]:
            made = _pair(f(carry, x), init)
            return made if until is None else (*made, _ends(until(made[0])))

        body = traced(once, (init, at(0) if count else empty), "cb.scan")
        there = [t for t in starts if t is not None]
        if not count:
            made = [zeros((0, *s.shape), dtype=s.dtype) for s in body.specs[len(there) :]]
            return shaped(body.form, [*there, *made])[:2]  # type: ignore[no-any-return]
        rest = [t for t in slices if t is not None]
        ends = until is not None
        results = _scanned(body, there, rest, count, bool(reverse), mode.enabled, ends)
        return shaped(body.form, [*results, None][: len(body.specs)])[:2]  # type: ignore[no-any-return]
    ys: list[list[Any]] = []
    carry, form = init, None
    for n in reversed(range(count)) if reverse else range(count):
        carry, y = _pair(f(carry, at(n)), init)
        ys.append([])
        form = leaves_of(y, ys[-1])
        if until is not None and _ends(until(carry)).item():
            behind = [t if t is None else zeros_like(as_tensor(t)) for t in ys[-1]]
            ys += [behind] * (count - len(ys))
            break
    if reverse:
        ys.reverse()
    joined = [None if parts[0] is None else stack(parts) for parts in zip(*ys, strict=True)]
    return carry, rebuilt(form, iter(joined))


def _length(slices: Sequence[Tensor], length: int | None) -> int:
    """How many slices there are."""
    found = {t.shape[0] for t in slices if t.shape} | ({length} if length is not None else set())
    if any(not t.shape for t in slices) or len(found) > 1:
        shapes = ", ".join(str(t.shape) for t in slices)
        raise ShapeError(
            f"cb.scan goes along first axes of one length; the shapes are {shapes}"
            + (f", length is {length}" if length is not None else ""),
            location=located(outside()),
        )
    if not found:
        raise ArgumentError("cb.scan needs xs, or a length", location=located(outside()))
    (count,) = found
    if type(count) is not int or count < 0:
        raise ArgumentError(f"a length is at least 0, not {count!r}", location=located(outside()))
    return count


def _pair(result: Any, init: Any) -> tuple[Any, Any]:
    """What a step gave, with a carry that is as the first one was."""
    if type(result) is not tuple or len(result) != 2:
        raise ArgumentError(
            "the function of cb.scan gives (carry, y), not " + type(result).__name__,
            location=located(outside()),
        )
    said = []
    for carry in (init, result[0]):
        leaves: list[Any] = []
        structure = leaves_of(carry, leaves)
        tensors = [t if t is None else as_tensor(t) for t in leaves]
        said.append((structure, [t if t is None else (t.dtype.name, t.shape) for t in tensors]))
    if said[0] != said[1]:
        before, after = (
            ", ".join("None" if s is None else f"{s[0]}{list(s[1])}" for s in one[1])
            for one in said
        )
        raise ShapeError(
            f"the carry of cb.scan keeps its tree, shapes and dtypes; it was ({before}), the "
            f"function gave ({after})" + (" in another tree" if before == after else ""),
            location=located(outside()),
        )
    return rebuilt(structure, iter(tensors)), result[1]


def _ends(said: Any) -> Tensor:
    """Whether a loop ends, as a bool of shape ()."""
    found = as_tensor(said)
    if found.size != 1:
        raise ShapeError(
            f"until of cb.scan gives one element, not a tensor of shape {found.shape}",
            location=located(outside()),
        )
    return (found if found.dtype is bool_ else found != 0).reshape(())


def _scanned(
    body: Body,
    init: Sequence[Any],
    xs: Sequence[Any],
    length: int,
    reverse: bool,
    saves: bool,
    until: bool = False,
) -> list[Tensor]:
    """The last carries, the joined results, and (where gradients may be wanted) the carries that
    each step began with.
    """
    made: list[Tensor] = apply(
        "scan",
        *init,
        *xs,
        *body.held,
        body=saving(body.text, len(init)) if saves and not until else body.text,
        carries=len(init),
        slices=len(xs),
        length=length,
        reverse=reverse,
        **({"until": True} if until else {}),
    )
    return made


def saving(text: str, carries: int) -> str:
    """A body that also gives the carries that it was given."""
    graph = graph_of(text)
    made = replace(graph, outputs=(*graph.outputs, *graph.inputs[:carries])).to_json()
    asked[made] = asked.get(text, {})
    return made


def _run(
    dtype: np.dtype,
    *arrays: Any,
    body: str,
    carries: int,
    slices: int,
    length: int,
    reverse: bool,
    until: bool = False,
) -> list[Any]:
    carry, xs = list(arrays[:carries]), arrays[carries : carries + slices]
    held, graph = arrays[carries + slices :], graph_of(body)
    copy = kernels().copy
    order = range(length)[::-1] if reverse else range(length)
    recorder = recording.current()
    marks = recorder is not None and recorder.marks and length > 1
    ys = [
        (_stacked if marks else memory.empty)((length, *spec.shape), spec.dtype.numpy)
        for spec in (graph.values[n] for n in graph.outputs[carries : len(graph.outputs) - until])
    ]
    for y in ys if until else ():
        copy(np.broadcast_to(number(y, 0, y.dtype), y.shape), out=y)
    if marks and all(y[0, ...].nbytes < PEELED or _lines(y) for y in ys):
        return _looped(recorder, body, order, carry, xs, held, ys, until)
    if until and recorder is not None:
        recorder.spoiled = True  # other elements are another number of launches
    for n in order:
        made = arrays_of(body, [*carry, *[x[n, ...] for x in xs], *held])
        carry = made[:carries]
        for y, part in zip(ys, made[carries:], strict=False):
            copy(part, out=y[n, ...])
        if until and bool(host(made[-1])):
            break
    return [*carry, *ys]


def _lines(y: Any) -> bool:
    """Whether all slices begin alike in a line of the cache: launches depend on it where the first
    of them begins with a line, and those that write large ones always.
    """
    return bool(y.strides[0] % ALIGNMENT == 0)


def _stacked(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Memory of which a launch that writes one slice can write all, as far as they are not large:
    neither the first nor the last one begins with a line, unless all do.
    """
    made = memory.empty(shape, dtype)
    if not made.size or _lines(made):
        return made
    raw = memory.empty((made.nbytes + 3 * FURTHER,), np.dtype(np.uint8))
    last = (shape[0] - 1) * made.strides[0]
    begin = beginning(raw)
    offset = next(
        o
        for o in range(FURTHER, 4 * FURTHER, FURTHER)
        if (begin + o) % ALIGNMENT and (begin + o + last) % ALIGNMENT
    )
    return np.ndarray(shape, dtype, raw, offset)


def _looped(
    recorder: Any,
    body: str,
    order: range,
    carry: Sequence[Any],
    xs: Sequence[Any],
    held: Sequence[Any],
    ys: Sequence[Any],
    until: bool,
) -> list[Any]:
    """What a scan gives, where one iteration is recorded: carries and slices have buffers."""
    copy, moves = kernels().copy, list[tuple[int, int, int, int]]()
    buffers = [memory.empty(c.shape, c.dtype) for c in carry]
    slices = [memory.empty(x.shape[1:], x.dtype) for x in xs]
    for c, buffer in zip(carry, buffers, strict=True):
        copy(c, out=buffer)

    def exchanged(source: Any, target: Any, of: Any, part: Any) -> None:
        """Copy a slice of one array, and note that it is another one in each turn."""
        begin = len(recorder.steps)
        copy(source, out=target)
        if len(recorder.steps) > begin:
            move = of.strides[0] * order.step
            moves.append((begin, len(recorder.steps), beginning(part), move))

    def iteration(n: int) -> Any:
        for x, buffer in zip(xs, slices, strict=True):
            exchanged(x[n, ...], buffer, x, x[n, ...])
        made = arrays_of(body, [*buffers, *slices, *held])
        for y, value in zip(ys, made[len(buffers) :], strict=False):
            exchanged(value, y[n, ...], y, y[n, ...])
        new = made[: len(buffers)]
        separate = [
            copy(c) if any(meet(c, p) for p in buffers if p is not buffer) else c
            for c, buffer in zip(new, buffers, strict=True)
        ]
        for c, buffer in zip(separate, buffers, strict=True):
            if c is not buffer:
                copy(c, out=buffer)
        return made[-1] if until else None

    recorder.steps.append(Mark("loop", times=len(order)))
    end = iteration(order[0])
    recorder.steps.append(Mark("again", end, moves=tuple(moves)))
    with recording.suspended():
        for n in order[1:]:
            if until and bool(host(end)):
                break
            end = iteration(n)
    return [*buffers, *ys]


def _written(attrs: Mapping[str, Any]) -> tuple[int, ...]:
    """The inputs that a body writes in place."""
    graph = graph_of(attrs["body"])
    found = written_in_place(graph.nodes)
    return tuple([n for n, value in enumerate(graph.inputs) if value in found])


@define("opaque", {"scan": _run}, keeps=True, composed=True, writes=_written)
def _scan(
    *specs: Spec,
    body: str,
    carries: int,
    slices: int,
    length: int,
    reverse: bool,
    until: bool = False,
) -> list[Spec]:
    """`body` again and again, of carries, slices along first axes and what stays the same: the last
    carries, and what else it gave with a first axis; `until` the last thing that it gives is true.
    """
    graph = graph_of(body)
    wanted = [graph.values[i] for i in graph.inputs]
    sliced = specs[carries : carries + slices]
    if any(s.shape[:1] != (length,) for s in sliced):
        raise ShapeError(f"scan: first axes of {[s.shape for s in sliced]} are not {length}")
    given = [*specs[:carries], *[Spec(s.shape[1:], s.dtype) for s in sliced]]
    given += specs[carries + slices :]
    if wanted != given:
        raise ShapeError(f"scan: the body takes {wanted}, not {given}")
    results = [graph.values[i] for i in graph.outputs]
    if results[:carries] != list(specs[:carries]):
        raise ShapeError(f"scan: carries {specs[:carries]} become {results[:carries]}")
    joined = results[carries : len(results) - until]
    return results[:carries] + [Spec((length, *s.shape), s.dtype) for s in joined]


@vjp("scan")
def _gradient(seen: Backward, *grads: Any) -> list[Any]:
    """The other way round: gradients by the carry are the carry, and those by what stays the same
    are summed up in it, or behind the loop where products and sums alone read it.
    """
    if seen.attrs.get("until"):
        raise LaunchError(
            "there are no gradients through cb.scan with until",
            hint="choose what a step gives with where, in a loop of a fixed length",
        )
    text, carries, slices = (seen.attrs[k] for k in ("body", "carries", "slices"))
    length, reverse = seen.attrs["length"], seen.attrs["reverse"]
    inputs, graph = list(seen.inputs), graph_of(text)
    saves = graph.outputs[len(graph.outputs) - carries :] == graph.inputs[:carries]
    if not saves:
        text = saving(text, carries)
        grads, graph = (*grads, *[None] * carries), graph_of(text)
    began = seen.results[len(seen.results) - carries :]
    if not saves or mode.enabled and any(t.value.call is None for t in began):
        results = apply("scan", *inputs, **{**seen.attrs, "body": text})
        began = results[len(results) - carries :]
    moving = [n for n in range(carries) if inputs[n].dtype.is_float]
    xs = [n for n in range(carries, carries + slices) if seen.needs[n]]
    held = [n for n in range(carries + slices, len(inputs)) if seen.needs[n]]
    read = {n: uses_of(graph, graph.inputs[n]) for n in held}
    uses = {n: some for n, some in read.items() if some is not None}
    held = [n for n in held if n not in uses]
    every = [use for some in uses.values() for use in some]
    outs = sorted({use.out for use in every})
    known = {graph.inputs[n]: n for n in range(len(inputs))}
    parts = sorted({use.x for use in every if use.x is not None} - known.keys())
    wanted = [n in moving or n in xs or n in held for n in range(len(inputs))]
    present = [g is not None for g in grads[carries:]]
    where: list[int] = []  # of the gradients by slices and outs, among what is given

    def back(carry: Any, slice_: Any) -> Any:
        by_carry, by_held = carry
        values, given = slice_
        rest = iter(given)
        seeds: list[Any] = [None] * carries
        for n, grad in zip(moving, by_carry, strict=True):
            seeds[n] = grad
        seeds += [next(rest) if there else None for there in present]
        same = [*constant] if not mode.enabled else [alias(t) for t in constant]
        found, within, by_within = gradients_within(
            graph, [*values, *same], wanted, seeds, [*outs, *parts], mode.enabled
        )
        one = [zeros_like(values[n]) if found[n] is None else found[n] for n in moving]
        total = [
            t if found[n] is None else t + found[n] for t, n in zip(by_held, held, strict=True)
        ]
        like = [*[values[n] for n in xs], *within[: len(outs)]]
        each = [*[found[n] for n in xs], *by_within[: len(outs)]]
        given = []
        first = not where  # what is one tensor in one step may be equal ones in others
        for n, (t, grad) in enumerate(zip(like, each, strict=True)):
            grad = zeros_like(t) if grad is None else grad
            if first:
                where.append(next((k for k, g in enumerate(given) if g is grad), len(given)))
            given += [grad] * (where[n] == len(given))
        return (one, total), [*given, *within[len(outs) :]]

    constant = inputs[carries + slices :]
    start = (
        [zeros_like(inputs[n]) if grads[n] is None else grads[n] for n in moving],
        [zeros_like(inputs[n]) for n in held],
    )
    over = (
        [*began, *inputs[carries : carries + slices]],
        [g for g in grads[carries:] if g is not None],
    )
    (by_carry, by_held), given = scan(back, start, over, length, not reverse)
    each = [given[at] for at in where]
    found = dict(zip([*moving, *held, *xs], [*by_carry, *by_held, *each], strict=False))
    by_out = dict(zip(outs, each[len(xs) :], strict=True))
    of = dict(zip(parts, given[len(given) - len(parts) :], strict=True))
    for value, n in known.items():
        of[value] = over[0][n] if n < carries + slices else None
    for n, some in uses.items():
        summed = [
            by_use(use, _all(of, known, inputs, use.x, length), by_out[use.out], inputs[n].shape)
            for use in some
        ]
        found[n] = reduce(add, summed) if summed else None
    return [found.get(n) if need else None for n, need in enumerate(seen.needs)]


def _all(of: Any, known: Any, inputs: Any, value: int | None, length: int) -> Any:
    """A value of the body in all iterations."""
    if value is None or of[value] is not None:
        return None if value is None else of[value]
    t = inputs[known[value]]
    return t.expand((length, *t.shape))
