"""Operators along an axis, of tensors without axes: torch takes those as tensors of one element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cubepy.tensor import Tensor


def lifted(run: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes its first tensor's axes away again, where it had none.

    Other tensors without axes become tensors of one element with it.

    Example:
        >>> import cubepy as cb
        >>> last = lifted(lambda x, dim: [x.max(dim), x.argmax(dim)])
        >>> last(cb.tensor(3.0), -1)
        [tensor(3.), tensor(0)]
    """

    @functools.wraps(run)
    def wrapped(x: Tensor, *args: Any, **said: Any) -> Any:
        if x.ndim:
            return run(x, *args, **said)
        given = [a.reshape(1) if isinstance(a, Tensor) and not a.ndim else a for a in args]
        found = run(x.reshape(1), *given, **said)
        if isinstance(found, list):
            return [one.reshape(()) if one.size == 1 else one for one in found]
        return found.reshape(()) if found.size == 1 else found

    return wrapped
