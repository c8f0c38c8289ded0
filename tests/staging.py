"""Running launches of NumPy arrays on a GPU: the arrays' memory is copied there before and back
after.

cubepy itself never copies behind a user's back; tests that are written once for every backend may.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from cubepy.lang.struct import Struct
from cubepy.runtime import device as devices
from cubepy.runtime.launch.bound import BoundLaunch
from cubepy.runtime.launch.launcher import Launcher
from cubepy.runtime.memory import device_array as da
from cubepy.runtime.memory.layout import layout_of
from cubepy.runtime.memory.spans import extent

WHERE = os.environ.get("CUBEPY_TEST_DEVICE", "")
"""A device with its own memory that the library's tests use instead of the host, if any: "cuda"."""

DEVICES = [WHERE] if WHERE else ["cpu", "python"]
"""What tests that are written for every backend run on."""


def gpu_missing(name: str = "cuda") -> str:
    """Why there is no GPU of a backend; empty when there is one."""
    backend = devices.backend_named(name)
    return "" if backend.count() else backend.missing() or "no GPU"


def _root(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Stage:
    """Device copies of the memory behind host arrays; arrays that share memory share it there too."""

    def __init__(self, device: devices.Device) -> None:
        self.device = device
        self.roots: dict[
            int, tuple[np.ndarray, Any, int, int]
        ] = {}  # memory, its copy, where each begins
        self.given: list[tuple[np.ndarray, Any]] = []

    def array(self, a: np.ndarray) -> Any:
        """The device array that stands for a host array."""
        root = _root(a)
        low, high = (root.ctypes.data + n for n in extent(root))
        if low not in self.roots:
            size = high - low
            flat = (
                np.frombuffer((ctypes.c_uint8 * size).from_address(low), np.uint8)
                if size
                else np.zeros(1, np.uint8)
            )
            before = (
                low - a.ctypes.data
            ) % a.itemsize  # a GPU's elements are aligned, as lines need not be
            after = -(before + flat.size) % 4  # atomics of narrow elements read the whole word
            parts = [np.zeros(before, np.uint8), flat, np.zeros(after, np.uint8)]
            self.roots[low] = (flat, da.upload(np.concatenate(parts), self.device), low, before)
        _, copy, start, before = self.roots[low]
        layout = layout_of(a.shape, a.strides, a.dtype, self.device)
        there = da.DeviceArray(
            copy.address + before + a.ctypes.data - start, layout, copy.owner, a.flags.writeable
        )
        self.given.append((a, there))
        return there

    def value(self, v: Any) -> Any:
        """An argument with every host array in it replaced."""
        if isinstance(v, np.ndarray):
            return self.array(v)
        if type(v) in (tuple, list):
            return type(v)(self.value(x) for x in v)
        if isinstance(v, Struct):
            return type(v)(
                v.__cubepy_type__, {k: self.value(x) for k, x in v.__cubepy_values__.items()}
            )
        return v

    def result(self, v: Any) -> Any:
        """What a function gave, with every device array in it copied to the host; an argument is
        itself again.
        """
        if isinstance(v, da.DeviceArray):
            given = next((a for a, there in self.given if there is v), None)
            return _as_there(v) if given is None else given
        if isinstance(v, (tuple, list)):
            parts = [self.result(x) for x in v]
            return type(v)(*parts) if hasattr(v, "_fields") else type(v)(parts)
        return v

    def back(self) -> None:
        """Copy the memory back."""
        for flat, copy, _, before in self.roots.values():
            result = copy.numpy()[before : before + flat.size]
            if flat.flags.writeable:
                flat[...] = result


def _as_there(v: da.DeviceArray) -> np.ndarray:
    """A copy on the host whose axes have the order that they have in the device's memory."""
    order = sorted(range(v.ndim), key=lambda d: -v.strides[d])
    return v.transpose(order).numpy().transpose(np.argsort(order))


@contextlib.contextmanager
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make launches on a GPU accept NumPy arrays."""
    launch, inner_bind = Launcher.launch, BoundLaunch.__call__

    def on_gpu(kwargs: dict[str, Any]) -> devices.Device | None:
        if _inside.names:  # the library's own launches: what it forgets to move shall fail
            return None
        where = kwargs.get("device")
        found = devices.current() if where is None else devices.as_device(where)
        return found if devices.gpu_of(found) is not None else None

    def launch_staged(self: Launcher, grid: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        gpu = on_gpu(kwargs)
        if gpu is None:
            launch(self, grid, args, kwargs)
            return
        stage = Stage(gpu)
        try:
            launch(self, grid, stage.value(args), {k: stage.value(v) for k, v in kwargs.items()})
            devices_sync(gpu)
        finally:
            stage.back()

    def bind_staged(self: Launcher, grid: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        gpu = on_gpu(kwargs)
        if gpu is None:
            return bind(self, grid, args, kwargs)
        stage = Stage(gpu)
        bound = bind(self, grid, stage.value(args), {k: stage.value(v) for k, v in kwargs.items()})

        def run(**scalars: Any) -> None:
            inner_bind(bound, **scalars)
            devices_sync(gpu)
            stage.back()

        return run

    bind = Launcher.bind
    monkeypatch.setattr(Launcher, "launch", launch_staged)
    monkeypatch.setattr(Launcher, "bind", bind_staged)
    yield


class Inside(threading.local):
    """The functions of the library that a thread is in."""

    def __init__(self) -> None:
        self.names: list[str] = []


_inside = Inside()


def moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays that takes NumPy arrays, works where the current device is, and gives
    NumPy arrays.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        gpu = devices.current()
        if devices.gpu_of(gpu) is None or _inside.names:
            return function(*args, **kwargs)
        stage = Stage(gpu)
        _inside.names.append(function.__name__)
        try:
            result = function(*stage.value(args), **{k: stage.value(v) for k, v in kwargs.items()})
            there_already = any(isinstance(v, da.DeviceArray) for v in (*args, *kwargs.values()))
            return result if there_already else stage.result(result)
        finally:
            _inside.names.pop()
            stage.back()

    return call


def move_library() -> None:
    """Make every public function of `cubepy.kernels` a `moved` one, for the rest of this process."""
    import cubepy.kernels as library
    from cubepy.tune.routine import library as load_library

    load_library()
    modules = [
        library,
        *(m for n, m in list(sys.modules.items()) if n.startswith("cubepy.kernels.")),
    ]
    public = {
        getattr(library, name): name
        for name in library.__all__
        if isinstance(getattr(library, name), FunctionType)
    }
    replaced = {function: moved(function) for function in public}
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, FunctionType) and value in replaced:
                setattr(module, name, replaced[value])


def devices_sync(device: devices.Device) -> None:
    """Wait for a device; errors of its launches surface here."""
    from cubepy.runtime.streams.stream import sync

    sync(device)
