"""Modules that are made of a file's graph: copies of them are made of the graph, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from cubepy import nn
from cubepy.nn import Parameter
from cubepy.nn.module import tables
from cubepy.tensor import Tensor


class Rebuilt(nn.Module):
    """A module that can be made again of what it was made of, and then takes over the tensors."""

    def source(self) -> tuple[Any, ...]:
        """What the class is called with to make such a module again."""
        raise NotImplementedError

    def clone(self, _done: dict[int, Any] | None = None) -> Any:
        """A copy that shares the memory of its tensors; training one leaves the other alone."""
        done = {} if _done is None else _done
        if id(self) not in done:
            made = done[id(self)] = type(self)(*self.source())
            for (table, key, mine), (_, _, own) in zip(held(made), held(self), strict=True):
                if id(own) not in done:
                    done[id(own)] = _taken_over(mine, own)
                table[key] = done[id(own)]
            _switch(made, [module.training for module in self.modules()])
        return done[id(self)]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.clone(memo)

    def __reduce__(self) -> tuple[Any, ...]:
        fresh = type(self)(*self.source())
        values = [
            None if _one_memory(mine, own) else own
            for (_, _, mine), (_, _, own) in zip(held(fresh), held(self), strict=True)
        ]
        wanted = [isinstance(own, Parameter) and own.requires_grad for _, _, own in held(self)]
        modes = [module.training for module in self.modules()]
        return type(self), self.source(), (values, wanted, modes)

    def __setstate__(self, state: tuple[list[Any], list[bool], list[bool]]) -> None:
        values, wanted, modes = state
        for (table, key, mine), value, grad in zip(held(self), values, wanted, strict=True):
            if value is not None:
                table[key] = value
            elif grad:
                mine.requires_grad_()
        _switch(self, modes)


def held(model: nn.Module) -> Iterator[tuple[dict[str, Any], str, Tensor]]:
    """Tables, names and values of all parameters and buffers."""
    for _, table, key in tables(model):
        if table[key] is not None:
            yield table, key, table[key]


def _taken_over(mine: Tensor, own: Tensor) -> Tensor:
    """The tensor of a copy: with the elements of its own, and learning if that does."""
    if not isinstance(own, Parameter) or not isinstance(mine, Parameter):
        return own.detach() if not isinstance(own, Parameter) else Parameter(own, own.requires_grad)
    mine.take_over_(own)
    if mine.requires_grad is not own.requires_grad:
        mine.requires_grad_(own.requires_grad)
    return mine


def _switch(model: nn.Module, modes: list[bool]) -> None:
    for module, mode in zip(model.modules(), modes, strict=True):
        module.__dict__["training"] = mode


def _one_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have the same elements because they lie in the same place."""
    if a.storage.kind != "dense" or b.storage.kind != "dense" or a.dtype is not b.dtype:
        return False
    found = [tensor.storage.dense() for tensor in (a, b)]
    if not all(isinstance(array, np.ndarray) for array in found):
        return False
    first, second = (array.__array_interface__ for array in found)
    return bool(first["data"] == second["data"] and first["strides"] == second["strides"])
