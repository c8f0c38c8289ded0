"""Gradients beside differences of values, as `torch.autograd.gradcheck` compares them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, GradcheckError
from cubepy.lang.dtypes import f64
from cubepy.tensor import Tensor, enable_grad, tensor
from cubepy.tensor.gradients.engine import walk_back

Function = Callable[..., Any]


def gradcheck(
    func: Function,
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = False,
) -> bool:
    """Compare the gradients of a function with central differences of its values.

    All floats among the results are looked at, by all inputs that need gradients. That gradients
    are the same when they are computed again, and 0 of nothing, is looked at, too.

    Args:
        func: gives a tensor or several, of `inputs`; deterministic.
        inputs: a tensor or several arguments, of which those that need gradients are moved. They
            should be f64, where tolerances are meant to be.
        eps: how far an element is moved, to both sides.
        atol: how far a gradient may be off, plus
        rtol: times the difference.
        raise_exception: raise where they differ, instead of giving False.
        nondet_tol: how far gradients that are computed twice may lie apart.
        fast_mode: move all elements of an input at once, in a random direction, and look at every
            element only where that shows something.

    Returns:
        Whether they agree.

    Raises:
        GradcheckError: they do not; says which element of which result and input, what was
            expected (the difference) and what came (the gradient).
        ArgumentError: no input needs a gradient.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([[1.0, 2.0]], dtype="f64", requires_grad=True)
        >>> gradcheck(lambda x, n: (x @ x.T) ** n, (x, 3))
        True
    """
    checked = _Checked(func, inputs, eps, atol, rtol)
    try:
        with enable_grad():
            if not fast_mode or checked.directions_differ():
                checked.elements()
            checked.of_nothing()
            checked.again(nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Function,
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    fast_mode: bool = False,
) -> bool:
    """Compare second derivatives of a function with differences of its gradients.

    What is checked is the function that gives the gradients by `inputs` that need some, of the
    inputs and of the gradients by the results.

    Args:
        func, inputs: as for `gradcheck`.
        grad_outputs: the gradients by the floats among the results that need some; random by
            default.
        eps, atol, rtol, raise_exception, nondet_tol, fast_mode: as for `gradcheck`.

    Returns:
        Whether they agree.

    Raises:
        GradcheckError: they do not.
        ArgumentError: no input needs a gradient, or the number of `grad_outputs` is another one.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([0.5, -1.0], dtype="f64", requires_grad=True)
        >>> gradgradcheck(lambda x: x.sin() * x, [x])
        True
    """
    given = _several(inputs)
    with enable_grad():
        results = _differentiable(func(*given))
        if grad_outputs is None:
            rng = np.random.default_rng(0)
            seeds = [_tensor_like(y, rng.uniform(-1, 1, y.shape)) for y in results]
        else:
            seeds = [g.detach().requires_grad_() for g in _several(grad_outputs)]
    if len(seeds) != len(results):
        raise ArgumentError(f"{len(seeds)} gradients for {len(results)} results that need some")

    def gradients(*both: Any) -> list[Tensor]:
        args = both[: len(given)]
        made = _differentiable(func(*args))
        wanted = [x for x in args if isinstance(x, Tensor) and x.requires_grad]
        return _back(made, both[len(given) :], wanted, create_graph=True)

    return gradcheck(
        gradients,
        (*given, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        fast_mode=fast_mode,
    )


class _Checked:
    """A function, its inputs and results, and how they are compared.

    Attributes:
        moved: the positions of the inputs that need gradients.
        results: the floats among the results, with their graph.
    """

    def __init__(self, func: Function, inputs: Any, eps: float, atol: float, rtol: float) -> None:
        self.func, self.eps, self.atol, self.rtol = func, eps, atol, rtol
        self.inputs = _several(inputs)
        self.moved = [
            n for n, x in enumerate(self.inputs) if isinstance(x, Tensor) and x.requires_grad
        ]
        if not self.moved:
            raise ArgumentError(
                "no input needs a gradient", hint="cb.tensor(..., requires_grad=True)"
            )
        narrow = [n for n in self.moved if self.inputs[n].dtype is not f64]
        if narrow:
            warnings.warn(f"the inputs {narrow} are not f64: differences are rough", stacklevel=3)
        self.leaves = [
            x.detach().requires_grad_() if n in self.moved else x for n, x in enumerate(self.inputs)
        ]
        self.wanted = [self.leaves[n] for n in self.moved]
        with enable_grad():
            self.results = _floats(func(*self.leaves))
        self.random = np.random.default_rng(0)

    def at(self, n: int, array: np.ndarray) -> list[np.ndarray]:
        """The results where input `n` has other elements."""
        given = list(self.leaves)
        given[n] = _tensor_like(self.inputs[n], array)
        return [y.numpy().astype(np.float64) for y in _floats(self.func(*given))]

    def difference(self, n: int, step: np.ndarray) -> list[np.ndarray]:
        """How much the results change with input `n` along a direction."""
        x = self.inputs[n].numpy()
        ahead, behind = self.at(n, x + self.eps * step), self.at(n, x - self.eps * step)
        return [(a - b) / (2 * self.eps) for a, b in zip(ahead, behind, strict=True)]

    def back(self, seeds: list[np.ndarray]) -> list[np.ndarray]:
        """The gradients by the inputs, of gradients by the results."""
        pairs = [(y, g) for y, g in zip(self.results, seeds, strict=True) if y.requires_grad]
        given = [_tensor_like(y, g).detach() for y, g in pairs]
        made = _back([y for y, _ in pairs], given, self.wanted)
        return [g.numpy().astype(np.float64) for g in made]

    def directions_differ(self) -> bool:
        """Whether the change along a random direction is not what gradients say."""
        seeds = [self.random.uniform(0.5, 1.5, y.shape) for y in self.results]
        grads = self.back(seeds)
        for n, grad in zip(self.moved, grads, strict=True):
            step = self.random.uniform(-1, 1, grad.shape)
            parts = zip(self.difference(n, step), seeds, strict=True)
            want, got = sum(float((d * s).sum()) for d, s in parts), float((grad * step).sum())
            if not self.close(got, want):
                return True
        return False

    def elements(self) -> None:
        """Compare all elements of all Jacobians; raise where some differ."""
        numerical = self.numerical()
        for i, y in enumerate(self.results):
            analytical = self.analytical(i)
            for k, n in enumerate(self.moved):
                wrong = ~self.close(analytical[k], numerical[i][k])
                if wrong.any():
                    raise _mismatch(i, n, y, self.inputs[n], wrong, analytical[k], numerical[i][k])

    def numerical(self) -> list[list[np.ndarray]]:
        """By result and input: the differences, a row for each element of the result."""
        found: list[list[np.ndarray]] = [
            [np.zeros((y.size, self.inputs[n].size)) for n in self.moved] for y in self.results
        ]
        for k, n in enumerate(self.moved):
            for column, at in enumerate(np.ndindex(*self.inputs[n].shape)):
                step = np.zeros(self.inputs[n].shape)
                step[at] = 1
                for i, change in enumerate(self.difference(n, step)):
                    found[i][k][:, column] = change.reshape(-1)
        return found

    def analytical(self, i: int) -> list[np.ndarray]:
        """By input: the gradients of result `i`, a row for each element."""
        found = [np.zeros((self.results[i].size, x.size)) for x in self.wanted]
        seeds = [np.zeros(y.shape) for y in self.results]
        for row, at in enumerate(np.ndindex(*self.results[i].shape)):
            seeds[i][at] = 1
            for k, grad in enumerate(self.back(seeds)):
                found[k][row] = grad.reshape(-1)
            seeds[i][at] = 0
        return found

    def close(self, got: Any, want: Any) -> Any:
        """Where two agree; NaN agrees with NaN only."""
        return np.isclose(got, want, self.rtol, self.atol, equal_nan=True)

    def of_nothing(self) -> None:
        """A gradient must be made of the gradients by the results: of zeros it is zeros."""
        for n, grad in zip(self.moved, self.back([np.zeros(y.shape) for y in self.results])):
            if np.any(grad != 0):
                raise GradcheckError(
                    f"the gradient by input {n} is not made of the gradients by the results: of "
                    f"zeros it is\n{grad}"
                )

    def again(self, tolerance: float) -> None:
        """Gradients that are computed twice must be equal."""
        seeds = [self.random.uniform(-1, 1, y.shape) for y in self.results]
        for n, a, b in zip(self.moved, self.back(seeds), self.back(seeds), strict=True):
            off = float(np.abs(a - b).max(initial=0.0))
            if off > tolerance:
                raise GradcheckError(
                    f"the gradient by input {n} is not the same when it is computed again: it is "
                    f"up to {off:.3g} off",
                    hint="nondet_tol= allows for it",
                )


def _mismatch(
    i: int, n: int, y: Tensor, x: Tensor, wrong: np.ndarray, got: np.ndarray, want: np.ndarray
) -> GradcheckError:
    row, column = (int(a[0]) for a in np.nonzero(wrong))
    of = tuple(int(k) for k in np.unravel_index(row, y.shape))
    by = tuple(int(k) for k in np.unravel_index(column, x.shape))
    return GradcheckError(
        f"Jacobian mismatch for output {i} with respect to input {n}: for element {of} of the "
        f"output by element {by} of the input expected {want[row, column]:.9g}, got "
        f"{got[row, column]:.9g}; {wrong.sum()} of {wrong.size} elements differ\n"
        f"numerical (rows: elements of the output):\n{want}\nanalytical:\n{got}"
    )


def _several(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _floats(results: Any) -> list[Tensor]:
    return [y for y in _several(results) if isinstance(y, Tensor) and y.dtype.is_float]


def _differentiable(results: Any) -> list[Tensor]:
    return [y for y in _floats(results) if y.requires_grad]


def _tensor_like(x: Tensor, array: np.ndarray) -> Tensor:
    """A leaf of x's dtype and device with other elements."""
    return tensor(array).to(x.dtype).to(x.device).requires_grad_()


def _back(
    results: Sequence[Tensor],
    grads: Sequence[Tensor],
    wanted: Sequence[Tensor],
    create_graph: bool = False,
) -> list[Tensor]:
    """The gradients by what is wanted; zeros where no result depends on it."""
    seeds = [(y.value, y._seed(g)) for y, g in zip(results, grads, strict=True)]
    values = [x.value for x in wanted]
    found: dict[Any, Any] = {}
    if seeds:
        tensor_of = results[0]._of_value
        found = walk_back(seeds, values, tensor_of, create_graph=create_graph, retain_graph=True)
    return [found[x.value] if x.value in found else x.detach() * 0 for x in wanted]
