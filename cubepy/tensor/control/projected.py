"""An LSTM that projects its states, as one op.

Its steps are one launch on a CPU, and so are those of its gradient; its formula is a scan, as for
`recurrence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.control.recurrence import at_once
from cubepy.tensor.control.scan import scan
from cubepy.tensor.gradients.functional import through_formula
from cubepy.tensor.gradients.rules import Backward, vjp
from cubepy.tensor.modes import mode
from cubepy.tensor.namespace import arange, concat, stack, where, zeros_like


def formula(
    gates: Tensor,
    matrix: Tensor,
    projection: Tensor,
    lengths: Tensor | None,
    h: Tensor,
    c: Tensor,
    reverse: bool,
) -> list[Tensor]:
    """What "projected_recurrence" gives, as scans in ops of tensors."""
    rows = matrix.shape[1]
    states, made, ends = [], [], []
    goes = None
    if lengths is not None:
        steps = arange(gates.shape[0], dtype="i64", device=gates.device).reshape(-1, 1, 1)
        goes = steps < lengths.astype("i64").reshape(1, -1, 1)
    for d in range(matrix.shape[0]):
        weights = matrix[d].T, projection[d].T

        def step(now: Any, part: Any, weights: Any = weights) -> Any:
            x, here = (part, None) if goes is None else part
            m, c = _cell(x + now[0] @ weights[0], now[1])
            new = m @ weights[1], c
            if here is None:
                return new, (new[0], m)
            kept = tuple(where(here, n, o) for n, o in zip(new, now, strict=True))
            return kept, tuple(where(here, t, zeros_like(t)) for t in (new[0], m))

        part = gates[:, :, d * rows : (d + 1) * rows]
        slices = part if goes is None else (part, goes)
        last, (y, m) = scan(step, (h[d], c[d]), slices, reverse=reverse or d == 1)
        states.append(y)
        made.append(m)
        ends.append(last)
    last = [stack(list(parts), axis=0) for parts in zip(*ends, strict=True)]
    return [_side_by_side(states), *last, _side_by_side(made)]


def _side_by_side(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else concat(parts, axis=-1)


def _cell(total: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """What cells give, and the next ones."""
    n = c.shape[-1]
    i, f, g, o = (total[..., k * n : (k + 1) * n] for k in range(4))
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


@vjp("projected_recurrence")
def _projected(b: Backward, *grads: Any) -> Any:
    gates, matrix, projection, lengths, h, c = b.inputs
    if not mode.enabled and at_once(gates) and grads[3] is None:
        return _backwards(b, *grads[:3])

    def again(g: Any, m: Any, p: Any, first: Any, cells: Any) -> list[Tensor]:
        return formula(g, m, p, lengths, first, cells, **b.attrs)

    made = through_formula(again, (gates, matrix, projection, h, c), grads)
    return (*made[:3], None, *made[3:])


def _backwards(b: Backward, by_y: Any, by_h: Any, by_c: Any) -> Any:
    """Gradients of all steps in one launch, and those of both matrices as products behind it."""
    gates, matrix, projection, lengths, h, c = b.inputs
    made = b.results[3]
    given = gates, matrix, projection, lengths, h, c, b.results[0], by_y, by_h, by_c
    found = apply("projected_recurrence_back", *given, **b.attrs)
    by_gates, by_first, by_cells, before, by_states = found
    directions, rows, narrow = matrix.shape
    count = gates.shape[0] * gates.shape[1]
    by_matrix = by_projection = None
    if b.needs[1]:
        turned = by_gates.reshape(count, directions, rows).permute(1, 2, 0)
        by_matrix = turned @ before.reshape(directions, count, narrow)
    if b.needs[2]:
        turned = by_states.reshape(count, directions, narrow).permute(1, 2, 0)
        by_projection = turned @ made.reshape(count, directions, c.shape[-1]).permute(1, 0, 2)
    return by_gates, by_matrix, by_projection, None, by_first, by_cells
