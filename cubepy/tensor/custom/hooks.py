"""Functions that are called with gradients on the way back: of a value that was computed, or of the
leaf that a handle is; and gradients of values that are no leaves, kept where that was asked for.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from cubepy.errors import ArgumentError, GradientError
from cubepy.kernels.entry.options import shown
from cubepy.tensor.program.watched import changed
from cubepy.tensor.value import Handle, Value

Hook = Callable[[Any], Any]
Table = dict[object, Hook]

present = [False]
"""Whether there ever was a hook: walks ask nothing else before."""
_of_values: weakref.WeakKeyDictionary[Value, Table] = weakref.WeakKeyDictionary()
_kept: weakref.WeakKeyDictionary[Value, weakref.ref[Any]] = weakref.WeakKeyDictionary()
"""The handles that want the gradients of values that were computed."""
_of_leaves: dict[tuple[int, str], Table] = {}
"""By the identity of a handle, and when they are called: "before" or "after" its gradient grows."""


class Removal:
    """Takes a hook away again: `handle()`, or `handle.remove()`."""

    __slots__ = ("key", "table")

    def __init__(self, table: dict[Any, Any], key: Any) -> None:
        self.table, self.key = table, key

    def __call__(self) -> None:
        self.table.pop(self.key, None)
        changed()

    remove = __call__


def registered(table: dict[Any, Any], hook: Any, of: str, first: bool = False) -> Removal:
    """A hook in a table, the last one or the first, and what takes it away.

    Raises:
        ArgumentError: it cannot be called.
    """
    if not callable(hook):
        raise ArgumentError(f"hook must be a function of {of}, not {shown(hook)}")
    key = object()
    others = dict(table) if first else {}
    for other in others:
        del table[other]
    table[key] = hook
    table.update(others)
    changed()
    return Removal(table, key)


def hook_on(handle: Any, hook: Hook) -> Removal:
    """Call a function with the gradient of a tensor.

    Raises:
        GradientError: no gradient by the tensor is wanted.
    """
    value: Value = handle.value
    if not value.needs_grad:
        raise GradientError(
            "a hook on a tensor that needs no gradient is never called",
            hint="x.requires_grad_() says that gradients by a leaf are wanted",
        )
    if value.call is None:
        return _on_leaf(handle, "before", hook, "(gradient)")
    present[0] = True
    return registered(_of_values.setdefault(value, {}), hook, "(gradient)")


def hook_after(handle: Any, hook: Hook) -> Removal:
    """Call a function with a leaf each time that its `grad` has grown.

    Raises:
        GradientError: no leaf that needs gradients.
    """
    if handle.value.call is not None or not handle.value.needs_grad:
        raise GradientError("gradients are summed up in leaves that need gradients, such as "
                            "parameters")  # fmt: skip
    return _on_leaf(handle, "after", hook, "(tensor)")


def _on_leaf(handle: Any, when: str, hook: Hook, of: str) -> Removal:
    key = id(handle), when
    if key not in _of_leaves:
        _of_leaves[key] = {}
        weakref.finalize(handle, _of_leaves.pop, key, None).atexit = False
    present[0] = True
    return registered(_of_leaves[key], hook, of)


def hooks_of(handle: Any) -> tuple[Any, ...]:
    """The hooks of a leaf, for programs."""
    if not present[0]:
        return ()
    tables = (_of_leaves.get((id(handle), when)) for when in ("before", "after"))
    return tuple([tuple(t.values()) if t else () for t in tables])


def keep(handle: Any) -> None:
    """Let a tensor that was computed have its gradient, too."""
    value: Value = handle.value
    if not value.needs_grad:
        raise GradientError("a tensor that needs no gradient has none to be kept")
    if value.call is not None:
        present[0] = True
        _kept[value] = weakref.ref(handle)


def keeps(handle: Any) -> bool:
    """Whether a tensor that was computed has its gradient."""
    return present[0] and handle.value in _kept


def met(value: Value, grad: Any) -> Any:
    """The gradient of a value, which is complete: as hooks want it, and noted where it is kept."""
    if value.call is None:
        handle = None if value.handle is None else value.handle()
        table = None if handle is None else _of_leaves.get((id(handle), "before"))
    else:
        table = _of_values.get(value)
    for hook in tuple(table.values()) if table else ():
        found = hook(grad)
        if found is not None:
            if not isinstance(found, Handle) or found.shape != grad.shape:
                what = found.shape if isinstance(found, Handle) else type(found).__name__
                raise GradientError(
                    f"a hook of a gradient of shape {grad.shape} gives None or another one, "
                    f"not {what}"
                )
            grad = found.astype(grad.dtype)  # type: ignore[attr-defined]
    kept = _kept.get(value)
    handle = None if kept is None else kept()
    if handle is not None:
        before = handle.grad
        handle.grad = grad if before is None else before + grad
    return grad


def grown(handle: Any) -> None:
    """The gradient of a leaf has grown."""
    table = _of_leaves.get((id(handle), "after"))
    for hook in tuple(table.values()) if table else ():
        hook(handle)
