"""`Optimizer`: what all optimizers share: groups of parameters, states, the step over all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from cubepy.compiler.reads import contents
from cubepy.errors import ArgumentError, FileFormatError, LaunchError
from cubepy.kernels.entry.options import shown
from cubepy.lang.dtypes import f64
from cubepy.nn import arguments
from cubepy.nn.hooks import HookedSteps, hooked
from cubepy.runtime import memory
from cubepy.runtime.device import use
from cubepy.tensor import Tensor, apply, as_tensor, enable_grad, no_grad
from cubepy.tensor.control.repeated import Often
from cubepy.tensor.program.observe import computed
from cubepy.tensor.storage import HOST

HOW = "foreach", "fused", "capturable", "differentiable"


class Optimizer(HookedSteps):
    """Base of all optimizers; a subclass says which op makes a step, and of which numbers.

    Learning rates and other numbers of a group are read at each step: whoever changes
    `optimizer.param_groups[0]["lr"]` changes the next step, and nothing is compiled for it.

    Args:
        params: tensors that need gradients, (name, tensor) pairs, or groups: dicts with `params`
            and the options that differ from `defaults`.
        defaults: options of groups that do not say them.
        how: PyTorch's `foreach`, `fused` and `capturable`, which change nothing: a step is one
            launch for a parameter, and part of programs, either way.

    Attributes:
        param_groups: a dict for each group: its `params` and options.
        state: by parameter, its states by name: tensors, and the number of steps.

    Raises:
        ArgumentError: no parameters, or something else than tensors.
        LaunchError: a parameter that is in two groups.

    Example:
        >>> from cubepy import nn
        >>> body, head = nn.Linear(2, 2), nn.Linear(2, 1)
        >>> optimizer = nn.optim.Adam(
        ...     [{"params": body.parameters(), "lr": 1e-4}, {"params": head.parameters()}], lr=1e-2
        ... )
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.0001, 0.01]
    """

    def __init__(
        self, params: Any, defaults: Mapping[str, Any], how: Mapping[str, bool | None] | None = None
    ) -> None:
        self._check_how(how or {})
        self.defaults = dict(defaults)
        self.state: dict[Tensor, dict[str, Any]] = {}
        self.param_groups: list[dict[str, Any]] = []
        self._often = Often(self._steps)
        self._seen: set[tuple[bool, ...]] = set()
        self._parted = False
        super().__init__()
        if isinstance(params, Tensor) or not isinstance(params, Iterable):
            raise ArgumentError(
                f"an optimizer takes a list of parameters, not {shown(params)}",
                hint="give model.parameters(), or [x] for one tensor",
            )
        given = list(params)
        if not given:
            raise ArgumentError("an optimizer got no parameters")
        groups = given if isinstance(given[0], Mapping) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Train more parameters, with options of their own.

        Args:
            param_group: `params`, and the options that differ from the optimizer's defaults.
        """
        if not isinstance(param_group, Mapping) or "params" not in param_group:
            raise ArgumentError(
                f"a group of parameters is a dict with 'params', not {shown(param_group)}"
            )
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for p in params:
            if not isinstance(p, Tensor):
                raise ArgumentError(f"an optimizer trains tensors, not {shown(p)}")
            if not p.is_leaf:
                raise ArgumentError("an optimizer trains leaves; this tensor was computed")
            if id(p) in known:
                raise LaunchError("a parameter is in two groups, or twice in one")
            known.add(id(p))
        group = {**self.defaults, **param_group, "params": params}
        self.check(group)
        self.param_groups.append(group)

    def _check_how(self, how: Mapping[str, bool | None]) -> None:
        """Arguments that say how PyTorch makes a step.

        Raises:
            TypeError: other names.
            ArgumentError: steps through which gradients shall go.
        """
        for name, value in how.items():
            if name not in HOW:
                raise TypeError(f"{type(self).__name__} has no argument {name!r}")
            if arguments.flag(name, bool(value)) and name == "differentiable":
                raise ArgumentError(
                    "no gradients go through the step of an optimizer",
                    hint="cb.grad gives gradients that have gradients: write p - lr * g",
                )

    def check(self, group: dict[str, Any]) -> None:
        """Look at the options of a new group."""
        arguments.number("lr", group["lr"], 0)
        arguments.number("weight_decay", group.get("weight_decay", 0), 0)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = filled(p.shape, p)

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if "step" in cls.__dict__:
            cls.step = hooked(cls.step)  # type: ignore[method-assign]

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient by it.

        Args:
            closure: computes the loss and its gradients first.

        Returns:
            What `closure` gave.
        """
        loss = None
        if closure is not None:
            if not callable(closure):
                raise ArgumentError(
                    f"closure is a function that gives a loss, not {shown(closure)}"
                )
            with enable_grad():
                loss = closure()
        with no_grad():
            self._often()
        return loss

    def _steps(self) -> None:
        """A step of all parameters."""
        stepping = [p.grad is not None for group in self.param_groups for p in group["params"]]
        if any(stepping):
            self._seen.add(tuple(stepping))
            self._parted = self._parted or len(self._seen) > 1
        for group in self.param_groups:
            numbers: dict[Any, Any] = {}
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, self.state.setdefault(p, {}), group, numbers)

    def _op(self, group: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
        """What a step of a group is: an op of `cubepy.tensor.ops.updates` and the names of the
        states that it takes and gives. Another pair is another program: it must be the same object
        as long as it is equal.
        """
        raise NotImplementedError

    def _first(self, group: dict[str, Any], name: str) -> float:
        """What a state begins with."""
        return 0.0

    def _values(self, group: dict[str, Any], state: dict[str, Any]) -> tuple[float, ...]:
        """The numbers that the op takes, for a parameter of these states."""
        raise NotImplementedError

    def _advance(self, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Count a step, where steps are counted."""

    def _states(self, group: dict[str, Any], p: Tensor) -> tuple[str, ...]:
        """The names of a parameter's states that are tensors; the others are numbers."""
        return self._op(group)[1]

    def __cubepy_reads__(self, reads: Any) -> None:
        """What decides which ops a step has; numbers are read in every step."""
        reads.note("attribute", self, "param_groups", self.param_groups)
        reads.note("contents", self.param_groups, "", contents(self.param_groups))
        reads.note("attribute", self, "_parted", self._parted)
        for name in ("_before", "_behind"):
            hooks = getattr(self, name)
            reads.note("contents", hooks, "", contents(hooks))
        reads.note("attribute", self, "state", self.state)
        reads.note("contents", self.state, "", contents(self.state))
        ops = _Ops(self)
        for n, group in enumerate(self.param_groups):
            reads.note("item", ops, n, ops[n])
            reads.note("item", group, "params", group["params"])
            reads.inside(group["params"])
            for p in group["params"]:
                own = self.state.get(p, {})
                if not own.keys() >= set(
                    self._states(group, p)
                ):  # a step that makes some is not like others
                    reads.note("contents", own, "", contents(own))
                for key, value in own.items():
                    if isinstance(value, Tensor):
                        reads.note("item", own, key, value)

    def _update(
        self, p: Any, state: dict[str, Any], group: dict[str, Any], numbers: dict[Any, Any]
    ) -> None:
        """One launch: a parameter that has a gradient, and its states, get their next values.

        Args:
            p: the parameter.
            state: its states; empty before the first step.
            group: the options.
            numbers: of this step, for all parameters that have the same.
        """
        op, names = self._op(group)
        given = self._numbers(p, state, group, numbers)
        for name in names:
            if name not in state:
                state[name] = filled(p.shape, p, self._first(group, name))
        new, *states = apply(op, given, p, gradient(p), *[state[name] for name in names])
        p.assign_(new)
        for name, value in zip(names, states, strict=True):
            state[name].assign_(value)

    def _numbers(
        self, p: Any, state: dict[str, Any], group: dict[str, Any], numbers: dict[Any, Any]
    ) -> Tensor:
        """Count a step of a parameter, and give its numbers as a tensor beside it; arguments are
        those of `_update`.
        """
        self._advance(state, group)
        values = self._values(group, state)
        key = values, p.dtype, p.device, self._own(p, state)
        found = numbers.get(key)
        if found is None:
            wide = np.dtype(np.float64 if p.dtype is f64 else np.float32)
            sharing: list[dict[str, Any]] = []

            def again() -> np.ndarray:
                for own in sharing:
                    self._advance(own, group)
                return np.array(self._values(group, sharing[0]), wide)

            array = np.array(values, wide)
            made = computed(again, array)
            made = _on_device(array, p) if made is None else made
            found = numbers[key] = made, sharing
        given, sharing = found
        sharing.append(state)
        return given  # type: ignore[no-any-return]

    def _own(self, p: Any, state: dict[str, Any]) -> int:
        """What tells a parameter whose numbers are its own: where some have no gradient at times,
        steps that are equal now may differ in a later call of a program.
        """
        return id(p) if self._parted and "step" in state else 0

    def _scalars(
        self, p: Any, state: dict[str, Any], group: dict[str, Any], numbers: dict[Any, Any]
    ) -> Sequence[Any]:
        """The same, each by itself, so that ops of tensors on any device take them: floats, and in
        a program numbers that are computed again in every call.
        """
        self._advance(state, group)
        values = self._values(group, state)
        key = "each", values, p.dtype, p.device, self._own(p, state)
        found = numbers.get(key)
        if found is None:
            wide = np.dtype(np.float64 if p.dtype is f64 else np.float32)
            sharing: list[dict[str, Any]] = []
            latest, asked, calls = list(values), [0] * len(values), 0

            def again(n: int) -> np.ndarray:
                """The first that is asked for in a call advances; some may be asked for by none."""
                nonlocal calls
                asked[n] += 1
                if asked[n] > calls:
                    calls = asked[n]
                    for own in sharing:
                        self._advance(own, group)
                    latest[:] = self._values(group, sharing[0])
                return np.array(latest[n], wide)

            each = enumerate(values)
            made = [computed(partial(again, n), np.array(value, wide)) for n, value in each]
            found = numbers[key] = values if made[0] is None else made, sharing
        found[1].append(state)
        return found[0]  # type: ignore[no-any-return]

    # State

    def state_dict(self) -> dict[str, Any]:
        """States and options, with parameters as numbers; tensors are what they are now, whatever
        steps follow.
        """
        self._state_hooked("before saving")
        numbers = {id(p): n for n, p in enumerate(self._params())}
        state = {
            numbers[id(p)]: {k: v.detach() if isinstance(v, Tensor) else v for k, v in own.items()}
            for p, own in self.state.items()
        }
        groups = [
            {**group, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        return self._state_hooked("saved", {"state": state, "param_groups": groups})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where another optimizer of such parameters was.

        Raises:
            ArgumentError: it is no state of an optimizer.
            FileFormatError: other groups than this optimizer's.
        """
        if isinstance(state_dict, Mapping):
            state_dict = self._state_hooked("before loading", dict(state_dict))
        whole = isinstance(state_dict, Mapping) and {"state", "param_groups"} <= state_dict.keys()
        if not whole:
            raise ArgumentError(
                f"the state of an optimizer is what state_dict() gives, not {shown(state_dict)}"
            )
        groups = state_dict["param_groups"]
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            raise FileFormatError("the state belongs to other groups of parameters")
        params = dict(zip([n for g in groups for n in g["params"]], self._params(), strict=True))
        self.param_groups = [
            {**own, **{key: _as_option(value) for key, value in group.items()}, **_params_of(own)}
            for group, own in zip(groups, self.param_groups, strict=True)
        ]
        group_of = {id(p): group for group in self.param_groups for p in group["params"]}
        self.state = {
            params[n]: self._loaded(own, group_of[id(params[n])], params[n])
            for n, own in state_dict["state"].items()
        }
        self._state_hooked("loaded")

    def _loaded(self, state: Mapping[str, Any], group: dict[str, Any], p: Tensor) -> dict[str, Any]:
        """A parameter's states that were loaded: tensors of its own, beside it, and numbers."""
        names = self._states(group, p)
        return {
            key: _as_state(value, p) if key in names else _as_option(value)
            for key, value in state.items()
            if value is not None
        }

    def _params(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for n, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {n}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


Optimizer.step = hooked(Optimizer.step)  # type: ignore[method-assign]


class _Ops:
    """What a step of each group is, as an item by the group's number."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def __getitem__(self, n: int) -> tuple[str, tuple[str, ...]]:
        return self.optimizer._op(self.optimizer.param_groups[n])


def filled(shape: tuple[int, ...], p: Tensor, value: float = 0.0) -> Tensor:
    """A tensor of a parameter's dtype and device, all of one value."""
    with use(p.device):
        made: Tensor = apply("full", shape=shape, value=float(value), dtype=p.dtype.name)
    return made


def _on_device(array: np.ndarray, p: Tensor) -> Tensor:
    """An array beside a parameter; on the host in memory that is aligned as that of results, since
    replay tells others apart.
    """
    made = memory.empty(array.shape, array.dtype, HOST)
    made[...] = array
    return as_tensor(made).to(p.device)


def gradient(p: Tensor) -> Tensor:
    """A parameter's gradient in its dtype."""
    grad = p.grad
    return grad if grad.dtype is p.dtype else grad.astype(p.dtype)


def _as_state(value: Any, p: Tensor) -> Tensor:
    """A state that was loaded: a tensor of its own, beside the parameter."""
    found = as_tensor(value).astype(p.dtype).to(p.device).detach()
    return found if isinstance(value, Tensor) else as_tensor(found.numpy().copy()).to(p.device)


def _as_option(value: Any) -> Any:
    """An option or count that was loaded: a number, where a tensor or array of one is given."""
    if getattr(value, "shape", None) != ():
        return value
    number = float(value)
    return int(number) if number.is_integer() else number


def _params_of(group: dict[str, Any]) -> dict[str, Any]:
    return {"params": group["params"]}
