"""The generators that modules draw from: one of first values, and those of dropout.

Example:
    >>> from cubepy import nn
    >>> nn.init.manual_seed(0).random() == nn.init.manual_seed(0).random()
    True
"""

from __future__ import annotations

import numpy as np

from cubepy.nn import arguments
from cubepy.runtime.device import Device
from cubepy.tensor import Generator

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
