"""Functions that are several ops, as one: outside of `cb.jit` each op costs Python and a pass over
memory, so what is called often with the same specs is a program, and its gradient another one.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.runtime import recording
from cubepy.runtime.device import Device, current, use
from cubepy.runtime.replay.standing import ONE
from cubepy.runtime.tables import room
from cubepy.tensor.array import Tensor, of_store
from cubepy.tensor.control.again import COMPOSED
from cubepy.tensor.control.repeated import (
    AFTER,
    LARGE,
    LARGE_ON_GPU,
    LIMIT,
    SMALL,
    STEPWISE,
    OneOp,
    Repeated,
    at_home,
    dense,
    lasts,
    plain,
)
from cubepy.tensor.gradients.engine import walk_back
from cubepy.tensor.gradients.functional import leaf_of
from cubepy.tensor.gradients.rules import Backward
from cubepy.tensor.modes import enable_grad, mode
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import Op, Spec
from cubepy.tensor.program.jit import Jitted
from cubepy.tensor.program.observe import blocks
from cubepy.tensor.replay import short_of
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Call, Number, Value

PLAIN = frozenset([int, float, bool, str, type(None)])


def composed(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors and options that gives a tensor, or several, and changes nothing, done
    by programs where calls of one kind come often.

    Example:
        >>> import cubepy as cb
        >>> @composed
        ... def twice(x):
        ...     return x + x
        >>> twice(cb.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """
    met: dict[Any, Any] = {}
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    changes = names.index("inplace") if "inplace" in names else sys.maxsize

    name, quick = f"{function.__module__}.{function.__qualname__}", dict[Any, Any]()

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if recording.detours or blocks:
            return function(*args, **kwargs)
        here, short = current().backend, None
        if here == "cpu":
            texts: list[Any] = [name, *kwargs]
            values: list[Any] = []
            for given in (*args, *kwargs.values()) if kwargs else args:
                if isinstance(given, Tensor):
                    value = given.value
                    store = value.storage
                    if type(store) is not Dense or store.device.backend != "cpu":
                        break
                    values.append(value)
                    texts += store.array, value.needs_grad
                else:
                    texts.append(ONE[type(given)](given) if type(given) in ONE else given)
            else:
                short = short_of[0](tuple(texts))
                done = quick.get(short)
                if done is not None:
                    return done[0](values)
        if len(args) > changes or "inplace" in kwargs:  # no value for the tensor that is given
            return function(*args, **kwargs)
        key: list[Any] = [*kwargs, len(args)]
        home, values = None, []
        for given in (*args, *kwargs.values()):
            kind = type(given)
            if isinstance(given, Tensor):
                value = given.value
                store = value.storage
                if type(store) is not Dense:
                    return function(*args, **kwargs)
                key += store.shape, store.dtype, value.needs_grad
                values.append(value)
                if type(value) is Number:
                    key.append(Number)
                elif store.device is not home:
                    if home is not None and store.device != home:
                        return function(*args, **kwargs)
                    home = store.device
            elif kind in PLAIN:
                known_by_itself = kind is not float or given and given == given
                key += (kind, given) if known_by_itself else exact(given)
            else:
                return function(*args, **kwargs)
        there = here if home is None else home.backend
        if there == STEPWISE or there == "cpu" != here:
            return function(*args, **kwargs)
        if home is not None and there != "cpu":
            key += there, home.ordinal
        found = met.get(known := tuple(key), 0)
        if type(found) is int:
            if found < AFTER:
                room(met, LIMIT)
                most = max([math.prod(v.storage.shape) for v in values], default=0)
                met[known] = found + 1 + most // (LARGE if there == "cpu" else LARGE_ON_GPU)
                return function(*args, **kwargs)
            found = met[known] = _Composed(function, args, kwargs, home or current())
        result = found(values)
        if short is not None and Number not in map(type, values) and lasts(texts):
            room(quick, LIMIT)
            kept = [t for t in texts if type(t) is not np.ndarray]  # none gets their addresses
            quick[short] = found, kept
        return result

    return call


