"""Layers that learn the width of their input from the first one, or from a state that they load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn.cloning import HOOKS
from cubepy.nn.module import Module
from cubepy.nn.modules.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from cubepy.nn.modules.linear import Linear
from cubepy.nn.modules.norms.batches import BatchNorm1d, BatchNorm2d, BatchNorm3d
from cubepy.nn.modules.norms.instances import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from cubepy.tensor import as_tensor
from cubepy.tensor.program.watched import changed
from cubepy.tensor.record import recording_here


class Lazy(Module):
    """Base of layers without a width: no parameters yet. The first input, or a state that is
    loaded, makes the layer one of `kind`; give parameters to an optimizer after that.
    """

    kind: type[Module] = Module
    axis = 1
    """Which axis of the input is the width."""
    weights = ("weight", 1)
    """Which saved tensor says the width, and which of its axes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.__dict__["given"] = args, kwargs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        x = as_tensor(args[0])
        if recording_here():
            raise LaunchError(
                f"{type(self).__name__} has no width yet, and a program cannot give it one",
                hint="call the module once before cb.jit",
            )
        self._become(x.shape[self.axis])
        return self(x, *args[1:], **kwargs)

    def of_older(self, state: Mapping[str, Any], prefix: str) -> Mapping[str, Any]:
        """The width that a state says."""
        name, axis = self.weights
        if prefix + name in state:
            weight, groups = state[prefix + name], self.given[1].get("groups", 1)
            self._become(weight.shape[axis] * (groups if axis and weight.ndim > 2 else 1))
        return state

    def _become(self, width: int) -> None:
        (args, kwargs), training = self.given, self.training
        hooks = {name: self.__dict__[name] for name in (*HOOKS, "_state_hooks")}
        object.__setattr__(self, "__class__", self.kind)
        del self.__dict__["given"]
        self.__init__(width, *args, **kwargs)  # type: ignore[misc]
        self.__dict__.update(**hooks, training=training)
        changed()

    def extra_repr(self) -> str:
        args, kwargs = self.given
        return ", ".join([*map(str, args), *(f"{k}={v!r}" for k, v in kwargs.items())])


class LazyLinear(Lazy):
    """`Linear` for rows of any width.

    Args:
        out_features, bias: as of `Linear`.

    Example:
        >>> layer = LazyLinear(3)
        >>> layer([[1.0, 2.0]]).shape, layer
        ((1, 3), Linear(in_features=2, out_features=3, bias=True))
    """

    kind = Linear
    axis = -1


class LazyConv1d(Lazy):
    """`Conv1d` for any number of channels.

    Args:
        out_channels, kernel_size and what follows: as of `Conv1d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyConv1d(4, 3)
        >>> layer(np.ones((1, 3, 4), np.float32)).shape[1], layer.in_channels
        (4, 3)
    """

    kind = Conv1d


class LazyConv2d(Lazy):
    """`Conv2d` for any number of channels.

    Args:
        out_channels, kernel_size and what follows: as of `Conv2d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyConv2d(4, 3)
        >>> layer(np.ones((1, 3, 4, 4), np.float32)).shape[1], layer.in_channels
        (4, 3)
    """

    kind = Conv2d


class LazyConv3d(Lazy):
    """`Conv3d` for any number of channels.

    Args:
        out_channels, kernel_size and what follows: as of `Conv3d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyConv3d(4, 3)
        >>> layer(np.ones((1, 3, 3, 3, 3), np.float32)).shape[1], layer.in_channels
        (4, 3)
    """

    kind = Conv3d


class LazyConvTranspose1d(Lazy):
    """`ConvTranspose1d` for any number of channels.

    Args:
        out_channels, kernel_size and what follows: as of `ConvTranspose1d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyConvTranspose1d(4, 3)
        >>> layer(np.ones((1, 3, 4), np.float32)).shape[1], layer.in_channels
        (4, 3)
    """

    kind = ConvTranspose1d
    weights = ("weight", 0)


class LazyConvTranspose2d(Lazy):
    """`ConvTranspose2d` for any number of channels.

    Args:
        out_channels, kernel_size and what follows: as of `ConvTranspose2d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyConvTranspose2d(4, 3)
        >>> layer(np.ones((1, 3, 4, 4), np.float32)).shape[1], layer.in_channels
        (4, 3)
    """

    kind = ConvTranspose2d
    weights = ("weight", 0)


class LazyConvTranspose3d(Lazy):
    """`ConvTranspose3d` for any number of channels.

    Args:
        out_channels, kernel_size and what follows: as of `ConvTranspose3d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyConvTranspose3d(4, 3)
        >>> layer(np.ones((1, 3, 3, 3, 3), np.float32)).shape[1], layer.in_channels
        (4, 3)
    """

    kind = ConvTranspose3d
    weights = ("weight", 0)


class LazyBatchNorm1d(Lazy):
    """`BatchNorm1d` for any number of channels.

    Args:
        eps and what follows: as of `BatchNorm1d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyBatchNorm1d()
        >>> _ = layer(np.ones((1, 3, 4), np.float32))
        >>> layer.num_features
        3
    """

    kind = BatchNorm1d
    weights = ("running_mean", 0)


class LazyBatchNorm2d(Lazy):
    """`BatchNorm2d` for any number of channels.

    Args:
        eps and what follows: as of `BatchNorm2d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyBatchNorm2d()
        >>> _ = layer(np.ones((1, 3, 4, 4), np.float32))
        >>> layer.num_features
        3
    """

    kind = BatchNorm2d
    weights = ("running_mean", 0)


class LazyBatchNorm3d(Lazy):
    """`BatchNorm3d` for any number of channels.

    Args:
        eps and what follows: as of `BatchNorm3d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyBatchNorm3d()
        >>> _ = layer(np.ones((1, 3, 3, 3, 3), np.float32))
        >>> layer.num_features
        3
    """

    kind = BatchNorm3d
    weights = ("running_mean", 0)


class LazyInstanceNorm1d(Lazy):
    """`InstanceNorm1d` for any number of channels.

    Args:
        eps and what follows: as of `InstanceNorm1d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyInstanceNorm1d()
        >>> _ = layer(np.ones((1, 3, 4), np.float32))
        >>> layer.num_features
        3
    """

    kind = InstanceNorm1d
    weights = ("weight", 0)


class LazyInstanceNorm2d(Lazy):
    """`InstanceNorm2d` for any number of channels.

    Args:
        eps and what follows: as of `InstanceNorm2d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyInstanceNorm2d()
        >>> _ = layer(np.ones((1, 3, 4, 4), np.float32))
        >>> layer.num_features
        3
    """

    kind = InstanceNorm2d
    weights = ("weight", 0)


class LazyInstanceNorm3d(Lazy):
    """`InstanceNorm3d` for any number of channels.

    Args:
        eps and what follows: as of `InstanceNorm3d`.

    Example:
        >>> import numpy as np
        >>> layer = LazyInstanceNorm3d()
        >>> _ = layer(np.ones((1, 3, 3, 3, 3), np.float32))
        >>> layer.num_features
        3
    """

    kind = InstanceNorm3d
    weights = ("weight", 0)
