"""The extension linalg of the array API (2024.12): `cubepy.tensor.linalg`.

Example:
    >>> import cubepy as cb
    >>> from cubepy.tensor import linalg
    >>> x = cb.tensor([[4.0, 2.0], [2.0, 5.0]])
    >>> linalg.cholesky(x)
    tensor([[2., 0.],
            [1., 2.]])
    >>> linalg.solve(x, cb.tensor([8.0, 12.0]))
    tensor([1., 2.])
"""

from __future__ import annotations

from cubepy.tensor.linalg import functions, gradients, more
from cubepy.tensor.linalg.functions import *
from cubepy.tensor.linalg.more import *

_GRADIENTS = gradients
"""Imported for the gradients that it adds to ops."""

__all__: list[str] = []
__all__ += functions.__all__
__all__ += more.__all__
