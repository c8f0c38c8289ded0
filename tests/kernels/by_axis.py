"""Public functions of an array and an axis: tables of calls take those that nobody has listed by
themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from cubepy import kernels as K


def functions_of_an_axis() -> dict[str, Callable[..., Any]]:
    """Functions whose first two parameters are an array and `axis`, and that need nothing else."""
    found = {}
    for name in K.__all__:
        function = getattr(K, name)
        if inspect.isfunction(function):
            array, *others = inspect.signature(function).parameters.values()
            if array.name == "x" and others and others[0].name == "axis":
                if all(p.default is not p.empty for p in others[1:]):
                    found[name] = function
    return found
