"""Running ops: which function computes an op, by the kinds of storage that it reads.

Dense tensors run on the kernel library. A package that brings a storage of its own, such as
quantized weights, registers an executor for each op that can read it:

    @register("linear", "quantized")
    def quantized_linear(inputs, attrs): ...

An executor gets the storages (None for absent inputs) and the attributes, and returns an array or a
Storage. The device of the inputs is the current one while it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import KernelTypeError
from cubepy.tensor.ops import OPS
from cubepy.tensor.storage import Storage

Executor = Callable[[Sequence[Any], dict[str, Any]], Any]
_EXECUTORS: dict[tuple[str, str], Executor] = {}


def register(op: str, kind: str) -> Callable[[Executor], Executor]:
    """Register an executor of `op` for inputs of which some have storage of this kind (the others
    are dense).
    """

    def put(function: Executor) -> Executor:
        _EXECUTORS[op, kind] = function
        return function

    return put


def executors(kind: str) -> tuple[str, ...]:
    """The ops that can read a kind of storage."""
    return tuple(sorted(op for op, k in _EXECUTORS if k == kind))


def run(op: str, inputs: Sequence[Storage | None], attrs: dict[str, Any], dtype: np.dtype) -> Any:
    """Compute one op whose shapes are already checked: an array, a number or a storage.

    Args:
        op: its name.
        inputs: what it reads; None for what is absent.
        attrs: its attributes.
        dtype: of the result.

    Raises:
        KernelTypeError: no executor of the op reads such storage.
    """
    kind = "dense"
    for s in inputs:
        if s is not None and s.kind != "dense":
            kind = s.kind
    executor = _EXECUTORS.get((op, kind))
    if executor is not None:
        return executor(inputs, attrs)
    if kind == "dense":
        return OPS[op].run(dtype, *[None if s is None else s.dense() for s in inputs], **attrs)
    if OPS[op].composed:
        given = [s.dense() if s is not None and s.kind == "dense" else s for s in inputs]
        return OPS[op].run(dtype, *given, **attrs)
    raise KernelTypeError(
        f"the op {op!r} cannot read {kind} storage; only "
        f"{', '.join(executors(kind)) or 'no op'} can",
        hint="convert it first: cb.tensor(x.numpy())",
    )


__all__ = ["Executor", "executors", "register", "run"]
