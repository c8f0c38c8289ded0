"""First values given to a tensor in place, with PyTorch's names: what `nn.init` has of them.

Numbers are drawn from the generator of `nn.init.manual_seed`; each function gives its tensor.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.kernels.entry.options import shown
from cubepy.nn import arguments, seeds
from cubepy.tensor import Tensor, as_tensor, no_grad

GAINS = {
    "linear": 1.0,
    "identity": 1.0,
    "sigmoid": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "tanh": 5 / 3,
    "relu": math.sqrt(2),
    "selu": 3 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """What a layer's values are to be scaled by before an activation.

    Args:
        nonlinearity: its name, or "leaky_relu".
        param: the slope of leaky_relu; 0.01 if left out.

    Raises:
        ArgumentError: another name.

    Example:
        >>> calculate_gain("tanh"), round(calculate_gain("leaky_relu", 1.0), 6)
        (1.6666666666666667, 1.0)
    """
    if nonlinearity == "leaky_relu":
        slope = arguments.number("param", 0.01 if param is None else param)
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in GAINS:
        raise ArgumentError(
            f"no gain is known of {shown(nonlinearity)}",
            hint=f"those that are: leaky_relu, {', '.join(GAINS)}",
        )
    return GAINS[nonlinearity]


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Numbers from a to b.

    Args:
        tensor: of floats.
        a, b: the range.
        generator: of NumPy, instead of that of `manual_seed`.

    Raises:
        ArgumentError: no tensor of floats.
        LaunchError: b below a.

    Example:
        >>> from cubepy import nn
        >>> bool((abs(nn.init.uniform_(nn.Linear(9, 9).weight, -0.1, 0.1).numpy()) <= 0.1).all())
        True
    """
    a, b = arguments.number("a", a), arguments.number("b", b)
    if b < a:
        raise LaunchError(f"numbers from a={a} to b={b} are none")
    return _filled(tensor, lambda rng, shape: a + (b - a) * rng.random(shape), generator)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Numbers of a normal distribution.

    Args:
        tensor: of floats.
        mean, std: of the distribution.
        generator: of NumPy, instead of that of `manual_seed`.

    Raises:
        ArgumentError, LaunchError: no tensor of floats; a negative deviation.

    Example:
        >>> from cubepy import nn
        >>> round(nn.init.normal_(nn.Linear(90, 90).weight, std=0.1).std().item(), 1)
        0.1
    """
    mean, std = arguments.number("mean", mean), arguments.number("std", std, 0)
    return _filled(tensor, lambda rng, shape: mean + std * rng.standard_normal(shape), generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Tensor:
    """Numbers of a normal distribution that lie from a to b; others are drawn again.

    Args:
        tensor: of floats.
        mean, std: of the distribution.
        a, b: the range, at least partly within ten deviations of the mean.
        generator: of NumPy, instead of that of `manual_seed`.

    Raises:
        ArgumentError, LaunchError: no tensor of floats; a range without numbers.

    Example:
        >>> from cubepy import nn
        >>> bool((abs(nn.init.trunc_normal_(nn.Linear(9, 9).weight, std=3.0).numpy()) <= 2).all())
        True
    """
    mean, std = arguments.number("mean", mean), arguments.number("std", std, 0)
    a, b = arguments.number("a", a), arguments.number("b", b)
    if b < a or a > mean + 10 * std or b < mean - 10 * std:
        raise LaunchError(f"a normal distribution around {mean} has no numbers from {a} to {b}")

    def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        low, high = (0.5 * (1 + math.erf((x - mean) / max(std, 1e-30) / 2**0.5)) for x in (a, b))
        found = mean + std * rng.standard_normal(shape)
        if high - low < 0.05:  # few fall into the range: flat ones that are accepted by height
            return _by_height(rng, shape, mean, std, a, b)
        while (out := (found < a) | (found > b)).any():
            found[out] = mean + std * rng.standard_normal(int(out.sum()))
        return found

    return _filled(tensor, drawn, generator)


def _by_height(
    rng: np.random.Generator, shape: tuple[int, ...], mean: float, std: float, a: float, b: float
) -> np.ndarray:
    """Numbers of the tail of a normal distribution."""
    nearest = min(max(mean, a), b)
    found = np.full(math.prod(shape), np.nan)
    while (out := np.isnan(found)).any():
        given = rng.uniform(a, b, int(out.sum()))
        height = np.exp(((nearest - mean) ** 2 - (given - mean) ** 2) / (2 * std**2 or 1))
        found[out] = np.where(rng.random(len(given)) < height, given, np.nan)
    return found.reshape(shape)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere.

    Example:
        >>> from cubepy import nn
        >>> nn.init.constant_(nn.Linear(2, 2).bias, 0.5).tolist()
        [0.5, 0.5]
    """
    val = arguments.number("val", val)
    return _filled(tensor, lambda rng, shape: np.full(shape, val))


