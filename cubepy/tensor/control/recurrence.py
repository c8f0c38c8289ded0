"""A recurrence as one op: states that go along a sequence, all steps in one launch but for some
GPUs.

Its gradient is so, too. Its formula in ops is a scan, through which other
gradients go, and those of gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.kernels.recurrent.problem import GATES, Function, cell_of
from cubepy.lang.dtypes import f32, f64
from cubepy.runtime.device import gpu_of
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.control.scan import scan
from cubepy.tensor.gradients.functional import through_formula
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace import arange, concat, stack, where, zeros_like

State = tuple[Tensor, ...]

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": lambda x, a, b: x.relu(),
    "tanh": lambda x, a, b: x.tanh(),
    "sigmoid": lambda x, a, b: x.sigmoid(),
    "affine": lambda x, a, b: x * a + b,
    "leakyrelu": lambda x, a, b: where(x < 0, x * a, x),
    "thresholdedrelu": lambda x, a, b: where(x > a, x, zeros_like(x)),
    "scaledtanh": lambda x, a, b: (x * b).tanh() * a,
    "hardsigmoid": lambda x, a, b: (x * a + b).maximum(0).minimum(1),
    "elu": lambda x, a, b: where(x < 0, x.minimum(0).expm1() * a, x),
    "softsign": lambda x, a, b: x / (x.abs() + 1),
    "softplus": lambda x, a, b: x.maximum(0) + (-x.abs()).exp().log1p(),
}


def activated(x: Tensor, how: Function, clip: float = 0.0) -> Tensor:
    """An activation of x, which is clipped before."""
    name, a, b = how
    return ACTIVATIONS[name](x.maximum(-clip).minimum(clip) if clip else x, a, b)


def serves(*given: Tensor | None, cell: str = "") -> bool:
    """Whether one op is the way for a recurrence of such tensors: dense floats of one dtype, on a
    GPU of a cell that it knows. Where somebody wants a gradient, that needs launches of its own,
    which 16 bits have not on the host.
    """
    there = [t for t in given if t is not None]
    like = there[0]
    wanted = mode.enabled and any(t.requires_grad for t in there)
    return (
        len({t.dtype for t in there}) == 1
        and like.dtype.is_float
        and not like.dtype.storage_only
        and all(t.storage.kind == "dense" for t in there)
        and len({gpu_of(t.device) for t in there}) == 1
        and (gpu_of(like.device) is None or cell in GATES)
        and (not wanted or at_once(like))
    )


def at_once(like: Tensor) -> bool:
    """Whether launches make gradients of a recurrence of a usual cell of such tensors."""
    return like.dtype in (f32, f64) or gpu_of(like.device) is not None


def recur(
    cell: str,
    gates: Tensor,
    matrix: Tensor,
    first: State,
    bias: Tensor | None = None,
    peepholes: Tensor | None = None,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> list[Tensor]:
    """The states of all steps and the last ones of a cell, in one launch.

    Args:
        cell: "lstm", "gru" (gates reset, update, new), "tanh" or "relu"; or a text of `Cell`.
        gates: inputs times their matrices, and biases, (T, B, D * G * H).
        matrix: of states, (D, G * H, H).
        first: h, and c of an LSTM, (D, B, H).
        bias: what is added to the states' products, (D, G * H).
        peepholes: of an LSTM's gates input, forget, output, (D, 3 * H).
        lengths: steps of each sequence, (B,).
        reverse: a single direction begins at the end; the second of two always does.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> gates, matrix = cb.tensor(np.ones((3, 1, 2))), cb.tensor(np.eye(2)[None])
        >>> y, h = recur("relu", gates, matrix, (cb.tensor(np.zeros((1, 1, 2))),))
        >>> y.tolist(), h.tolist()
        ([[[1.0, 1.0]], [[2.0, 2.0]], [[3.0, 3.0]]], [[[3.0, 3.0]]])
    """
    h, c = (*first, None)[:2]
    given = gates, matrix, bias, peepholes, lengths, h, c
    made: list[Tensor] = apply("recurrence", *given, cell=cell, reverse=reverse)
    return made


def formula(
    gates: Tensor,
    matrix: Tensor,
    bias: Tensor | None,
    peepholes: Tensor | None,
    h: Tensor,
    c: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    reverse: bool,
) -> list[Tensor]:
    """The same as scans in ops of tensors."""
    rows = matrix.shape[1]
    outputs, ends = [], []
    goes = None
    if lengths is not None:
        steps = arange(gates.shape[0], dtype="i64", device=gates.device).reshape(-1, 1, 1)
        goes = steps < lengths.astype("i64").reshape(1, -1, 1)
    for d in range(matrix.shape[0]):
        weights = (
            matrix[d].T,
            None if bias is None else bias[d],
            None if peepholes is None else peepholes[d],
        )
        given = gates[:, :, d * rows : (d + 1) * rows]
        first = (h[d],) if c is None else (h[d], c[d])

        def step(now: State, part: Any, weights: Any = weights) -> tuple[State, Tensor]:
            x, here = (part, None) if goes is None else part
            new = next_states(cell, x, now, *weights)
            if here is None:
                return new, new[0]
            kept = tuple(where(here, n, o) for n, o in zip(new, now, strict=True))
            return kept, where(here, new[0], zeros_like(new[0]))

        slices = given if goes is None else (given, goes)
        last, y = scan(step, first, slices, reverse=reverse or d == 1)
        outputs.append(y)
        ends.append(last)
    joined = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
    return [joined, *(stack(list(parts), axis=0) for parts in zip(*ends, strict=True))]


def next_states(
    cell: str, x: Tensor, now: State, matrix: Tensor, bias: Tensor | None, peepholes: Tensor | None
) -> State:
    """The states after a step; `matrix` is (H, G * H)."""
    found = cell_of(cell)
    functions, clip = found.functions, found.clip
    width = now[0].shape[-1]

    def part(t: Tensor, n: int) -> Tensor:
        return t[..., n * width : (n + 1) * width]

    if found.before:
        x = x if bias is None else x + bias
        both = x[..., : 2 * width] + now[0] @ matrix[:, : 2 * width]
        reset, update = (activated(part(both, n), functions[0], clip) for n in range(2))
        inner = part(x, 2) + (reset * now[0]) @ matrix[:, 2 * width :]
        new = activated(inner, functions[1], clip)
        return (new + update * (now[0] - new),)
    total = now[0] @ matrix
    total = total if bias is None else total + bias
    if found.kind == "lstm":
        i, f, n, o = (part(x, k) + part(total, k) for k in range(4))
        c = now[1]
        if peepholes is not None:
            i, f = i + part(peepholes, 0) * c, f + part(peepholes, 1) * c
        i = activated(i, functions[0], clip)
        f = 1 - i if found.coupled else activated(f, functions[0], clip)
        c = f * c + i * activated(n, functions[1], clip)
        o = o if peepholes is None else o + part(peepholes, 2) * c
        return activated(o, functions[0], clip) * activated(c, functions[2]), c
    if found.kind == "gru":
        gates = [part(x, k) + part(total, k) for k in range(2)]
        reset, update = (activated(gate, functions[0], clip) for gate in gates)
        new = activated(part(x, 2) + reset * part(total, 2), functions[1], clip)
        return (new + update * (now[0] - new),)
    return (activated(x + total, functions[0], clip),)


@vjp("recurrence")
def _recurrence(b: Backward, *grads: Any) -> Any:
    gates, matrix, bias, peepholes, lengths, h, c = b.inputs
    usual = b.attrs["cell"] in GATES
    if not mode.enabled and peepholes is None and usual and at_once(gates):
        return _backwards(b, *grads)

    def again(*given: Any) -> list[Tensor]:
        g, m, by_bias, holes, first, cells = given
        return formula(g, m, by_bias, holes, first, cells, lengths, **b.attrs)

    made = through_formula(again, (gates, matrix, bias, peepholes, h, c), grads)
    return (*made[:4], None, *made[4:])


def _backwards(b: Backward, by_y: Any, by_h: Any, by_c: Any = None) -> Any:
    """Gradients of all steps in one launch, and those of the matrix as one product behind it."""
    gates, matrix, bias, _, lengths, h, c = b.inputs
    given = gates, matrix, bias, lengths, h, c, b.results[0], by_y, by_h, by_c
    made = apply("recurrence_back", *given, **b.attrs)
    by_gates, by_first, before = made[0], made[1], made[2 if c is None else 3]
    by_sums = made[-1] if b.attrs["cell"] == "gru" else by_gates
    directions, rows, width = matrix.shape
    by_matrix = by_bias = None
    if b.needs[1]:
        turned = by_sums.reshape(-1, directions, rows).permute(1, 2, 0)
        by_matrix = turned @ before.reshape(directions, -1, width)
    if b.needs[2]:
        by_bias = by_sums.sum(axis=(0, 1)).reshape(directions, rows)
    return by_gates, by_matrix, by_bias, None, None, by_first, None if c is None else made[2]
