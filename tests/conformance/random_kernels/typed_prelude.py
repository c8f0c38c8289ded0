"""What random kernels over every dtype may use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cubepy as cb


@cb.func
def doubled(x):
    return x + x


@cb.func
def picked(first, condition, second):
    """One of two structs."""
    if condition:
        return first
    return second


@dataclass(frozen=True)
class Settings:
    """A comptime record."""

    steps: int = 3
    scale: float = 0.5
    flag: bool = True
    items: tuple[int, ...] = (1, 4, 9)
    function: Callable[[Any], Any] = doubled
