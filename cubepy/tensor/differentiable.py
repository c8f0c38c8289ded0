"""What tensors have for gradients, and what gives them other values: both are about which value a
handle holds.
"""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, GradientError, ShapeError
from cubepy.lang.dtypes import DType, bool_
from cubepy.runtime import recording
from cubepy.runtime.replay.hosted import HOSTED
from cubepy.tensor.custom import hooks
from cubepy.tensor.gradients.engine import walk_back
from cubepy.tensor.modes import mode
from cubepy.tensor.program.observe import blocks, exchanges, gradient, same
from cubepy.tensor.program.plans.steady import changed, exchange
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Handle, Value, gradient_of, located, outside


class Differentiable(Handle):
    """What `Tensor` inherits: `requires_grad`, `grad`, `backward`, `detach`, `assign_`."""

    __slots__ = ()

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        HOSTED.add(cls)

    def _of_value(self, value: Value) -> Any:
        """A tensor of a value."""
        raise NotImplementedError

    def _like(self, data: Any) -> Any:
        """Data as a tensor."""
        raise NotImplementedError

    def _ones(self) -> Any:
        """A tensor of ones of this shape and dtype."""
        raise NotImplementedError

    def _binary(self, op: str, other: Any) -> Any:
        """`op(self, other)`; a Python number takes the tensor's dtype."""
        raise NotImplementedError

    def __cubepy_hosted__(self) -> np.ndarray | None:
        """The array of a tensor on the host, for functions that give new arrays of what they read;
        None where what is made of it must be ops.
        """
        value = self.value
        if value.needs_grad and mode.enabled or blocks or type(value.storage) is not Dense:
            return None
        array = value.storage.array
        return array if type(array) is np.ndarray else None

    @property
    def requires_grad(self) -> bool:
        """Whether gradients by it are wanted: said of a leaf, or since it was computed from one."""
        return self.value.needs_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, wanted: bool = True) -> Any:
        """Say whether a gradient by this tensor is wanted; gives the tensor.

        Raises:
            GradientError: a tensor of integers, a packed weight, or one that was computed from
                leaves.
        """
        value = self.value
        if value.call is not None:
            if not wanted:
                raise GradientError(
                    "requires_grad is said of leaves; this tensor was computed",
                    hint="x.detach() is the same elements as a leaf",
                )
            return self
        if wanted and not self.dtype.is_float:
            raise GradientError(f"only floats have gradients, not {self.dtype.name}")
        if wanted and self.storage.kind != "dense":
            raise GradientError(
                f"a weight in {self.storage.kind} storage stays as it is and does not learn",
                hint="gradients pass through it: train adapters beside it, or the float model",
            )
        if wanted != value.needs_grad:
            recording.ask()
            try:
                value.needs_grad = bool(wanted)
                value.handle = weakref.ref(self)
            finally:
                changed((value,))
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was not computed from tensors with gradients."""
        return self.value.call is None

    @property
    def grad(self) -> Any:
        """The gradient that `backward` summed up here; None before."""
        if blocks:
            gradient(self, False)
        return gradient_of(self)

    @grad.setter
    def grad(self, grad: Any) -> None:
        if grad is not None and (not isinstance(grad, Differentiable) or grad.shape != self.shape):
            raise ShapeError(f"a gradient of a tensor of shape {self.shape} has this shape")
        if blocks:
            gradient(self, True)
        self._grad = grad

    def __copy__(self) -> Any:
        """Another handle of the same elements: a leaf of its own, if this is one."""
        value = self.value
        if value.call is None:
            return _leaf(type(self), type(value), value.storage, value.needs_grad)
        made = type(self).__new__(type(self))
        made.value = value
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        """For `copy.deepcopy` and `pickle`: elements, whether gradients are wanted, and `grad`; no
        value, which has one handle and one id.
        """
        value = self.value
        if value.call is not None:
            raise GradientError(
                "a tensor that was computed from tensors with gradients is not copied or pickled",
                hint="x.detach() is the same elements without what was before",
            )
        parts = type(self), type(value), value.storage, value.needs_grad
        own, grad = getattr(self, "__dict__", None), self.grad
        return _leaf, parts, (own, {} if grad is None else {"grad": grad.detach()})

    def detach(self) -> Any:
        """The same elements as a leaf that needs no gradient; no copy."""
        value = type(self.value)(self.value.storage)  # a number stays one
        if blocks:
            same(value, self)
        return self._of_value(value)

    def backward(
        self, gradient: Any = None, *, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Add the gradient of this number by every leaf that it depends on to the leaf's `grad`.

        Args:
            gradient: the gradient of something by this tensor; needed unless it is one number.
            retain_graph: keep what is needed to do it again.
            create_graph: let the gradients have gradients themselves.

        Raises:
            GradientError: the tensor does not depend on what has gradients, or is no single number
                and no gradient was given, or its graph is gone.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([1.0, 2.0, 3.0], requires_grad=True)
            >>> (x * x).sum().backward()
            >>> x.grad
            tensor([2., 4., 6.])
        """
        retain = retain_graph or create_graph
        seeds = [(self.value, self._seed(gradient))]
        found = walk_back(
            seeds, None, self._of_value, create_graph=create_graph, retain_graph=retain
        )
        for leaf, grad in found.items():
            handle: Any = None if leaf.handle is None else leaf.handle()
            if handle is None:
                continue
            if blocks:
                before = handle.grad
                handle.grad = grad if before is None else before + grad
            else:
                before = gradient_of(handle)
                handle._grad = grad if before is None else before + grad
            if hooks.present[0]:
                hooks.grown(handle)

    def register_hook(self, hook: Any) -> hooks.Removal:
        """Call `hook(gradient)` on every walk back that reaches this tensor, with all of the
        gradient by it: what it gives, if it is not None, is passed on instead. The result removes
        it again, when called or by `remove()`.

        Programs (`cb.jit`) have the hooks that are there when they are traced; of parameters of
        modules a later one is noticed.

        Raises:
            GradientError: no gradient by this tensor is wanted.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([1.0, 2.0], requires_grad=True)
            >>> y = x * x
            >>> handle = y.register_hook(lambda g: g * 10)
            >>> y.sum().backward()
            >>> x.grad
            tensor([20., 40.])
        """
        return hooks.hook_on(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> hooks.Removal:
        """Call `hook(tensor)` each time that `backward` has added to the `grad` of this leaf: a
        step of an optimizer for each parameter, after which its gradient is forgotten, needs no
        memory for all gradients.

        Raises:
            GradientError: no leaf that needs gradients.

        Example:
            >>> import cubepy as cb
            >>> x, seen = cb.tensor([1.0, 2.0], requires_grad=True), []
            >>> _ = x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
            >>> (x * x).sum().backward()
            >>> seen
            [[2.0, 4.0]]
        """
        return hooks.hook_after(self, hook)

    def retain_grad(self) -> None:
        """Let this tensor have its `grad` after `backward`, though it was computed; leaves do.

        Raises:
            GradientError: no gradient by this tensor is wanted.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([1.0, 2.0], requires_grad=True)
            >>> y = x * x
            >>> y.retain_grad()
            >>> (y * 3).sum().backward()
            >>> y.grad, y.retains_grad
            (tensor([3., 3.]), True)
        """
        hooks.keep(self)

    @property
    def retains_grad(self) -> bool:
        """Whether a tensor that was computed has its `grad`, by `retain_grad`."""
        return hooks.keeps(self)

    def _seed(self, gradient: Any = None) -> Any:
        """The gradient by this tensor that a walk back begins with: 1 for a single number.

        Raises:
            GradientError: the tensor does not depend on leaves that need gradients, or has several
                elements and no gradient was given.
            ShapeError: a gradient of another shape.
        """
        value = self.value
        if value.needs_grad and type(gradient) is type(self):
            mine, given = value.storage, gradient.value.storage
            if given.shape == mine.shape and given.dtype is mine.dtype:
                return gradient
        call = value.call
        if value.needs_grad and gradient is None and math.prod(self.shape) == 1:
            return self._ones()
        where = located(outside()) if call is None else call.location()
        if not self.dtype.is_float:
            raise GradientError(
                f"gradients of {self.dtype.name} do not exist: only floats have some",
                location=where,
                hint="convert what it is computed from, as in x.astype(cb.f32), not the result",
            )
        if not self.requires_grad:
            raise GradientError(
                "the tensor was not computed from tensors that need gradients",
                location=where,
                hint="say so before: cb.tensor(x, requires_grad=True), or x.requires_grad_()",
            )
        if gradient is None:
            raise GradientError(
                f"a tensor of shape {self.shape} is no single number",
                location=where,
                hint="reduce it, as in x.sum(), or give the gradient by it",
            )
        gradient = self._like(gradient)
        if gradient.shape != self.shape:
            raise ShapeError(
                f"the gradient by a tensor of shape {self.shape} has the shape {gradient.shape}"
            )
        return gradient.astype(self.dtype)

    # Other values for the same handle

    def assign_(self, other: Any) -> Any:
        """Let this tensor have the elements of another one from here on, in its own dtype; gives
        the tensor. What was computed from it keeps the elements that it had.

        A leaf that needs gradients stays one: what it is given is a new start.

        Raises:
            ShapeError: another shape, as far as it does not broadcast to this one.
            DeviceError: a tensor of another device.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([1.0, 2.0])
            >>> y = x * 10
            >>> _ = x.assign_([3.0, 4.0])
            >>> x, y
            (tensor([3., 4.]), tensor([10., 20.]))
        """
        new = self._like(other)
        if new.shape != self.shape:
            new = new.expand(self.shape)
        if new.device != self.device:
            new = new.to(self.device)
        return self._exchanged(new.astype(self.dtype))

    def _exchanged(self, new: Any) -> Any:
        """This handle with another value of the same shape and dtype."""
        before = self.value
        if blocks:
            exchanges(self)
        if not before.needs_grad or before.call is not None:
            exchange(self, new.value)
            if mode.assigned is not None and new.value.call is not None:
                mode.assigned.append(self)
        elif mode.enabled and new.value.needs_grad:
            raise GradientError(
                "a leaf that needs a gradient is changed in place by what depends on gradients",
                hint="change it within `with cb.no_grad():`, or compute a new tensor",
            )
        else:
            value = Value(new.storage)
            if blocks:
                same(value, new)
            value.needs_grad, value.handle = True, weakref.ref(self)
            exchange(self, value)
        return self

    def _in_place(self, op: str, other: Any) -> Any:
        """`self = op(self, other)` with the shape and dtype kept."""
        new = self._binary(op, other)
        if new.shape != self.shape:
            raise ShapeError(
                f"in place a tensor keeps its shape {self.shape}; the result has {new.shape}"
            )
        if new.dtype is not self.dtype:
            if loses(new.dtype, self.dtype):
                raise DTypeError(
                    f"in place a tensor keeps its dtype {self.dtype.name}; the result is "
                    f"{new.dtype.name}",
                    hint="write x = x + y instead of x += y, or convert the operand",
                )
            new = new.astype(self.dtype)
        return self._exchanged(new)


def loses(result: DType, mine: DType) -> bool:
    """Whether a result is of a wider kind than what should hold it: floats in integers, integers in
    booleans.
    """
    return result.is_float and not mine.is_float or mine is bool_ and result is not bool_


def _leaf(cls: Any, kind: type[Value], storage: Any, needs_grad: bool) -> Any:
    """A tensor of elements that come from outside."""
    made = cls.__new__(cls)
    made.value = kind(storage)
    return made.requires_grad_() if needs_grad else made