def ones_(tensor: Tensor) -> Tensor:
    """Ones.

    Example:
        >>> from cubepy import nn
        >>> nn.init.ones_(nn.Linear(2, 2).bias).tolist()
        [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros.

    Example:
        >>> from cubepy import nn
        >>> nn.init.zeros_(nn.Linear(2, 2).bias).tolist()
        [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Ones on the diagonal of a matrix, zeros beside it.

    Raises:
        ShapeError: no matrix.

    Example:
        >>> from cubepy import nn
        >>> nn.init.eye_(nn.Linear(2, 2).weight).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    _axes(tensor, "eye_", 2, 2)
    return _filled(tensor, lambda rng, shape: np.eye(*shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Filters of a convolution that pass channels on: a one in the middle of filter n of channel n,
    zeros beside it.

    Args:
        tensor: filters (out, in, ...) of one to three axes of images.
        groups: each group of filters begins with its first channel.

    Raises:
        ShapeError: another number of axes, or groups that do not divide the filters.

    Example:
        >>> from cubepy import nn
        >>> nn.init.dirac_(nn.Conv1d(1, 1, 3).weight).tolist()
        [[[0.0, 1.0, 0.0]]]
    """
    _axes(tensor, "dirac_", 3, 5)
    if tensor.shape[0] % arguments.size("groups", groups, 1):
        raise ShapeError(f"{groups} groups do not divide {tensor.shape[0]} filters")

    def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        values, own = np.zeros(shape), shape[0] // groups
        middle = tuple(n // 2 for n in shape[2:])
        for n in range(shape[0]):
            if n % own < shape[1]:
                values[(n, n % own, *middle)] = 1
        return values

    return _filled(tensor, drawn)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Numbers of a normal distribution of which a share of each column is zero (Martens, 2010).

    Args:
        tensor: a matrix of floats.
        sparsity: the share, rounded up to elements.
        std: deviation of the others.
        generator: of NumPy, instead of that of `manual_seed`.

    Raises:
        ShapeError: no matrix.

    Example:
        >>> from cubepy import nn
        >>> weight = nn.init.sparse_(nn.Linear(3, 10).weight, 0.25)
        >>> (weight.numpy() == 0).sum(axis=0).tolist()
        [3, 3, 3]
    """
    _axes(tensor, "sparse_", 2, 2)
    share = arguments.number("sparsity", sparsity, 0, 1)
    std = arguments.number("std", std, 0)

    def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        values = rng.standard_normal(shape) * std
        for column in values.T:
            column[rng.permutation(shape[0])[: math.ceil(share * shape[0])]] = 0
        return values

    return _filled(tensor, drawn, generator)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Numbers up to gain times the root of 6 / (inputs + outputs) (Glorot and Bengio, 2010).

    Args:
        tensor: of floats, (outputs, inputs, ...).
        gain: of the activation behind; see `calculate_gain`.
        generator: of NumPy, instead of that of `manual_seed`.

    Raises:
        ArgumentError, ShapeError: no tensor of floats, or fewer than two axes.

    Example:
        >>> from cubepy import nn
        >>> weight = nn.init.xavier_uniform_(nn.Linear(3, 3).weight)
        >>> bool((abs(weight.numpy()) <= 1).all())
        True
    """
    bound = arguments.number("gain", gain) * math.sqrt(6 / sum(_fans(tensor, "xavier_uniform_")))
    return uniform_(tensor, -abs(bound), abs(bound), generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """The same as a normal distribution, of the deviation gain times the root of
    2 / (inputs + outputs).

    Args:
        tensor, gain, generator: see `xavier_uniform_`.

    Example:
        >>> from cubepy import nn
        >>> round(nn.init.xavier_normal_(nn.Linear(100, 100).weight).std().item(), 1)
        0.1
    """
    std = arguments.number("gain", gain) * math.sqrt(2 / sum(_fans(tensor, "xavier_normal_")))
    return normal_(tensor, 0.0, abs(std), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """Numbers up to gain times the root of 3 / inputs (He et al., 2015).

    Args:
        tensor: of floats, (outputs, inputs, ...).
        a: the slope, where the activation behind is leaky_relu.
        mode: "fan_in", or "fan_out": outputs instead of inputs.
        nonlinearity: the activation; see `calculate_gain`.
        generator: of NumPy, instead of that of `manual_seed`.

    Raises:
        ArgumentError, ShapeError: no tensor of floats, fewer than two axes, another mode.

    Example:
        >>> from cubepy import nn
        >>> weight = nn.init.kaiming_uniform_(nn.Linear(24, 9).weight)
        >>> bool((abs(weight.numpy()) <= 0.5).all())
        True
    """
    bound = math.sqrt(3) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Tensor:
    """The same as a normal distribution, of the deviation gain times the root of 1 / inputs.

    Args:
        tensor, a, mode, nonlinearity, generator: see `kaiming_uniform_`.

    Example:
        >>> from cubepy import nn
        >>> weight = nn.init.kaiming_normal_(nn.Linear(200, 100).weight, nonlinearity="relu")
        >>> round(weight.std().item(), 1)
        0.1
    """
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """A matrix whose rows (or columns, if these are fewer) are orthonormal, times gain; axes behind
    the second are columns, too (Saxe et al., 2013).

    Args:
        tensor: of floats, at least two axes.
        gain: a factor.
        generator: of NumPy, instead of that of `manual_seed`.

    Raises:
        ArgumentError, ShapeError: no tensor of floats, or fewer than two axes.

    Example:
        >>> import numpy as np
        >>> from cubepy import nn
        >>> w = nn.init.orthogonal_(nn.Linear(4, 3).weight).numpy()
        >>> np.allclose(w @ w.T, np.eye(3), atol=1e-5)
        True
    """
    _axes(tensor, "orthogonal_", 2)
    gain = arguments.number("gain", gain)

    def drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        rows, columns = shape[0], math.prod(shape[1:])
        q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
        q *= np.sign(np.diag(r))
        return gain * (q.T if rows < columns else q).reshape(shape)

    return _filled(tensor, drawn, generator)


def _kaiming(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode is 'fan_in' or 'fan_out', not {shown(mode)}")
    fan = _fans(tensor, "kaiming")[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def _axes(tensor: Any, what: str, least: int, most: float = math.inf) -> None:
    if not least <= _floats(tensor).ndim <= most:
        rule = f"at least {least}" if most > least else f"{least}"
        raise ShapeError(f"{what} takes {rule} axes, not a tensor of shape {tensor.shape}")


def _fans(tensor: Any, what: str) -> tuple[int, int]:
    """Inputs and outputs of a layer with this weight, at least 1."""
    _axes(tensor, what, 2)
    field = math.prod(tensor.shape[2:])
    return max(tensor.shape[1] * field, 1), max(tensor.shape[0] * field, 1)


def _floats(tensor: Any) -> Tensor:
    if (
        not isinstance(tensor, Tensor)
        or not tensor.dtype.is_float
        or tensor.storage.kind != "dense"
    ):
        raise ArgumentError(
            f"first values are given to tensors of floats, not to {shown(tensor)}",
            hint="for example nn.init.zeros_(layer.bias)",
        )
    return tensor


def _filled(tensor: Any, drawn: Any, generator: Any = None) -> Tensor:
    """The tensor with the numbers that a function of a generator and a shape gives."""
    given = _floats(tensor)
    if generator is not None and not isinstance(generator, np.random.Generator):
        raise ArgumentError(
            f"generator must be NumPy's, not {shown(generator)}",
            hint="np.random.default_rng(seed); or nn.init.manual_seed(seed) for all",
        )
    rng = seeds.generator() if generator is None else generator
    values = np.asarray(drawn(rng, given.shape), np.float64)
    with no_grad():
        given.copy_(as_tensor(values).astype(given.dtype).to(given.device))
    return given
