"""Checkpoints: what a function computes on its way is let go, and computed again for gradients.

The ops that lead to the results are known from the results themselves (their calls), so the second
time runs these ops on the values that they had, not the function: random numbers are the same, and
nothing that it did besides happens twice. What needs no gradient is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cubepy.errors import ArgumentError, ShapeError
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.gradients.engine import walk_back
from cubepy.tensor.gradients.functional import mapped
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import enable_grad, mode
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import Op, Spec
from cubepy.tensor.program.observe import same
from cubepy.tensor.record import recording_here
from cubepy.tensor.value import Call, Value, identities

CHECKPOINT, ALIAS = "checkpoint", "alias"
"""Ops that only calls have, none that tensors run: some steps; the elements of another value."""


class Step(NamedTuple):
    """An op that ran.

    Attributes:
        op: its name.
        inputs: the numbers of the values that it read; None for absent ones.
        attrs: its attributes.
        results: the numbers of what it gave; None for what nobody kept.
    """

    op: str
    inputs: tuple[int | None, ...]
    attrs: dict[str, Any]
    results: tuple[int | None, ...]


class Steps:
    """The ops between some values and some results.

    Attributes:
        inputs: the values that they begin with; they are numbered first.
        steps: the ops, in order.
        outputs: the numbers of the results.
    """

    def __init__(self, results: Sequence[Value], begin: int) -> None:
        """The ops that gave results, as far as they ran since values had the number `begin`."""
        seen: dict[int, Value] = {}
        calls: dict[int, tuple[int, Call]] = {}
        stack = list(results)
        while stack:
            value = stack.pop()
            if value.id in seen:
                continue
            seen[value.id] = value
            call = value.call
            if call is not None and value.id > begin and call.inputs is not None:
                first = min(value.id, calls.get(id(call), (value.id, call))[0])
                calls[id(call)] = first, call
                stack += [v for v in call.inputs if v is not None]
        made = {v.id for v in seen.values() if v.call is not None and id(v.call) in calls}
        self.inputs = [v for n, v in sorted(seen.items()) if n not in made]
        number = {v.id: n for n, v in enumerate(self.inputs)}
        self.steps: list[Step] = []
        given: dict[int, list[Value]] = {}
        for n in sorted(made):
            number[n] = len(number)
            given.setdefault(id(seen[n].call), []).append(seen[n])
        for at, call in sorted(calls.values(), key=lambda one: one[0]):
            known = [ref() for ref in call.results] or [seen[at]]
            read = tuple([None if v is None else number[v.id] for v in call.inputs or ()])
            gave = tuple([None if v is None else number.get(v.id) for v in known])
            again = call.attrs.get("again")  # all that is needed, of what keeps more
            attrs = call.attrs if again is None else {"again": again}
            self.steps.append(Step(call.op, read, attrs, gave))
        self.outputs = [number[v.id] for v in results]

    def run(self, *given: Any) -> list[Any]:
        """The results, computed again from tensors for the inputs."""
        values: dict[int | None, Any] = {None: None, **dict(enumerate(given))}
        for step in self.steps:
            inputs = [values[i] for i in step.inputs]
            again = step.attrs.get("again")
            made = apply(step.op, *inputs, **step.attrs) if again is None else again(*inputs)
            values.update(zip(step.results, made if type(made) is list else [made], strict=True))
            values[None] = None
        return [values[n] for n in self.outputs]


def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What a function gives, keeping its inputs alone: what lies between is computed again where
    gradients ask for it.

    Values and gradients are those of `function(*args, **kwargs)`; the memory of what lies between
    is paid for once at a time, and its time twice. Dropout drops the same elements again, and a
    generator has moved on once. Checkpoints may be within checkpoints, in `cb.jit`, and have
    gradients of any order.

    Args:
        function: gives a tensor, or tuples, lists and dicts of such; parameters that it reads get
            gradients as in any function.
        args, kwargs: what it is given.

    Returns:
        What it gave.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0], requires_grad=True)
        >>> cb.checkpoint(lambda x: (x * x).exp() * x, x).sum().backward()
        >>> x.grad
        tensor([  8.154845, 491.38336 ])
    """
    if not callable(function):
        raise ArgumentError(f"cb.checkpoint takes a function, not {type(function).__name__}")
    if not mode.enabled:
        return function(*args, **kwargs)
    begin = next(identities)
    result = function(*args, **kwargs)
    found: dict[int, Value] = {}

    def look(one: Any) -> Any:
        if isinstance(one, Tensor) and one.value.call is not None and one.value.id > begin:
            found[one.value.id] = one.value
        return one

    mapped(look, result)
    if not found or any(v.call.inputs is None for v in found.values() if v.call is not None):
        return result
    steps = Steps([*found.values()], begin)
    fresh = [Value(v.storage) for v in found.values()]
    attrs = {"steps": steps, "again": lambda *given: checkpoint(steps.run, *given)}
    call = Call(CHECKPOINT, tuple(steps.inputs), attrs, fresh)
    exchanged = dict(zip(found, fresh, strict=True))
    for old, new in exchanged.items():
        same(new, _tensor(found[old]))
        new.call, new.needs_grad = call, True

    def forget(one: Any) -> Any:
        known = exchanged.get(one.value.id) if isinstance(one, Tensor) else None
        return one if known is None else _tensor(known)

    return mapped(forget, result)


def _through_steps(seen: Backward, *grads: Any) -> list[Any]:
    """The gradients by the inputs of steps, which run again."""
    again, attached = [], mode.enabled
    first = next(g for g in grads if g is not None)
    for t, need in zip(seen.inputs, seen.needs, strict=True):
        made = t
        if need and recording_here():  # else it would be what was computed before, for a program
            made = apply("after", t, first)
        elif need:
            made = alias(t) if attached else t.detach()
        again.append(made if attached or not need else made.requires_grad_())
    with enable_grad():
        outputs = seen.attrs["steps"].run(*again)
    pairs = zip(outputs, grads, strict=True)
    seeds = [(t.value, g) for t, g in pairs if g is not None and t.requires_grad]
    wanted = [t.value for t, need in zip(again, seen.needs, strict=True) if need]
    found = walk_back(seeds, wanted, _tensor, create_graph=attached, retain_graph=attached)
    return [found.get(t.value) if n else None for t, n in zip(again, seen.needs, strict=True)]


def remember_alias(made: Value, original: Value) -> Value:
    """Let gradients by a value go on to the value that it stands for."""
    made.call, made.needs_grad = Call(ALIAS, (original,), {"again": _as_it_is}, [made]), True
    return made


def alias(t: Any) -> Any:
    """A tensor of another value, through which gradients go on to that of `t`."""
    value = Value(t.storage)
    same(value, t)
    return _tensor(remember_alias(value, t.value) if t.requires_grad else value)


def _as_it_is(x: Any) -> Any:
    return x


def _through_alias(seen: Backward, grad: Any) -> Any:
    return grad


def _no_rule(*specs: Spec, **attrs: Any) -> Spec:
    raise ShapeError("only calls that gradients remember have steps")


OPS[CHECKPOINT] = Op(CHECKPOINT, "opaque", _no_rule, _no_rule, vjp=_through_steps)
OPS[ALIAS] = Op(ALIAS, "view", _no_rule, _no_rule, vjp=_through_alias)


@vjp("after")
def _after(seen: Backward, grad: Any) -> Any:
    return grad, None


def _tensor(value: Value) -> Any:
    made: Tensor = object.__new__(Tensor)
    made.value = value
    return made
