"""Globals and the like of a bound launch: as they were when it was bound, whatever they are when it
runs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from cubepy.backends.python.transform import code_of, with_names
from cubepy.compiler.reads import Guard


class Frozen:
    """What a kernel read while it was compiled, kept."""

    def __init__(self, guard: Guard) -> None:
        self.values = {
            (r.kind, id(r.of), r.key): _kept(r.value) for r in guard.reads if r.kind != "contents"
        }
        self.functions: dict[Any, Callable[..., Any]] = {}

    def generator_of(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`transform.generator_of` with these globals and cells."""
        made = self.functions.get(fn)
        if made is None:
            scope = dict(fn.__globals__)
            scope.update(
                {
                    key: v
                    for (kind, of, key), v in self.values.items()
                    if kind == "global" and of == id(fn.__globals__)
                }
            )
            free = {
                name: CellType(self.values["cell", id(cell), ""])
                if ("cell", id(cell), "") in self.values
                else cell
                for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
            }
            made = self.functions[fn] = with_names(code_of(fn), scope, free)
        return made

    def attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`."""
        key = "attribute", id(owner), name
        return self.values[key] if key in self.values else getattr(owner, name)


def _kept(value: Any) -> Any:
    """A value, with copies of what may change in place."""
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(_kept, value))
    if type(value) in (set, bytearray):
        return value.copy()
    return {k: _kept(v) for k, v in value.items()} if type(value) is dict else value
