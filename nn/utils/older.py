"""Names that PyTorch had before `parametrizations`, for code that has them."""

from __future__ import annotations

from typing import Any

from cubepy.nn import init
from cubepy.nn.module import Module
from cubepy.nn.utils.parametrizations import spectral_norm, weight_norm
from cubepy.nn.utils.parametrize import remove_parametrizations

__all__ = [
    "remove_spectral_norm",
    "remove_weight_norm",
    "skip_init",
    "spectral_norm",
    "weight_norm",
]


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """`parametrize.remove_parametrizations`, under its older name.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 2)))
        >>> type(layer).__name__
        'Linear'
    """
    return remove_parametrizations(module, name)


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """`parametrize.remove_parametrizations`, under its older name.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(2, 2)))
        >>> type(layer).__name__
        'Linear'
    """
    return remove_parametrizations(module, name)


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """A module without first values, which is quicker when they are loaded right afterwards.

    Args:
        module_cls: its class.
        args, kwargs: what it is made of.

    Example:
        >>> from cubepy import nn
        >>> nn.utils.skip_init(nn.Linear, 2, 3).weight.shape
        (3, 2)
    """
    with init.skip():
        return module_cls(*args, **kwargs)
