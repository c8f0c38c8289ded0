"""Gradients of functions: `grad(f)` is a function, whose gradient is `grad(grad(f))`."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cubepy.errors import ArgumentError, GradientError
from cubepy.tensor.array import Tensor, tensor
from cubepy.tensor.gradients.engine import depends_on_others, walk_back
from cubepy.tensor.modes import enable_grad, mode
from cubepy.tensor.program.plans.steady import exchange
from cubepy.tensor.value import Value


def value_and_grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Any:
    """A function that gives what `function` gives, and the gradient of it by some of its arguments.

    Args:
        function: of tensors; gives a number (a tensor of one element).
        argnums: by which positional arguments: an int, or several. An argument may be a tensor, an
            array, a number, or a list, tuple or dict of such; its gradient has the same form.
        has_aux: `function` gives (number, more), and what it gives besides is no part of the
            gradient.

    Returns:
        A function of the same arguments, with results (value, gradient), or ((value, more),
        gradient); with several argnums the gradient is a tuple. What `function` gives to tensors
        from outside (`assign_`) are plain elements afterwards, unless they depend on other tensors
        that need gradients.

    Raises:
        ArgumentError: it is no function.
        GradientError: the result does not depend on the arguments, or is no single number.

    Example:
        >>> import cubepy as cb
        >>> f = cb.value_and_grad(lambda x, y: (x * y).sum(), argnums=(0, 1))
        >>> f(cb.tensor([1.0, 2.0]), cb.tensor([3.0, 4.0]))
        (tensor(11.), (tensor([3., 4.]), tensor([1., 2.])))
    """
    if not callable(function):
        raise ArgumentError(
            f"a gradient is taken of a function, not of {type(function).__name__}",
            hint="write cb.grad(f)(x), or y.backward() and x.grad",
        )
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given, leaves = list(args), list[list[Tensor]]()
        for n in numbers:
            if not -len(args) <= n < len(args):
                raise ArgumentError(f"argnums names argument {n}, {len(args)} were given")
            found: list[Tensor] = []
            given[n] = mapped(functools.partial(leaf_of, found), args[n])
            leaves.append(found)
        before, mode.assigned = mode.assigned, []
        try:
            with enable_grad():
                result = function(*given, **kwargs)
        finally:
            assigned, mode.assigned = mode.assigned, before
        more: Any = None
        if has_aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise ArgumentError(
                    "with has_aux=True a function gives (number, more), not "
                    f"{type(result).__name__}"
                )
            result, more = result
        if not isinstance(result, Tensor):
            raise GradientError(
                f"{getattr(function, '__name__', 'the function')} gave no tensor, but "
                f"{type(result).__name__}"
            )
        wanted = [leaf.value for found in leaves for leaf in found]
        outside = mode.enabled and depends_on_others(result.value, wanted)
        detach(assigned or (), wanted)
        grads = by_values(result, wanted, None, create_graph=outside)
        known = dict(zip(wanted, grads, strict=True))
        forms = []
        for n, found in zip(numbers, leaves, strict=True):
            order = iter([known[leaf.value] for leaf in found])
            forms.append(mapped(functools.partial(_next_of, order), args[n]))
        value = result if outside else result.detach()
        value = (value, mapped(functools.partial(_let_go, wanted), more)) if has_aux else value
        return value, forms[0] if isinstance(argnums, int) else tuple(forms)

    return run


def _let_go(wanted: Sequence[Value], value: Any) -> Any:
    """A tensor without a way back to these values, unless it has one to others."""
    if not isinstance(value, Tensor) or mode.enabled and depends_on_others(value.value, wanted):
        return value
    return value.detach()


def detach(handles: Sequence[Any], wanted: Sequence[Value]) -> None:
    """Let handles that a function was seen to assign be plain elements, where they depend on
    nothing but what it was given: nobody has that, so no gradient could be asked for.

    Args:
        handles: of any values.
        wanted: the values that the function was given.
    """
    for handle in handles:
        if handle.value.call is None:
            continue
        if mode.enabled and depends_on_others(handle.value, wanted):
            if mode.assigned is not None:
                mode.assigned.append(handle)
        else:
            exchange(handle, handle.detach().value)


def grad(
    function: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Any:
    """A function that gives the gradient of `function` by some of its arguments (see
    `value_and_grad`); with has_aux (gradient, more).

    Example:
        >>> import cubepy as cb
        >>> cube = lambda x: (x * x * x).sum()
        >>> cb.grad(cube)(cb.tensor([1.0, 2.0]))
        tensor([ 3., 12.])
        >>> cb.grad(lambda x: cb.grad(cube)(x).sum())(cb.tensor([1.0, 2.0]))
        tensor([ 6., 12.])
    """
    both = value_and_grad(function, argnums, has_aux)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return run


def by_values(
    result: Tensor, wanted: Sequence[Value], gradient: Any, *, create_graph: bool
) -> list[Tensor]:
    """The gradients of a result by values; zeros where it does not depend on them."""
    made: dict[Value, Any] = {}
    if result.requires_grad:
        seeds = [(result.value, result._seed(gradient))]
        made = walk_back(
            seeds, wanted, _tensor_of, create_graph=create_graph, retain_graph=create_graph
        )
    return [made[v] if v in made else _tensor_of(v).detach() * 0 for v in wanted]


def through_formula(
    formula: Callable[..., Sequence[Tensor]], inputs: Sequence[Any], grads: Sequence[Any]
) -> list[Any]:
    """The gradients by inputs of a formula in ops of tensors: computed again, and walked back.

    Args:
        formula: gives tensors, of tensors.
        inputs: what it is given; None for what is absent or has no gradient.
        grads: the gradients by its results, None for those that have none.

    Returns:
        For each input its gradient, None where it is None.
    """
    attached = mode.enabled
    leaves: list[Tensor] = []
    given = [None if x is None else leaf_of(leaves, x) for x in inputs]
    with enable_grad():
        parts = [
            (y * g).sum() for y, g in zip(formula(*given), grads, strict=True) if g is not None
        ]
        total = functools.reduce(lambda a, b: a + b, parts)
    found = iter(by_values(total, [leaf.value for leaf in leaves], None, create_graph=attached))
    return [None if x is None else next(found) for x in inputs]


def _tensor_of(value: Value) -> Tensor:
    found = Tensor.__new__(Tensor)
    found.value = value
    return found


def _next_of(order: Iterator[Any], value: Any) -> Any:
    return next(order)


def leaf_of(found: list[Tensor], value: Any) -> Tensor:
    """An argument as something by which there is a gradient: what it was computed from outside
    stays known.
    """
    given = value if isinstance(value, Tensor) else tensor(value)
    if given.requires_grad and mode.enabled:
        leaf = given.view(given.shape)
    else:
        leaf = given.detach().requires_grad_()
    found.append(leaf)
    return leaf


def mapped(function: Callable[[Any], Any], form: Any) -> Any:
    """A tensor, or a list, tuple or dict of such in the same form, with a function on each."""
    if isinstance(form, dict):
        made = {key: mapped(function, value) for key, value in form.items()}
        return OrderedDict(made) if type(form) is OrderedDict else made
    if isinstance(form, (list, tuple)) and not all(isinstance(v, (int, float)) for v in form):
        parts = [mapped(function, value) for value in form]
        return type(form)(*parts) if hasattr(form, "_fields") else type(form)(parts)
    return function(form)


def grad_of(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of tensors that were computed, by tensors that they were computed from, as
    `torch.autograd.grad` gives them; no `grad` is touched.

    Args:
        outputs: a tensor or several, whose sum counts.
        inputs: a tensor or several that need gradients: leaves, or what was computed on the way.
        grad_outputs: the gradient by each output; None where it is one number.
        retain_graph: whether the graph can be walked again; with `create_graph` it can.
        create_graph: let the gradients have gradients themselves.
        allow_unused: None for an input that no output depends on; else that is an error.

    Raises:
        GradientError: an output without a gradient, or an input that is not used.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0], requires_grad=True)
        >>> (g,) = cb.grad_of((x * x * x).sum(), x, create_graph=True)
        >>> g.sum().backward()
        >>> g.tolist(), x.grad.tolist()
        ([3.0, 12.0], [6.0, 12.0])
    """
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    wanted = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    several = isinstance(grad_outputs, (tuple, list))
    seeds = list(grad_outputs) if several else [grad_outputs] * len(roots)
    if len(seeds) != len(roots):
        raise ArgumentError(f"{len(roots)} outputs have {len(seeds)} grad_outputs")
    found = walk_back(
        [(t.value, t._seed(g)) for t, g in zip(roots, seeds, strict=True)],
        [t.value for t in wanted],
        _tensor_of,
        create_graph=create_graph,
        retain_graph=create_graph if retain_graph is None else retain_graph,
    )
    given = tuple([found.get(t.value) for t in wanted])
    if not allow_unused and None in [None if g is None else 0 for g in given]:
        n = next(n for n, g in enumerate(given) if g is None)
        raise GradientError(
            f"no output depends on input {n} of shape {wanted[n].shape}",
            hint="allow_unused=True gives None for it",
        )
    return given
