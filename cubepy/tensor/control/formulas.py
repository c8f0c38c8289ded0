"""Methods of tensors that are several ops: one pass over memory, and one gradient, where they come
often.
"""

from __future__ import annotations

from typing import Any

from cubepy.tensor.control.composed import composed


@composed
def lerp(x: Any, end: Any, weight: Any) -> Any:
    """x + weight (end - x)

    Example:
        >>> import cubepy as cb
        >>> lerp(cb.tensor([0.0, 1.0]), cb.tensor([10.0, 11.0]), 0.25)
        tensor([2.5, 3.5])
    """
    return x + (end - x) * weight


@composed
def addcmul(x: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    """x + value * tensor1 * tensor2

    Example:
        >>> import cubepy as cb
        >>> addcmul(cb.tensor([1.0]), cb.tensor([2.0]), cb.tensor([3.0]), 0.5)
        tensor([4.])
    """
    return x + tensor1 * tensor2 * value


@composed
def addcdiv(x: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
    """x + value * tensor1 / tensor2

    Example:
        >>> import cubepy as cb
        >>> addcdiv(cb.tensor([1.0]), cb.tensor([6.0]), cb.tensor([3.0]), 0.5)
        tensor([2.])
    """
    return x + tensor1 / tensor2 * value
