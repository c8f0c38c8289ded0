"""L-BFGS: steps by the curvature that the last gradients show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cubepy.errors import ArgumentError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments
from cubepy.nn.optim.line_search import Point, strong_wolfe
from cubepy.nn.optim.optimizer import Optimizer
from cubepy.tensor import Tensor, enable_grad, no_grad
from cubepy.tensor.namespace import concat, zeros

CURVED = 1e-10  # below it a pair of step and gradients says nothing


class LBFGS(Optimizer):
    """L-BFGS (Nocedal, 1980; Liu and Nocedal, 1989): a direction from the last `history_size` steps
    and changes of the gradient, and a step along it of a fixed length or, with "strong_wolfe", one
    that a line search finds (Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6).

    A step asks for the loss several times and looks at it, so it is no part of a program; the
    closure may call one.

    Args:
        params: see `Optimizer`; one group.
        lr: length of a step, or of the first one that a line search tries.
        max_iter: directions in a call of `step`.
        max_eval: calls of the closure in one of `step`; 1.25 times `max_iter` if None.
        tolerance_grad: gradients that are at most this end it.
        tolerance_change: steps and changes of the loss below this end it.
        history_size: how many steps are kept.
        line_search_fn: None or "strong_wolfe".

    Raises:
        ArgumentError: another line search, or a call of `step` without a closure.
        LaunchError: more than one group.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([-1.0, 2.0])
        >>> optimizer = nn.optim.LBFGS([x], line_search_fn="strong_wolfe")
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2
        ...     loss.backward()
        ...     return loss
        >>> for _ in range(3):
        ...     loss = optimizer.step(closure)
        >>> x.detach().numpy().round(2)
        array([1., 1.], dtype=float32)
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        options = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, options)

    def check(self, group: dict[str, Any]) -> None:
        """There is one group."""
        super().check(group)
        for name in ("max_iter", "max_eval", "history_size"):
            arguments.size(name, group[name], 1)
        for name in ("tolerance_grad", "tolerance_change"):
            arguments.number(name, group[name], 0)
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ArgumentError(
                f"line_search_fn is None or 'strong_wolfe', not {shown(group['line_search_fn'])}"
            )
        if self.param_groups:
            raise LaunchError("LBFGS trains one group of parameters")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Go up to `max_iter` steps.

        Args:
            closure: forgets the gradients, computes the loss and its gradients, gives the loss.

        Returns:
            The loss before.
        """
        if not callable(closure):
            raise ArgumentError(
                f"LBFGS needs a closure that gives the loss, not {shown(closure)}",
                hint="optimizer.step(closure), where closure() calls zero_grad, backward and "
                "returns the loss",
            )
        group, params = self.param_groups[0], self._params()
        state = self.state.setdefault(params[0], {"func_evals": 0, "n_iter": 0})
        evaluations = 0

        def measured() -> tuple[Any, Point]:
            nonlocal evaluations
            evaluations += 1
            with enable_grad():
                loss = closure()
            return loss, Point(0.0, float(loss), self._gradient())

        with no_grad():
            first, here = measured()
            if not _largest(here.gradient) <= group["tolerance_grad"]:
                self._descend(group, state, here, measured, lambda: evaluations)
        state["func_evals"] += evaluations
        return first

    def _descend(
        self,
        group: dict[str, Any],
        state: dict[str, Any],
        here: Point,
        measured: Callable[[], tuple[Any, Point]],
        count: Callable[[], int],
    ) -> None:
        """Steps from a point until one of the limits is met."""
        params, least = self._params(), group["tolerance_change"]
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, here.gradient, group["history_size"])
            state["prev_flat_grad"], state["prev_loss"] = here.gradient, here.loss
            first = state["n_iter"] == 1
            t = group["lr"] * (min(1.0, 1 / float(abs(here.gradient).sum())) if first else 1.0)
            slope = _dot(here.gradient, d)
            state["d"], state["t"] = d, t
            if slope > -least:
                return
            before, loss = concat([p.detach().reshape(-1) for p in params]), here.loss

            def along(t: float, d: Tensor = d, before: Tensor = before) -> Point:
                _spread(before + d * t, params)
                return measured()[1].at(t, d)

            if group["line_search_fn"] is not None:
                left = group["max_eval"] - count()
                here = strong_wolfe(along, t, d, here.at(0.0, d), left, least)
                state["t"] = t = here.t
                _spread(before + d * t, params)
            else:
                _spread(before + d * t, params)
                if n != group["max_iter"]:
                    here = measured()[1]
            if n == group["max_iter"] or count() >= group["max_eval"]:
                return
            if _largest(here.gradient) <= group["tolerance_grad"]:
                return
            if _largest(d) * abs(t) <= least or abs(here.loss - loss) < least:
                return

    def _direction(self, state: dict[str, Any], gradient: Tensor, most: int) -> Tensor:
        """Minus the inverse of the curvature times the gradient, by the two loops of Nocedal."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -gradient
        changes, steps, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        change, step = gradient - state["prev_flat_grad"], state["d"] * state["t"]
        curvature = _dot(change, step)
        if curvature > CURVED:
            for kept, new in ((changes, change), (steps, step), (inverses, 1 / curvature)):
                del kept[: max(0, len(kept) + 1 - most)]
                kept.append(new)
            state["H_diag"] = curvature / _dot(change, change)
        q, shares = -gradient, []
        for y, s, inverse in zip(changes[::-1], steps[::-1], inverses[::-1], strict=True):
            shares.append(_dot(s, q) * inverse)
            q = q - y * shares[-1]
        q = q * state["H_diag"]
        for y, s, inverse in zip(changes, steps, inverses, strict=True):
            q = q + s * (shares.pop() - _dot(y, q) * inverse)
        return q

    def _gradient(self) -> Tensor:
        """The gradients of all parameters as one vector; zeros where there is none."""
        return concat(
            [
                (zeros(p.size, dtype=p.dtype, device=p.device) if p.grad is None else p.grad)
                .detach()
                .reshape(-1)
                for p in self._params()
            ]
        )

    def _loaded(self, state: Mapping[str, Any], group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        """Vectors as they are; numbers as numbers."""
        found: dict[str, Any] = {}
        for key, value in state.items():
            if key in ("old_dirs", "old_stps"):
                found[key] = [_vector(one, p) for one in value or ()]
            elif key == "ro":
                found[key] = [float(one) for one in value or ()]
            elif key in ("d", "prev_flat_grad"):
                if value is not None:
                    found[key] = _vector(value, p)
            elif key != "al" and value is not None:
                found[key] = int(value) if key in ("n_iter", "func_evals") else float(value)
        return found


def _spread(vector: Tensor, params: list[Tensor]) -> None:
    """Give parameters the elements of a vector."""
    at = 0
    for p in params:
        p.assign_(vector[at : at + p.size].reshape(p.shape).astype(p.dtype))
        at += p.size


def _vector(value: Any, p: Tensor) -> Tensor:
    return concat([p.detach().reshape(-1)[:0], value])


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())


def _largest(x: Tensor) -> float:
    return float(abs(x).max())
