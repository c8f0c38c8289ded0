"""First values of parameters, drawn as PyTorch's modules draw them, from one seeded generator.

Example:
    >>> from cubepy import nn
    >>> nn.init.manual_seed(0).random() == nn.init.manual_seed(0).random()
    True
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from cubepy.nn import arguments
from cubepy.runtime.device import Device
from cubepy.tensor import Generator, Tensor, as_tensor

_skipping: ContextVar[bool] = ContextVar("cubepy_nn_skip_init", default=False)
_generator = np.random.default_rng()
_of_dropout: dict[Device, Generator] = {}


def manual_seed(seed: int) -> np.random.Generator:
    """Start the generator of parameters anew, and with it those of dropout.

    Example:
        >>> first = manual_seed(0).random()
        >>> first == manual_seed(0).random()
        True
    """
    global _generator
    _generator = np.random.default_rng(arguments.size("seed", seed))
    for device, found in _of_dropout.items():  # the same objects, which programs hold
        found.state = Generator(_dropout_seed(), device).state
    return _generator


def generator() -> np.random.Generator:
    """The generator that parameters draw from.

    Example:
        >>> _ = manual_seed(0)
        >>> generator().random() == manual_seed(0).random()
        True
    """
    return _generator


def dropout_generator(device: Device) -> Generator:
    """The generator that dropout draws from on a device.

    Example:
        >>> import cubepy as cb
        >>> _ = manual_seed(0)
        >>> dropout_generator(cb.current_device()) is dropout_generator(cb.current_device())
        True
    """
    found = _of_dropout.get(device)
    if found is None:
        found = _of_dropout[device] = Generator(_dropout_seed(), device)
        found.lasting()
    return found


def _dropout_seed() -> int:
    """A seed that follows from that of the generator of parameters: the same on every device."""
    entropy = _generator.bit_generator.seed_seq.entropy  # type: ignore[attr-defined]
    return int(np.random.SeedSequence(entropy, spawn_key=(1,)).generate_state(1, np.uint64)[0])


@contextmanager
def skip() -> Iterator[None]:
    """Leave parameters uninitialised, which is quicker when they are loaded right afterwards.

    Example:
        >>> from cubepy import nn
        >>> with skip():
        ...     layer = nn.Linear(4096, 4096)
    """
    token = _skipping.set(True)
    try:
        yield
    finally:
        _skipping.reset(token)


def uniform(shape: tuple[int, ...], bound: float) -> Tensor:
    """f32 values in [-bound, bound).

    Example:
        >>> float(abs(uniform((100,), 0.5).numpy()).max()) <= 0.5
        True
    """
    if _skipping.get():
        return as_tensor(np.empty(shape, np.float32))
    return as_tensor(
        ((_generator.random(shape, np.float32) * 2 - 1) * np.float32(bound)).astype(np.float32)
    )


def normal(shape: tuple[int, ...], std: float = 1.0) -> Tensor:
    """f32 values of a normal distribution around 0.

    Example:
        >>> normal((2, 3)).shape
        (2, 3)
    """
    if _skipping.get():
        return as_tensor(np.empty(shape, np.float32))
    return as_tensor(_generator.standard_normal(shape, np.float32) * np.float32(std))


def linear_bound(fan_in: int) -> float:
    """The bound of a linear layer's weight and bias: kaiming_uniform with a = sqrt(5).

    Example:
        >>> linear_bound(100)
        0.1
    """
    return 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0


def xavier_bound(fan_in: int, fan_out: int) -> float:
    """The bound of xavier_uniform.

    Example:
        >>> xavier_bound(3, 3)
        1.0
    """
    return math.sqrt(6 / (fan_in + fan_out))


def constant(shape: tuple[int, ...], value: float) -> Tensor:
    """f32, all of one value.

    Example:
        >>> constant((2,), 0.5)
        tensor([0.5, 0.5])
    """
    return as_tensor(np.full(shape, value, np.float32))
