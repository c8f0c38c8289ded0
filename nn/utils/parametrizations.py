"""Norms of weights that are learned apart, or that are 1; weights that are orthogonal.

Example:
    >>> from cubepy import nn
    >>> layer = weight_norm(nn.Linear(3, 2))
    >>> [name for name, _ in layer.named_parameters()][1:]
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
"""

from __future__ import annotations

from typing import ClassVar

from cubepy.errors import ArgumentError, ShapeError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.modules.convolution import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from cubepy.nn.utils.parametrize import register_parametrization
from cubepy.tensor import Tensor, linalg, no_grad
from cubepy.tensor.namespace import concat, eye, where, zeros_like

ITERATIONS = 15
"""Power iterations before the first use."""


class WeightNorm(Module):
    """g v / |v|; see `weight_norm`."""

    older_names: ClassVar[dict[str, str]] = {"_g": "original0", "_v": "original1"}

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        """The weight of its length and direction."""
        return v * (g / self._length(v))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Length and direction of a weight."""
        return self._length(weight), weight

    def _length(self, v: Tensor) -> Tensor:
        wide = arguments.widened(v)
        if self.dim is None:
            return (wide * wide).sum().sqrt().astype(v.dtype)
        axes = tuple(k for k in range(v.ndim) if k != self.dim % v.ndim)
        return (wide * wide).sum(axis=axes, keepdims=True).sqrt().astype(v.dtype)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn the lengths of a weight apart from its directions (Salimans and Kingma, 2016):
    `parametrizations.weight.original0` and `original1`. States with `weight_g` and `weight_v` are
    read, too.

    Args:
        module: that has the weight.
        name: of the weight.
        dim: the axis along which there is a length each; None: one for the whole weight.

    Returns:
        The module.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3))
        >>> layer.parametrizations.weight.original0.shape, layer.weight.shape
        ((8, 1, 1, 1), (8, 3, 3, 3))
    """
    return register_parametrization(module, name, WeightNorm(dim))


class Orthogonal(Module):
    """A matrix with orthonormal columns, or rows; see `orthogonal`."""

    base: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        rows, columns = weight.shape[-2:]
        n = max(rows, columns)
        self.register_buffer("base", eye(n, dtype=weight.dtype, device=weight.device))

    def forward(self, x: Tensor) -> Tensor:
        """The orthogonal matrix of what lies below the diagonal of a matrix."""
        turned = x.shape[-2] < x.shape[-1]
        below = (x.mT if turned else x).tril()
        n, k = below.shape[-2:]
        if n != k:
            below = F.pad(below, (0, n - k))
        skew = below - below.mT
        one = eye(n, dtype=x.dtype, device=x.device)
        q = linalg.solve(one - skew * 0.5, one + skew * 0.5)  # Cayley's map
        q = (self.base.detach() @ q)[..., :k]
        return q.mT if turned else q

    def right_inverse(self, value: Tensor) -> Tensor:
        """What gives the orthogonal matrix nearest to a weight in its first columns: zeros, beside
        another base.
        """
        matrix = value.detach().mT if value.shape[-2] < value.shape[-1] else value.detach()
        n, k = matrix.shape[-2:]
        if n != k:
            more = init.normal((*matrix.shape[:-1], n - k)).astype(matrix.dtype).to(matrix.device)
            matrix = concat([matrix, more], axis=-1)
        q, r = linalg.qr(matrix)
        signs = where(linalg.diagonal(r) < 0, -1.0, 1.0).astype(q.dtype)
        self.base.assign_(q * signs.unsqueeze(-2))
        return zeros_like(value)


def orthogonal(module: Module, name: str = "weight", orthogonal_map: str | None = None) -> Module:
    """Keep a matrix orthogonal: its columns are orthonormal, or its rows where they are fewer.

    Args:
        module: that has the weight, a matrix.
        name: of the weight.
        orthogonal_map: what makes an orthogonal matrix of a skew one: "cayley", also by default;
            "matrix_exp" and "householder" of torch are not there.

    Returns:
        The module. The weight becomes the orthogonal matrix that Gram and Schmidt make of it.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
        >>> (layer.weight @ layer.weight.T).detach().numpy().round(4).trace().item().__round__(3)
        3.0
    """
    weight = getattr(module, name)
    if orthogonal_map not in (None, "cayley"):
        raise ArgumentError(f'orthogonal_map is "cayley", not {orthogonal_map!r}')
    if weight.ndim != 2:
        raise ShapeError(f"orthogonal takes a matrix, not the shape {weight.shape}")
    return register_parametrization(module, name, Orthogonal(weight))


class SpectralNorm(Module):
    """A weight over its largest singular value; see `spectral_norm`."""

    older_names: ClassVar[dict[str, str]] = {"_orig": "original", "_u": "0._u", "_v": "0._v"}
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        self.dim = dim % weight.ndim if weight.ndim else dim
        self.n_power_iterations = arguments.size("n_power_iterations", iterations, 1)
        self.eps = arguments.number("eps", eps, 0)
        if weight.ndim > 1:
            with no_grad():
                matrix = self._matrix(weight.detach())
                for name, n in zip(("_u", "_v"), matrix.shape, strict=True):
                    drawn = init.normal((n,)).astype(weight.dtype).to(weight.device)
                    self.register_buffer(name, F.normalize(drawn, dim=0, eps=self.eps))
                self._iterate(matrix, ITERATIONS)

    def forward(self, weight: Tensor) -> Tensor:
        """The weight over its norm; training improves the vectors that tell it."""
        if weight.ndim < 2:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / (self._u.detach() @ (matrix @ self._v.detach()))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The weight itself."""
        return value

    def _matrix(self, weight: Tensor) -> Tensor:
        turned = weight.movedim(self.dim, 0) if self.dim else weight
        return turned.reshape(turned.shape[0], -1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        """Power iterations: u and v become singular vectors."""
        u, v = self._u, self._v
        for _ in range(times):
            u = F.normalize(matrix @ v, dim=0, eps=self.eps)
            v = F.normalize(matrix.T @ u, dim=0, eps=self.eps)
        self._u.assign_(u)
        self._v.assign_(v)


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al., 2018), which power iterations
    find, `n_power_iterations` of them each time that the weight is asked for while training. States
    with `weight_orig`, `weight_u` and `weight_v` are read, too.

    Args:
        module: that has the weight.
        name: of the weight.
        n_power_iterations: see above.
        eps: the least norm of a vector that is divided by.
        dim: the axis of the rows of the weight as a matrix; None: 1 for transposed convolutions,
            else 0.

    Returns:
        The module.

    Example:
        >>> import numpy as np
        >>> from cubepy import nn
        >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3))
        >>> bool(abs(np.linalg.norm(layer.eval().weight.numpy(), 2) - 1) < 0.05)
        True
    """
    if dim is None:
        dim = 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0
    weight = getattr(module, name)
    return register_parametrization(
        module, name, SpectralNorm(weight, n_power_iterations, dim, eps)
    )