class _Composed:
    """Calls of one kind of a function."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        home: Device,
    ) -> None:
        names, count = tuple(kwargs), len(args)
        given = (*args, *kwargs.values())
        options = [None if isinstance(a, Tensor) else a for a in given]
        tensors = [isinstance(a, Tensor) for a in given]

        def alone(*arrays: Any) -> Any:
            rest = iter(arrays)
            all_of = [next(rest) if t else o for t, o in zip(tensors, options, strict=True)]
            return function(*all_of[:count], **dict(zip(names, all_of[count:], strict=True)))

        self.function = alone
        self.forward = Jitted(alone)
        self.one: OneOp | None = None
        self.calls, self.home, self.on_gpu = 0, home, home.backend != "cpu"
        self.backward: dict[Any, Repeated] = {}

    def __call__(self, values: Sequence[Value]) -> Any:
        enabled, one = mode.enabled, self.one
        if one is not None:
            if self.on_gpu:
                stores = [at_home(v, self.home) for v in values]
            else:
                stores = [v.storage for v in values]
            result: Any = of_store(one.run(stores))
        else:
            mode.enabled = False
            try:
                result = self.forward(*[_of_value(plain(v, self.home)) for v in values])
            finally:
                mode.enabled = enabled
            self.calls += 1
            usual = type(result) is Tensor and not (self.on_gpu and Number in map(type, values))
            if self.calls == 1 and usual:
                self.one = OneOp.of(self.forward, len(values))
        if not enabled or not any(v.needs_grad for v in values):
            return result
        several = type(result) is tuple
        made = result if several else (result,)
        if not any(t.dtype.is_float for t in made):
            return result
        results = [Value(t.value.storage) for t in made]
        call = Call(COMPOSED, tuple(values), {"function": self}, results if several else ())
        for value in results:
            if value.storage.dtype.is_float:
                value.call, value.needs_grad = call, True
        found = tuple(map(_of_value, results))
        return found if several else found[0]

    def back(self, seen: Backward, grads: Sequence[Any]) -> Any:
        """The gradients by the inputs of a call, of those by its results (None: there is none)."""
        there = [g for g in grads if g is not None]
        elsewhere = any(type(g.value.storage) is not Dense for g in there)
        if mode.enabled or recording.detours or blocks or elsewhere:
            return self.through(seen.needs, seen.inputs, grads)
        there = [
            dense(g) if self.on_gpu or g.value.storage.array.nbytes <= SMALL else g for g in there
        ]
        found = self.backward_of(seen.needs, grads)
        return found([t.value for t in seen.inputs], there)  # type: ignore[no-any-return]

    def backward_of(self, needs: tuple[bool, ...], grads: Sequence[Any]) -> Repeated:
        """What gives gradients of the inputs of a call, and of those gradients by its results that
        are there.
        """
        absent = tuple([g is None for g in grads])
        found = self.backward.get((needs, absent))
        if found is None:
            count = len(needs)

            def back(*given: Any) -> tuple[Any, ...]:
                rest = iter(given[count:])
                of_results = [None if none else next(rest) for none in absent]
                return self.through(needs, given[:count], of_results)

            found = Repeated(back, count + absent.count(False), count, self.home)
            self.backward[needs, absent] = found
        return found

    def through(
        self, needs: Sequence[bool], inputs: Sequence[Any], grads: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The same, op by op."""
        attached, leaves = mode.enabled, list[Tensor]()
        given = [leaf_of(leaves, x) if need else x for x, need in zip(inputs, needs, strict=True)]
        with use(self.home), enable_grad():  # what is made of nothing is made there
            result = self.function(*given)
        made = result if type(result) is tuple else (result,)
        seeds = [
            (t.value, g)
            for t, g in zip(made, grads, strict=True)
            if g is not None and t.requires_grad
        ]
        if not seeds:
            return (None,) * len(given)
        found = walk_back(
            seeds,
            [leaf.value for leaf in leaves],
            _of_value,
            create_graph=attached,
            retain_graph=attached,
        )
        return tuple([found.get(x.value) if n else None for x, n in zip(given, needs, strict=True)])


def _of_value(value: Value) -> Tensor:
    made = Tensor.__new__(Tensor)
    made.value = value
    return made


def _no_rule(*specs: Spec, **attrs: Any) -> Spec:
    raise AssertionError("only calls that gradients remember are composed")


def _back(seen: Backward, *grads: Any) -> Any:
    return seen.attrs["function"].back(seen, grads)


OPS[COMPOSED] = Op(COMPOSED, "opaque", _no_rule, _no_rule, vjp=_back)
