"""What a module makes of itself once and keeps, such as programs of functions that read it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Derived:
    """A value, and the module that it was made of. Copies of the module, by `clone`, `deepcopy` or
    `pickle`, hold none: they make their own.
    """

    __slots__ = ("owner", "value")

    def __init__(self, owner: Any = None, value: Any = None) -> None:
        self.owner, self.value = owner, value

    def __deepcopy__(self, memo: dict[int, Any]) -> Derived:
        return Derived()

    def __reduce__(self) -> tuple[Any, ...]:
        return Derived, ()


def derived(module: Any, name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives, the first time for this module.

    Args:
        module: that it is made of.
        name: of the attribute that keeps it.
        make: makes it.

    Example:
        >>> from cubepy import nn
        >>> a = nn.ReLU()
        >>> first = derived(a, "_kept", object)
        >>> derived(a, "_kept", object) is first, derived(a.clone(), "_kept", object) is first
        (True, False)
    """
    found = module.__dict__.get(name)
    if found is None or found.owner is not module:
        found = module.__dict__[name] = Derived(module, make())
    return found.value
