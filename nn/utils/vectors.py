"""All parameters of a model as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cubepy.errors import ArgumentError, ShapeError
from cubepy.nn import arguments
from cubepy.tensor import Tensor
from cubepy.tensor.namespace import concat


def parameters_to_vector(parameters: Iterable[Any]) -> Tensor:
    """The elements of all parameters, one behind the other; gradients go through.

    Args:
        parameters: tensors of any shapes.

    Raises:
        ArgumentError: there are none, or something is no tensor.

    Example:
        >>> from cubepy import nn
        >>> layer = nn.Linear(2, 3)
        >>> nn.utils.parameters_to_vector(layer.parameters()).shape
        (9,)
    """
    given = arguments.tensors(parameters)
    if not given:
        raise ArgumentError("there are no parameters", hint="give model.parameters()")
    return concat([p.reshape(-1) for p in given])


def vector_to_parameters(vec: Any, parameters: Iterable[Any]) -> None:
    """Give parameters the elements of a vector, in the order of `parameters_to_vector`.

    Args:
        vec: (n), as many elements as all parameters have.
        parameters: whose elements are replaced.

    Raises:
        ArgumentError: `vec` or something else is no tensor.
        ShapeError: the vector has another length.

    Example:
        >>> from cubepy import nn
        >>> x = nn.Parameter([3.0, 4.0])
        >>> nn.utils.vector_to_parameters(nn.utils.parameters_to_vector([x]) * 2, [x])
        >>> x.numpy()
        array([6., 8.], dtype=float32)
    """
    (vec,), given = arguments.tensors([vec]), arguments.tensors(parameters)
    size = sum(p.size for p in given)
    if vec.shape != (size,):
        raise ShapeError(f"the parameters have {size} elements, but vec has shape {vec.shape}")
    at, whole = 0, vec.detach()
    for p in given:
        p.assign_(whole[at : at + p.size].reshape(p.shape).to(p.device).astype(p.dtype))
        at += p.size
