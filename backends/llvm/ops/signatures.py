"""numba's signatures of operators, ranges and ops, and of nothing else: to load all that numba
knows takes as long as a small kernel to compile.
"""

from __future__ import annotations

from typing import Any

from numba.core import typing
from numba.core.typing.templates import RegistryLoader


class Signatures(typing.Context):  # type: ignore[misc]
    """numba's typing of operators, ranges and our ops; without NumPy's functions, lists, ..."""

    def load_additional_registries(self) -> None:
        """None are needed."""

    def install_registry(self, registry: Any) -> None:
        """Attributes are left out: to declare one of an array or a text loads all of numba."""
        loader = self._registries.setdefault(registry, RegistryLoader(registry))
        for _ in loader.new_registrations("attributes"):
            """Taken, so that numba's own loop finds none."""
        super().install_registry(registry)


def code_of_operators() -> None:
    """Load what lowers operators and ranges: it registers where every target looks."""
    from numba.cpython import builtins, numbers, rangeobj  # noqa: F401
