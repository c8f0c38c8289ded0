"""A model's `config.json`, asked for what it says, with errors that name what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from cubepy.errors import FileFormatError

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
}
"""Our names of activations by those of configs."""
MOST = 1 << 31
LAYERS = 10_000
"""What no model has."""


class Settings:
    """Numbers and switches of a config by name.

    Example:
        >>> Settings({"hidden_size": 8}, "config.json").size("hidden_size")
        8
    """

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values, self.source = values, source

    def refuse(self, rule: str) -> FileFormatError:
        """An error of this config."""
        return FileFormatError(f"{self.source}: {rule}", hint="fetch the model's config again")

    def size(self, *names: str, default: int | None = None) -> int:
        """A positive integer under the first of the names that is there."""
        found = self.first(names, default)
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found < MOST:
            raise self.refuse(f"{names[0]} must be a positive integer, not {found!r}")
        return found

    def layers(self, *names: str, default: int | None = None) -> int:
        """How many layers there are: a module is made of each before weights are looked for."""
        found = self.size(*names, default=default)
        if found > LAYERS:
            raise self.refuse(f"{names[0]} must be at most {LAYERS}, not {found}")
        return found

    def number(self, *names: str, default: float | None = None) -> float:
        """A number under the first of the names that is there."""
        found = self.first(names, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise self.refuse(f"{names[0]} must be a number, not {found!r}")
        if not math.isfinite(found):
            raise self.refuse(f"{names[0]} must be a finite number, not {found!r}")
        return float(found)

    def flag(self, name: str, default: bool) -> bool:
        """A switch."""
        found = self.first((name,), default)
        if not isinstance(found, bool):
            raise self.refuse(f"{name} must be true or false, not {found!r}")
        return found

    def table(self, name: str) -> dict[str, Any]:
        """A table; empty where there is none."""
        found = self.values.get(name)
        if found is not None and not isinstance(found, dict):
            raise self.refuse(f"{name} must be a table, not {found!r}")
        return found or {}

    def activation(self, *names: str, default: str | None = None) -> str:
        """Our name of an activation."""
        found = self.first(names, default)
        if not isinstance(found, str) or found not in ACTIVATIONS:
            raise self.refuse(f"the activation {found!r} is not known: {', '.join(ACTIVATIONS)}")
        return ACTIVATIONS[found]

    def first(self, names: tuple[str, ...], default: Any) -> Any:
        """What stands under the first of the names that is there and not null."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        if default is None:
            raise self.refuse(f"{names[0]} is missing")
        return default
