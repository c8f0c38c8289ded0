"""Devices: what there is to run on, what each can do, and which one is current."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cubepy.config import config
from cubepy.errors import DeviceError
from cubepy.runtime.fragments import MatrixInstruction

BACKENDS = ("cpu", "cuda", "hip", "python")
GPUS = ("cuda", "hip")
"""Those whose devices have memory of their own: NVIDIA's and AMD's."""


@dataclass(frozen=True)
class DeviceProperties:
    """What a kernel may ask of the device that it is compiled for.

    Attributes:
        backend: "cpu", "cuda", "hip" or "python".
        name: the processor.
        cores: how many cubes can run at once.
        plane_size: units of a plane (1 on the CPU).
        max_units: units of a cube, at most.
        max_shared_memory: bytes of shared memory for a cube.
        register_bytes: width of a vector register; lines of this size are fastest.
        vector_registers: how many of them there are.
        l1_bytes, l2_bytes: cache of a core.
        features: named abilities, such as "int8_dot".
        architecture: compute capability of an NVIDIA GPU, such as "9.0", or processor of an AMD
            GPU, such as "gfx942".
        matrix_instructions: what `cb.mma` multiplies there, and which elements each unit holds.

    Example:
        >>> import cubepy as cb
        >>> python = cb.device_properties_of("python")
        >>> python.plane_size, python.lanes(cb.f32)
        (1, 16)
    """

    backend: str
    name: str
    cores: int
    plane_size: int = 1
    max_units: int = 1024
    max_shared_memory: int = 256 * 1024
    register_bytes: int = 32
    vector_registers: int = 16
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 1024 * 1024
    features: frozenset[str] = frozenset()
    architecture: str = ""
    matrix_instructions: tuple[MatrixInstruction, ...] = field(
        default=(), compare=False, repr=False
    )

    @property
    def adds_bytes(self) -> bool:
        """Whether products of bytes are added up by instructions: four at once, or pairs."""
        return not self.features.isdisjoint(("int8_dot", "byte_pairs"))

    def matrix_instruction(self, dtype: str, rows: int = 0) -> MatrixInstruction | None:
        """The product of matrices of a dtype, by its name, the first that it has or that of so many
        rows; None if there is none.
        """
        found = (m for m in self.matrix_instructions if m.dtype == dtype)
        return next((m for m in found if rows in (0, m.rows)), None)

    def lanes(self, dtype: Any) -> int:
        """How many elements of a dtype fill a vector register."""
        return max(1, self.register_bytes // dtype.itemsize)

    def __str__(self) -> str:
        return (
            f"{self.backend}: {self.name}, {self.cores} cores, {self.register_bytes * 8}-bit "
            "registers"
        )


@dataclass(frozen=True)
class Device:
    """A device by backend and ordinal, such as `cpu` or `cuda:1`.

    Example:
        >>> import cubepy as cb
        >>> cb.Device("cuda", 1)
        Device(backend='cuda', ordinal=1)
        >>> print(cb.Device("cuda", 1), cb.Device("cpu"))
        cuda:1 cpu
    """

    backend: str
    ordinal: int = 0

    @property
    def type(self) -> str:
        """The backend, as PyTorch calls it: `x.device.type == "cuda"`."""
        return self.backend

    @property
    def index(self) -> int | None:
        """The ordinal of a GPU, as PyTorch calls it; None on the host."""
        return None if self.backend in ("cpu", "python") else self.ordinal

    def __str__(self) -> str:
        return self.backend if self.ordinal == 0 else f"{self.backend}:{self.ordinal}"


@cache
def backend_named(name: str) -> Any:
    """The backend object of this name.

    Raises:
        DeviceError: no such backend.
    """
    if name not in BACKENDS:
        raise DeviceError(
            f"there is no backend {name!r}", hint=f"the backends are {', '.join(BACKENDS)}"
        )
    return importlib.import_module(f"cubepy.backends.{name}").create()


def as_device(value: Any) -> Device:
    """A device from a `Device` or a text such as "cpu" or "cuda:1".

    Raises:
        DeviceError: no such backend or ordinal.
    """
    if isinstance(value, Device):
        return value
    if not isinstance(value, str):
        hint = f'pass "{value}"' if type(value).__module__ == "torch" else 'pass "cpu" or "cuda:0"'
        raise DeviceError(f"a device is a text such as 'cpu', not {value!r}", hint=hint)
    name, _, ordinal = value.partition(":")
    if ordinal and not ordinal.isdigit():
        raise DeviceError(
            f"the device {value!r} has no valid ordinal", hint=f'write "{name}" or "{name}:0"'
        )
    if name not in BACKENDS:
        raise DeviceError(
            f"there is no device {value!r}", hint=f"the devices are {', '.join(BACKENDS)}"
        )
    count = backend_named(name).count()
    if count == 0:
        raise DeviceError(
            f"there is no device {value!r}: {backend_named(name).missing()}",
            hint='use device="cpu"',
        )
    if int(ordinal or 0) >= count:
        there = ", ".join(str(Device(name, n)) for n in range(count))
        raise DeviceError(
            f"the device {value!r} does not exist",
            hint=f"backend {name} has {there}; see cb.devices()",
        )
    return Device(name, int(ordinal or 0))


_current: ContextVar[Device | None] = ContextVar("cubepy_device", default=None)


def current() -> Device:
    """The device that launches use when none is named.

    Example:
        >>> import cubepy as cb
        >>> with cb.use("python"):
        ...     print(cb.current_device())
        python
    """
    device = _current.get()
    if device is None:
        return _configured(config.backend)
    return device


@cache
def _configured(name: str) -> Device:
    return as_device(name)


@contextlib.contextmanager
def _restoring(token: Any) -> Iterator[None]:
    try:
        yield
    finally:
        _current.reset(token)


class Use:
    """The effect of `cb.use`: lasting when called, limited to the block under `with`."""

    def __init__(self, device: Device) -> None:
        self.token = _current.set(device)

    def __enter__(self) -> Use:
        return self

    def __exit__(self, *exc: object) -> None:
        _current.reset(self.token)


def use(device: Any) -> Use:
    """Make a device the current one, from here on or for a `with` block.

    Example:
        >>> import cubepy as cb
        >>> with cb.use("python"):
        ...     print(cb.current_device())
        python
    """
    return Use(as_device(device))


class Devices(list[DeviceProperties]):
    """The properties of every device that can be used; printing it also says why others cannot.

    Attributes:
        missing: why a backend has no device, by its name.
    """

    def __init__(self) -> None:
        self.missing: dict[str, str] = {}
        for name in BACKENDS:
            backend = backend_named(name)
            super().extend(backend.properties(i) for i in range(backend.count()))
            if backend.count() == 0:
                self.missing[name] = backend.missing()

    def __repr__(self) -> str:
        return "\n".join(
            [*map(str, self), *(f"{name}: none, {why}" for name, why in self.missing.items())]
        )


def devices() -> Devices:
    """The properties of every device that can be used; printing the list says why there is no GPU.

    Example:
        >>> import cubepy as cb
        >>> cb.devices()[0].backend
        'cpu'
    """
    return Devices()


def device_properties(device: Any = None) -> DeviceProperties:
    """The properties of a device (the current one when none is given).

    Example:
        >>> import cubepy as cb
        >>> cb.device_properties_of("python").cores
        1
    """
    d = current() if device is None else as_device(device)
    return backend_named(d.backend).properties(d.ordinal)  # type: ignore[no-any-return]


def gpu_of(device: Device) -> Any:
    """What manages the memory and streams of a device that has its own, or None (see
    `backend.Gpu`).
    """
    return getattr(backend_named(device.backend), "gpu", None)
