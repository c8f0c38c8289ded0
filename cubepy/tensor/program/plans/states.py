"""States that a call writes where they are.

A handle first gets a new value of the same memory, then the memory is written: whoever had the old
value would see it change. So a state is written in place only if nobody has its value, its storage
or its memory but the handle, as reference counts say; else its elements are copied first. As
nothing else happens between, an interrupt finds handles that have their old or their new elements.

While the memory is written, other threads wait for it: storages are of another class then, whose
array is behind a lock.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.pool import ALIGNMENT, host_pool
from cubepy.tensor.exposed import bases_alone, exact
from cubepy.tensor.program.plans.steady import changed
from cubepy.tensor.storage import HOST, Dense
from cubepy.tensor.value import Handle, Value

State = tuple[Any, Value, bool]
"""A handle, its value, and whether it is to be a leaf that needs gradients."""
_slot: Any = Dense.__dict__["array"]
writing = threading.RLock()
"""Held by who writes states, or gives promised elements."""

if hasattr(os, "register_at_fork"):  # a child shall not get memory that is half written
    os.register_at_fork(
        before=writing.acquire, after_in_parent=writing.release, after_in_child=writing.release
    )


class Written(Dense):
    """Elements that a call is about to write: other threads get them afterwards."""

    __slots__ = ()

    @property
    def array(self) -> Any:  # type: ignore[override]
        with writing:
            return _slot.__get__(self)


def wait() -> None:
    """Wait until no other thread writes states."""
    with writing:
        pass


class Update:
    """The states of one call.

    Attributes:
        writes: whether this call may write in place. While another thread is at it, it may not;
            handles get their values afterwards then.
        before: the states as they were.
        after: the values that their handles are given.
    """

    __slots__ = ("after", "before", "writes")

    def __init__(self) -> None:
        self.writes, self.after = False, list[Value]()
        self.before: Sequence[State] = ()

    def begin(self, states: Sequence[State]) -> list[np.ndarray]:
        """The arrays that the call writes: those of the states, of which the handles get new
        values, or copies.

        Raises:
            OutOfMemoryError: there is none for copies; then nothing was done.
        """
        self.before = states
        changed([handle for handle, *_ in states])  # others shall not have the arrays
        self.writes = exact() and writing.acquire(blocking=False)
        if self.writes:
            hide([store_of(state) for state in states])
        counts = holders(states)
        arrays: list[np.ndarray] = []
        for (_, value, _), count in zip(states, counts, strict=True):
            array = _slot.__get__(value.storage) if self.writes else value.storage.dense()
            if not (self.writes and count == alone() and writable(array)):
                array = copied(array)
            arrays.append(array)
        self.after = [self.value(state, array) for state, array in zip(states, arrays, strict=True)]
        if self.writes:
            self.hand_over()
        return arrays

    def value(self, state: State, array: np.ndarray) -> Value:
        """A new value of memory that is written soon."""
        handle, before, leaf = state
        like, store = before.storage, Dense.__new__(Dense)
        store.array, store.packed = array, None
        store.shape, store.dtype, store.device = like.shape, like.dtype, like.device
        if self.writes:
            hide([store])
        value = Value(store)
        if leaf:
            value.needs_grad, value.handle = True, weakref.ref(handle)
        return value

    def hand_over(self) -> None:
        """Give the handles their new values."""
        for (handle, *_), value in zip(self.before, self.after, strict=True):
            handle.value = value
        changed([handle for handle, *_ in self.before])

    def end(self, failed: Any) -> None:
        """The memory is written, or will not be.

        Args:
            failed: whether it is as it was.
        """
        if self.writes:
            for state in self.before:
                store_of(state).__class__ = Dense
            for value in self.after:
                value.storage.__class__ = Dense
            self.writes = False
            writing.release()
        elif not failed:
            self.hand_over()
        self.before, self.after = (), []


def store_of(state: State) -> Any:
    """The storage of a state."""
    return state[1].storage


def hide(stores: Sequence[Any]) -> None:
    """Let other threads wait for elements."""
    for store in stores:
        store.__class__ = Written


def holders(states: Sequence[State]) -> list[tuple[int, int, int]]:
    """How many references there are to the values of states, their storages and arrays."""
    return [
        (
            sys.getrefcount(value),
            sys.getrefcount(value.storage),
            sys.getrefcount(_slot.__get__(value.storage)),
        )
        for _, value, _ in states
    ]


@cache
def alone() -> tuple[int, int, int]:
    """The counts where nobody but the handle and the function that calls has a state."""
    h = Handle(Dense(np.empty(1), HOST))
    v = h.value
    s = v.storage
    x = s.array  # type: ignore[attr-defined]
    assert x.size
    return holders(((h, v, False),))[0]


def freed(states: Sequence[State]) -> list[np.ndarray]:
    """The arrays of values that only these states have, and copies of others."""
    counts = holders(states)
    return [
        array_of(state) if count == forgotten() and writable(array_of(state)) else copied_of(state)
        for state, count in zip(states, counts, strict=True)
    ]


def array_of(state: State) -> np.ndarray:
    """The array of a state."""
    return _slot.__get__(store_of(state))  # type: ignore[no-any-return]


def copied_of(state: State) -> np.ndarray:
    """The elements of a state in memory of their own."""
    return copied(store_of(state).array)


@cache
def forgotten() -> tuple[int, int, int]:
    """The counts where nobody has a state but who asks."""
    return holders([(None, Value(Dense(np.empty(1), HOST)), False)])[0]


def writable(array: Any) -> bool:
    """Whether memory may be written as that of results: its own, without gaps, at a line."""
    return (
        type(array) is np.ndarray
        and array.flags.writeable
        and array.flags.c_contiguous
        and address(array) % ALIGNMENT == 0
        and bases_alone(array, True)
    )


def copied(array: np.ndarray) -> np.ndarray:
    """The same elements in memory of its own."""
    made = host_pool.empty(array.shape, array.dtype)
    np.copyto(made, array)
    return made
