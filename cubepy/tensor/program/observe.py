"""Who observes the tensors of a thread: the recorder of its ops.

Handles tell it what ops do not show: that elements are asked for, that a handle gets another value,
that two values are the same elements. Nothing here knows what a recorder does with it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

active: ContextVar[Any] = ContextVar("cubepy_recorder", default=None)
"""The recorder of this thread (`record.Recorder`), or None."""
blocks: list[Any] = []
"""The recorders of all threads: what is quick looks first whether there are any."""


def looked(tensor: Any, what: str = "an element of a tensor is asked for") -> None:
    """The elements of a tensor become numbers that no op knows of."""
    recorder = active.get()
    if recorder is not None:
        recorder.looked(tensor, what)


def same(value: Any, tensor: Any) -> None:
    """A value has the elements of a tensor."""
    recorder = active.get()
    if recorder is not None:
        recorder.same(value, tensor)


def exchanges(tensor: Any) -> None:
    """A handle is about to get another value."""
    recorder = active.get()
    if recorder is not None:
        recorder.exchanges(tensor)


def lasting(tensor: Any) -> None:
    """A handle that was made just now is one from outside: it stays when the call is over."""
    recorder = active.get()
    if recorder is not None:
        recorder.lasting(tensor)


def gradient(tensor: Any, changes: bool) -> None:
    """Somebody asks for the gradient of a tensor, or is about to change it."""
    recorder = active.get()
    if recorder is not None:
        recorder.gradient(tensor, changes)


def settled(attrs: dict[str, Any]) -> dict[str, Any]:
    """The attributes of an op as it gets them."""
    recorder = active.get()
    found: dict[str, Any] = attrs if recorder is None else recorder.settled(attrs)
    return found


def promised(op: str, inputs: Any, attrs: dict[str, Any]) -> Any:
    """The storages of what an op will give; None where it has to be computed."""
    recorder = active.get()
    return None if recorder is None else recorder.promised(op, inputs, attrs)


def numbered(value: Any, dtype: Any) -> Any:
    """A number beside tensors as an input of what is recorded; None where it is a constant."""
    recorder = active.get()
    return None if recorder is None else recorder.number(value, dtype)


def computed(again: Callable[[], Any], array: Any) -> Any:
    """An array of numbers that Python computes again in every call, as an input of a program; None
    where nobody traces one.
    """
    recorder = active.get()
    return None if recorder is None else recorder.computed(again, array)
