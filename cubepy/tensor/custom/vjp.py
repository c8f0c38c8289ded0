"""`cb.custom_vjp`: functions of tensors whose gradient the user says.

Gradients remember a call of such a function by its arguments and what it saved; the ops within are
not looked at. A trace has the op "custom" behind them, which gives what they gave: programs that
run leave it out, those that walk back find the user's gradient in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cubepy.errors import ArgumentError, CubeError, GradientError
from cubepy.tensor.array import Tensor
from cubepy.tensor.custom.names import Name, name_of
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import enable_grad, mode, no_grad
from cubepy.tensor.namespace.creation import zeros
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import Op, Spec, define
from cubepy.tensor.program.form import DICTS, leaves_of, rebuilt
from cubepy.tensor.program.observe import active, same
from cubepy.tensor.program.scalar import number_of
from cubepy.tensor.value import Call, Value, located, outside

CUSTOM_CALL = "custom_call"
"""An op that only calls have, none that tensors run: a function with its own gradient."""


class CustomVjp:
    """A function of tensors with a gradient that is given (see `custom_vjp`)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.forward: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        functools.update_wrapper(self, function)

    def defvjp(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        """Say what the gradient is.

        Args:
            forward: of the arguments of the function; gives (result, saved). What is saved are
                tensors, trees of them, or anything else.
            backward: of what was saved and the gradient by the result, of its form; gives a tuple
                with the gradient by each positional argument: in the form of the argument, None
                where there is none. Written in ops it has gradients itself.

        Raises:
            ArgumentError: something that cannot be called.
        """
        for one in (forward, backward):
            if not callable(one):
                raise ArgumentError(f"defvjp takes two functions, not {type(one).__name__}")
        self.forward, self.backward = forward, backward

    def __cubepy_reads__(self, reads: Any) -> None:
        """What programs look at: its functions."""
        for name in ("function", "forward", "backward"):
            found = getattr(self, name)
            reads.note("attribute", self, name, found)
            if found is not None:
                reads.function(found)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.forward is None:
            raise ArgumentError(
                f"{self.function.__qualname__} has no gradient yet",
                hint="say what it is: function.defvjp(forward, backward)",
            )
        leaves: list[Any] = []
        structure = leaves_of((args, kwargs), leaves)
        if not mode.enabled or not any(isinstance(x, Tensor) and x.requires_grad for x in leaves):
            return self.function(*args, **kwargs)
        return _differentiable(self, structure, [number_of(x) for x in leaves])


class Form(NamedTuple):
    """A call, without its tensors.

    Attributes:
        rule: the function.
        structure: of its arguments.
        fixed: their leaves, None for tensors.
        tensors: which of the leaves are tensors.
        result: the structure of the result, and which of its leaves are floats.
        zeros: what makes zeros like each of these.
        saved: the structure of what was saved, and its leaves: ("argument", n), ("result", n),
            ("own", n) for tensors, ("fixed", value).
        line: where the user called it.
    """

    rule: CustomVjp
    structure: Any
    fixed: tuple[Any, ...]
    tensors: tuple[int, ...]
    result: tuple[Any, tuple[bool, ...]]
    zeros: tuple[Callable[[], Tensor], ...]
    saved: tuple[Any, tuple[tuple[str, Any], ...]]
    line: Any

    def arguments(self, tensors: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with tensors for theirs."""
        leaves = list(self.fixed)
        for n, t in zip(self.tensors, tensors, strict=True):
            leaves[n] = t
        args, kwargs = rebuilt(self.structure, iter(leaves))
        return args, kwargs

    def again(self, *tensors: Any) -> list[Any]:
        """The results that have gradients, computed again."""
        args, kwargs = self.arguments(tensors)
        found: list[Any] = []
        leaves_of(self.rule(*args, **kwargs), found)
        return [t for t, differs in zip(found, self.result[1], strict=True) if differs]


def _differentiable(rule: CustomVjp, structure: Any, leaves: list[Any]) -> Any:
    """What a function gives, remembered as one call."""
    name = rule.function.__qualname__
    at = tuple([n for n, x in enumerate(leaves) if isinstance(x, Tensor)])
    tensors = [leaves[n] for n in at]
    args, kwargs = rebuilt(structure, iter(leaves))
    assert rule.forward is not None
    with no_grad():
        pair = rule.forward(*args, **kwargs)
    if type(pair) is not tuple or len(pair) != 2:
        raise GradientError(
            f"the forward function of {name} gives (result, saved), not {type(pair).__name__}",
            location=located(outside()),
        )
    results: list[Any] = []
    form = leaves_of(pair[0], results)
    floats = tuple([isinstance(t, Tensor) and t.dtype.is_float for t in results])
    raw = [t for t, differs in zip(results, floats, strict=True) if differs]
    own: list[Any] = []
    saved: list[Any] = []
    saved_form = leaves_of(pair[1], saved)
    markers = tuple([_marker(x, tensors, raw, own) for x in saved])
    if not raw:
        return pair[0]
    for x in results:
        if not isinstance(x, (Tensor, int, float, str, type(None))):
            raise GradientError(
                f"{name} gives tensors, or tuples, lists and dicts of such, not {type(x).__name__}",
                location=located(outside()),
            )
    fixed = tuple([None if isinstance(x, Tensor) else x for x in leaves])
    empty = tuple([functools.partial(zeros, t.shape, dtype=t.dtype, device=t.device) for t in raw])
    call_form = Form(
        rule, structure, fixed, at, (form, floats), empty, (saved_form, markers), located(outside())
    )
    fresh = [Value(t.storage) for t in raw]
    attrs = {"form": call_form, "own": own, "again": call_form.again}
    call = Call(CUSTOM_CALL, tuple([t.value for t in tensors]), attrs, fresh)
    if any(kind == "result" for kind, _ in markers):
        call.kept = [Value(t.storage) for t in raw]
        for kept, t in zip(call.kept, raw, strict=True):
            same(kept, t)
    recorder = active.get()
    if recorder is not None:
        counts = (len(raw), len(tensors))
        recorder.add("custom", [*raw, *tensors, *own], _attrs(call_form, counts), fresh)
    for value in fresh:
        value.call, value.needs_grad = call, True
    new = iter(fresh)
    shown = [_tensor(next(new)) if d else t for t, d in zip(results, floats, strict=True)]
    return rebuilt(form, iter(shown))


def _attrs(form: Form, counts: tuple[int, int]) -> dict[str, Any]:
    return {"form": name_of(form), "counts": counts}


def _marker(x: Any, tensors: list[Any], raw: list[Any], own: list[Any]) -> tuple[str, Any]:
    """What of a call something is that was saved."""
    if not isinstance(x, Tensor):
        return ("fixed", x)
    for kind, known in (("argument", tensors), ("result", raw), ("own", own)):
        for n, t in enumerate(known):
            if t.value is x.value:
                return (kind, n)
    own.append(x)
    return ("own", len(own) - 1)


def _back(
    form: Form, args: Sequence[Any], results: Sequence[Any], own: Sequence[Any], grads: Any
) -> list[Any]:
    """The gradients by the tensors among the arguments of a call.

    Raises:
        GradientError: the user's gradient is not of the form of the arguments.
    """
    needed = {kind for kind, _ in form.saved[1]}
    if mode.enabled:  # these gradients have gradients: by what was saved, too
        if "result" in needed and any(t is None or t.value.call is None for t in results):
            results = form.again(*args)
        if "own" in needed and any(t.dtype.is_float for t in own):
            own = _saved_again(form, args, own)
    known = {"argument": args, "result": results, "own": own}
    saved = [n if kind == "fixed" else known[kind][n] for kind, n in form.saved[1]]
    given = iter([make() if g is None else g for make, g in zip(form.zeros, grads, strict=True)])
    by_result = rebuilt(form.result[0], iter([next(given) if f else None for f in form.result[1]]))
    assert form.rule.backward is not None
    found = form.rule.backward(rebuilt(form.saved[0], iter(saved)), by_result)
    return _gradients(form, args, found)


def _saved_again(form: Form, args: Sequence[Any], own: Sequence[Any]) -> list[Any]:
    """What was computed and saved, with its own past."""
    given, kwargs = form.arguments(args)
    assert form.rule.forward is not None
    with enable_grad():
        saved = form.rule.forward(*given, **kwargs)[1]
    leaves: list[Any] = []
    leaves_of(saved, leaves)
    found = list(own)
    for (kind, n), t in zip(form.saved[1], leaves, strict=True):
        if kind == "own":
            found[n] = t
    return found


def _gradients(form: Form, args: Sequence[Any], found: Any) -> list[Any]:
    """The gradients by the tensors among the arguments, of what the user's function gave."""
    name = form.rule.function.__qualname__
    count = len(form.structure[1]) - 1  # positional arguments
    if type(found) is list:
        found = tuple(found)
    elif type(found) is not tuple:
        found = (found,)
    if len(found) != count:
        raise GradientError(
            f"the gradient of {name} gives a tuple of {count}, one for each positional argument, "
            f"not of {len(found)}",
            location=form.line,
        )
    by_leaf: list[Any] = []
    for structure, part in zip(form.structure[1][1:], found, strict=True):
        _flattened(structure, part, by_leaf, form)
    result = []
    for n, t in zip(form.tensors, args, strict=True):
        grad = by_leaf[n] if n < len(by_leaf) else None  # keywords have none
        if grad is not None and (not isinstance(grad, Tensor) or grad.shape != t.shape):
            what = grad.shape if isinstance(grad, Tensor) else type(grad).__name__
            raise GradientError(
                f"the gradient of {name} by a tensor of shape {t.shape} is a tensor of this shape, "
                f"not {what}",
                location=form.line,
            )
        result.append(grad)
    return result


def _flattened(structure: Any, part: Any, leaves: list[Any], form: Form) -> None:
    """Add the leaves of a gradient by an argument; None stands for a tree of them."""
    if structure is None:
        leaves.append(part)
        return
    kind, *parts = structure
    keys = parts.pop(0) if kind in DICTS else range(len(parts))
    if part is not None and (type(part) is not kind or len(part) != len(parts)):
        raise GradientError(
            f"the gradient of {form.rule.function.__qualname__} by a {kind.__name__} of "
            f"{len(parts)} is one, too, or None",
            location=form.line,
        )
    for key, inner in zip(keys, parts, strict=True):
        _flattened(inner, None if part is None else part[key], leaves, form)


def _through_call(seen: Backward, *grads: Any) -> list[Any]:
    return _back(seen.attrs["form"], seen.inputs, seen.results, seen.attrs["own"], grads)


def _no_rule(*specs: Spec, **attrs: Any) -> Spec:
    raise CubeError("only calls that gradients remember have a gradient that is given")


OPS[CUSTOM_CALL] = Op(CUSTOM_CALL, "opaque", _no_rule, _no_rule, vjp=_through_call)


def _run_custom(dtype: Any, *arrays: Any, form: Name, counts: tuple[int, int]) -> list[Any]:
    return list(arrays[: counts[0]])


@define("view", {"custom": _run_custom}, keeps=True)
def _custom(*specs: Spec, form: Name, counts: tuple[int, int]) -> list[Spec]:
    """The first inputs as they are: what a function with its own gradient gave of those that
    follow; the last ones are what it saved.
    """
    return list(specs[: counts[0]])


@vjp("custom")
def _through_custom(seen: Backward, *grads: Any) -> list[Any]:
    made, given = seen.attrs["counts"]
    args, own = seen.inputs[made : made + given], seen.inputs[made + given :]
    found = _back(seen.attrs["form"].of, args, seen.results, own, grads)
    return [*[None] * made, *found, *[None] * len(own)]


def custom_vjp(function: Callable[..., Any]) -> CustomVjp:
    """A function of tensors whose gradient is given, not that of the ops within: because kernels
    are launched in it, or because another formula is faster or more exact.

    `f.defvjp(forward, backward)` gives it, as in JAX. What the function reads besides its arguments
    has no gradient. Numbers among the arguments are fixed in a program.

    Args:
        function: of tensors, trees of them, and anything else; gives tensors.

    Raises:
        ArgumentError: something that cannot be called.

    Example:
        >>> import cubepy as cb
        >>> @cb.custom_vjp
        ... def log1pexp(x):
        ...     return (x.exp() + 1).log()
        >>> def forward(x):
        ...     return log1pexp.function(x), x
        >>> def backward(x, grad):
        ...     return (grad * x.sigmoid(),)
        >>> log1pexp.defvjp(forward, backward)
        >>> cb.grad(lambda x: log1pexp(x).sum())(cb.tensor([0.0, 100.0]))
        tensor([0.5, 1. ])
    """
    if not callable(function):
        raise ArgumentError(f"cb.custom_vjp takes a function, not {type(function).__name__}")
    return CustomVjp(function)


def _tensor(value: Value) -> Tensor:
    made: Tensor = object.__new__(Tensor)
    made.value = value
    return made
