"""A program on the side: on memory of its own and with launches that do nothing, so that others can
compile what it is going to need (see `runtime.ahead.foresight`).

Of small inputs the values are there, since what is done may depend on them; others are zeros that
nobody touches, laid out and aligned as the inputs are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.config import config
from cubepy.runtime.device import Device, use
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.spans import extent
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph
from cubepy.tensor.modes import no_grad
from cubepy.tensor.ops import Spec
from cubepy.tensor.ops.op import infer
from cubepy.tensor.program.plans.arena import LINE
from cubepy.tensor.storage import Dense

SMALL = 1 << 12
"""Bytes of an input whose values are copied."""
LEFT_OUT = frozenset(
    """cholesky inv det slogdet solve eigh qr svd
    scan cond while_loop checkpoint program custom_call""".split()
)
"""Ops that loop, branch or compute on the host by values, of which there are none here. Packed
weights are left alone as well: they keep what launches make of them.
"""


def stand_ins(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tensors that stand for those of a run; equal ones for equal ones. Packed ones, which no op
    writes, stand for themselves.
    """
    made: dict[int, Tensor] = {}
    found = []
    for tensor in tensors:
        array = tensor.storage.dense() if tensor.storage.kind == "dense" else None
        if type(array) is not np.ndarray:
            found.append(tensor)
            continue
        if id(array) not in made:
            made[id(array)] = object.__new__(Tensor)
            made[id(array)].value = type(tensor.value)(Dense(stand_in(array)))
        found.append(made[id(array)])
    return found


def stand_in(array: np.ndarray) -> np.ndarray:
    """Memory of its own in the layout of an array, which begins where that does in a line."""
    low, high = extent(array)
    room = np.zeros(high - low + LINE, np.uint8)
    begin = (address(array) + low - address(room)) % LINE
    made = np.ndarray(array.shape, array.dtype, room.data, begin - low, array.strides)
    if array.nbytes <= SMALL:
        made[...] = array
    made.flags.writeable = array.flags.writeable
    return made


def foreseen(op: str, *inputs: Tensor | None, **attrs: Any) -> Any:
    """What `apply` gives of launches that do nothing: results of these shapes, whatever is in them.

    An op that cannot go on from there, since it looks at values, gives memory that nobody has
    touched.
    """
    if op not in LEFT_OUT and all(t is None or t.storage.kind == "dense" for t in inputs):
        with contextlib.suppress(Exception):  # of values that are none: the real run tells its own
            return apply(op, *inputs, **attrs)
    specs = [None if t is None else Spec(t.shape, t.dtype) for t in inputs]
    found = infer(op, specs, attrs)
    made = [
        Tensor(Dense(np.zeros(s.shape, s.dtype.numpy)))
        for s in (found if type(found) is list else [found])
    ]
    return made if type(found) is list else made[0]


def on_the_side(graph: Graph, tensors: Sequence[Tensor], home: Device) -> Callable[[], None]:
    """What runs a graph on the side, on what stands for its inputs."""

    def run() -> None:
        if config.tune == "none":  # launches that do nothing tell no times
            with no_grad(), use(home), np.errstate(all="ignore"):
                execute(graph, stand_ins(tensors), run=foreseen)

    return run
