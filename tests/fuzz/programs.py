"""Functions of tensors: op by op, and as programs of `cb.jit`, of which the third call is a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.tensor import as_tensor, concat, maximum
from tests.fuzz.check import Want, Wrong, compare
from tests.fuzz.draws import F32, FLOATS, Call, Draw, draws
from tests.fuzz.elementwise import sigmoid
from tests.fuzz.near import Near

Step = Callable[[Any, Any], Any]
STEPS: dict[str, tuple[Step, Step]] = {
    # of tensors, and of numbers that know their errors
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a.tanh() * b, lambda a, b: tanh(a) * b),
    "scaled": (lambda a, b: a * 0.3, lambda a, b: a.scaled(0.3)),
    "larger": (maximum, lambda a, b: a.larger(b)),
    "tanh": (lambda a, b: a.tanh(), lambda a, b: tanh(a)),
    "sigmoid": (lambda a, b: a.sigmoid(), lambda a, b: a.smooth(sigmoid, 0.25, 8)),
    "relu": (lambda a, b: a.relu(), lambda a, b: a.larger(zero(a))),
    "sin": (lambda a, b: a.tanh().sin(), lambda a, b: tanh(a).smooth(np.sin, 1, 4)),
    "exp": (lambda a, b: a.tanh().exp(), lambda a, b: tanh(a).smooth(np.exp, 3, 4)),
    "total": (lambda a, b: a.tanh().sum(axis=-1, keepdims=True) + b, lambda a, b: tanh(a).total() + b),
    "mean": (lambda a, b: b - a.mean(axis=-1, keepdims=True), lambda a, b: b - mean(a)),
    "highest": (lambda a, b: a.max(axis=-1, keepdims=True) - b, lambda a, b: a.highest() - b),
    "flipped": (lambda a, b: a.flip(-1) + b, lambda a, b: a.moved(lambda x: x[..., ::-1]) + b),
    "rolled": (lambda a, b: a.roll(1, -1) - b, lambda a, b: a.moved(lambda x: np.roll(x, 1, -1)) - b),
    "product": (lambda a, b: a.tanh() @ b.tanh().mT @ b, lambda a, b: tanh(a).product(turned(tanh(b))).product(b)),
    "joined": (
        lambda a, b: concat([a[..., :1], b[..., 1:]], axis=-1),
        lambda a, b: joined(a, b),
    ),
}  # fmt: skip


def tanh(a: Near) -> Near:
    return a.smooth(np.tanh, 1, 4)


def zero(a: Near) -> Near:
    return Near(np.zeros_like(a.value), np.zeros_like(a.value), a.dtype)


def mean(a: Near) -> Near:
    return a.total().scaled(1 / a.value.shape[-1])


def turned(a: Near) -> Near:
    return a.moved(lambda x: np.swapaxes(x, -1, -2))


def joined(a: Near, b: Near) -> Near:
    parts = [
        np.concatenate([x[..., :1], y[..., 1:]], -1)
        for x, y in ((a.value, b.value), (a.error, b.error))
    ]
    return Near(*parts, a.dtype)


@draws("tensors", "jit")
def _(d: Draw, name: str) -> Call:
    """Some steps over two arrays of one shape; all calls of a palette make the same ones."""
    d.vary(20)
    dtype = d.one((*FLOATS[:-1], F32))
    shape = d.shape(2, 3, low=1, elements=3000)
    arrays = [d.array(shape, dtype, d.any(("normal", "ties", "zeros"))) for _ in range(2)]
    steps = [
        (d.one(tuple(STEPS)), d.one(range(-3, 0)), d.one(range(-3, 0)))
        for _ in range(d.one(range(1, 7)))
    ]

    def made(inputs: list[Any], which: int) -> Any:
        values = list(inputs)
        for step, i, j in steps:
            values.append(
                STEPS[step][which](values[max(i, -len(values))], values[max(j, -len(values))])
            )
        return values[-1]

    def want() -> Want:
        near: Near = made([Near.of(a) for a in arrays], 1)
        return near.want

    def call(x: Any, y: Any) -> Any:
        inputs = [as_tensor(x), as_tensor(y)]
        if name == "tensors":
            return made(inputs, 0)
        program, wanted = cb.jit(lambda a, b: made([a, b], 0)), want()
        for n in range(3):  # traced, recorded, a plan
            got = program(*inputs)
            try:
                compare(got, wanted)
            except Wrong as error:
                raise Wrong(f"call {n} of a program of {steps}: {error}") from None
        return got

    call.__name__ = f"{name} {steps}"
    return Call(call, tuple(arrays), want, out=False)
