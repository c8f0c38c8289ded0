"""Whether ops remember how to be differentiated: a mode of the thread."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from typing import Any


class _Mode(threading.local):
    enabled = True
    assigned: list[Any] | None = None

    def __cubepy_reads__(self, reads: Any) -> None:
        """Nothing: it is part of the kind of a call, and of each thread."""


mode = _Mode()
"""`enabled`: whether what is computed from tensors that need gradients remembers it. `assigned`:
handles that were given values with gradients since a `grad` began; None outside of all."""


class set_grad_enabled(ContextDecorator):
    """Remember how tensors are computed, or do not, from here on; as a context manager, within the
    block; as a decorator, within the function.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0], requires_grad=True)
        >>> with cb.set_grad_enabled(False):
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    def __init__(self, enabled: bool) -> None:
        self.enabled, self.before = bool(enabled), mode.enabled
        mode.enabled = self.enabled

    def __enter__(self) -> None:
        mode.enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        mode.enabled = self.before


class _Within(ContextDecorator):
    """A mode within a block or a function; blocks of one object may nest."""

    enabled: bool

    def __init__(self) -> None:
        self.before: list[bool] = []

    def _recreate_cm(self) -> Any:
        return type(self)()

    def __enter__(self) -> None:
        self.before.append(mode.enabled)
        mode.enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        mode.enabled = self.before.pop()


class no_grad(_Within):
    """What is computed within does not remember how: it needs no gradients and keeps no inputs.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0], requires_grad=True)
        >>> with cb.no_grad():
        ...     y = x * 2
        >>> y.requires_grad
        False
    """

    enabled = False


class enable_grad(_Within):
    """Within a `no_grad`, remember again how tensors are computed.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0, 2.0], requires_grad=True)
        >>> with cb.no_grad(), cb.enable_grad():
        ...     y = x * 2
        >>> y.requires_grad
        True
    """

    enabled = True


def is_grad_enabled() -> bool:
    """Whether this thread remembers how tensors are computed.

    Example:
        >>> import cubepy as cb
        >>> cb.is_grad_enabled()
        True
    """
    return mode.enabled
