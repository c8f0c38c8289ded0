"""LSTM, GRU and plain recurrent layers, in one or both directions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cubepy import tensor as T
from cubepy.kernels.recurrent.problem import USUAL, Cell, Function
from cubepy.models.onnx.ops.indexing import reversed_until
from cubepy.models.onnx.records import Call, operator
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, scan
from cubepy.tensor.control.recurrence import ACTIVATIONS, activated, recur, serves
from cubepy.tensor.record import recording_here

SHORT = 8
"""Steps up to which a program has them written out."""
State = tuple[Tensor, ...]

DEFAULTS = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0),
}


def functions_of(call: Call, usual: tuple[str, ...], directions: int) -> list[list[Function]]:
    """The names of the functions of each direction, with their alpha and beta."""
    names = [n.lower() for n in call.get("activations") or usual * directions]
    alphas, betas = list(call.get("activation_alpha", [])), list(call.get("activation_beta", []))
    found = []
    for name in names:
        if name not in ACTIVATIONS:
            raise call.refuse(f"the activation {name!r}")
        a, b = DEFAULTS.get(name, (0.0, 0.0))
        if name in DEFAULTS:
            a = alphas.pop(0) if alphas else a
            if name in ("affine", "scaledtanh", "hardsigmoid"):
                b = betas.pop(0) if betas else b
        found.append((name, float(a), float(b)))
    if len(found) != len(usual) * directions:
        raise call.refuse(f"{len(found)} activations for {directions} directions")
    return [found[k : k + len(usual)] for k in range(0, len(found), len(usual))]


def activations(call: Call, usual: tuple[str, ...], directions: int) -> list[list[Any]]:
    """The functions of each direction."""
    return [
        [partial(activated, how=how) for how in one]
        for one in functions_of(call, usual, directions)
    ]


def cells_in(call: Call, kind: str, before: bool = False) -> list[str]:
    """The cells of a node's directions as `recur` names them."""
    usual = USUAL.get(kind, ("tanh",))
    found = []
    for functions in map(tuple, functions_of(call, usual, _count(call))):
        one = "relu" if kind == "tanh" and functions == (("relu", 0.0, 0.0),) else kind
        coupled = one == "lstm" and bool(call.get("input_forget", 0))
        found.append(Cell(one, functions, float(call.get("clip", 0.0)), coupled, before).text)
    return found


def along(
    step: Callable[[State, Any], State], first: State, parts: Any, back: bool
) -> tuple[State, Tensor]:
    """Step after step along the first axis; the last states, and all outputs."""
    count = (parts[0] if isinstance(parts, tuple) else parts).shape[0]

    def one(now: State, part: Any) -> tuple[State, Tensor]:
        new = step(now, part)
        return new, new[0]

    if recording_here() and count > SHORT:
        return scan(one, first, parts, reverse=back)
    found: list[Any] = [None] * count
    state = first
    for k in range(count - 1, -1, -1) if back else range(count):
        part = tuple(p[k] for p in parts) if isinstance(parts, tuple) else parts[k]
        state = step(state, part)
        found[k] = state[0].unsqueeze(0)
    if not found:
        return state, state[0].unsqueeze(0)[:0]
    return state, T.concat(found, axis=0)


def masked(step: Callable[[State, Tensor], State]) -> Callable[[State, Any], State]:
    """A step that leaves rows that have ended as they are."""

    def run(now: State, part: Any) -> State:
        x, goes = part
        new = step(now, x)
        return tuple(T.where(goes, n, o) for n, o in zip(new, now, strict=True))

    return run


def layer(
    call: Call,
    x: Tensor,
    lengths: Tensor | None,
    first: list[State],
    steps: list[Callable[[State, Tensor], State]],
    project: Callable[[int, Tensor], Tensor],
) -> tuple[Any, ...]:
    """All directions of a layer; outputs (time, directions, batch, width) and last states."""
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    outputs, ends = [], []
    for d, back in enumerate(ways[call.get("direction", "forward")]):
        step, data, state = steps[d], x, first[d]
        if lengths is None:
            last, y = along(step, state, project(d, data), back)
        else:
            if back:
                data = reversed_until(data, lengths, 0, 1)
            time = T.arange(x.shape[0], dtype="i64", device=x.device).reshape(-1, 1, 1)
            goes = time < lengths.astype("i64").reshape(1, -1, 1)
            last, y = along(masked(step), state, (project(d, data), goes), False)
            y = T.where(goes, y, T.zeros_like(y))
            y = reversed_until(y, lengths, 0, 1) if back else y
        outputs.append(y)
        ends.append(last)
    joined = T.stack(outputs, axis=1)
    states = [T.stack(list(parts), axis=0) for parts in zip(*ends, strict=True)]
    if call.get("layout", 0):
        return joined.permute(2, 0, 1, 3), *(s.permute(1, 0, 2) for s in states)
    return joined, *states


def prepared(
    call: Call, x: Tensor, width: int, usual: tuple[str, ...], *states: Tensor | None
) -> tuple[Tensor, list[Tensor], list[list[Any]]]:
    """What `begun` gives, and the activations of each direction."""
    return *begun(call, x, width, *states), activations(call, usual, _count(call))


def begun(call: Call, x: Tensor, width: int, *states: Tensor | None) -> tuple[Tensor, list[Tensor]]:
    """The input with time first; first states (directions, batch, width), of zeros where none are
    given.
    """
    count, batched = _count(call), bool(call.get("layout", 0))
    x = x.permute(1, 0, 2) if batched else x
    first = [
        T.zeros((count, x.shape[1], width), dtype=x.dtype, device=x.device)
        if s is None
        else (s.permute(1, 0, 2) if batched else s)
        for s in states
    ]
    return x, first


def _count(call: Call) -> int:
    way = call.get("direction", "forward")
    if way not in ("forward", "reverse", "bidirectional"):
        raise call.refuse(f"the direction {way!r}")
    return 2 if way == "bidirectional" else 1


def _clipped(call: Call, x: Tensor) -> Tensor:
    limit = call.get("clip", 0.0)
    return x.maximum(-limit).minimum(limit) if limit else x


def at_once(
    call: Call,
    cells: list[str],
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    lengths: Tensor | None,
    states: tuple[Tensor | None, ...],
    peepholes: Tensor | None = None,
) -> tuple[Any, ...] | None:
    """All steps of a layer in one launch, or in one for each direction where their cells differ;
    None where that is not for it.

    Args:
        call: the node.
        cells: of each direction, see `recur`.
        x: inputs, as the node has them.
        weights: matrices of inputs and of states, biases (directions, rows) of their products; in
            the order of the gates of `recur`.
        lengths: of the sequences.
        states: the first ones, as the node has them.
        peepholes: in the order of `recur`.
    """
    w, r, b, c = weights
    x, first = begun(call, x, r.shape[2], *states)
    known = cells[0] if len(set(cells)) == 1 else ""
    if not serves(x, w, r, b, c, peepholes, *first, cell=known):
        return None
    gates = F.linear(x, w.reshape(-1, w.shape[2]), None if b is None else b.reshape(-1))
    back = call.get("direction", "forward") == "reverse"
    if len(set(cells)) == 1:
        y, *last = recur(cells[0], gates, r, tuple(first), c, peepholes, lengths, back)
        return laid_out(call, y, last)
    rows, made = r.shape[1], []
    for d, cell in enumerate(cells):
        one = slice(d, d + 1)
        bias, holes = (None if t is None else t[one] for t in (c, peepholes))
        states_of = tuple(s[one] for s in first)
        given = gates[:, :, d * rows : (d + 1) * rows]
        made.append(recur(cell, given, r[one], states_of, bias, holes, lengths, d == 1))
    y = T.concat([one[0] for one in made], axis=-1)
    last = [T.concat(list(ends), axis=0) for ends in zip(*(one[1:] for one in made), strict=True)]
    return laid_out(call, y, last)


def laid_out(call: Call, y: Tensor, last: list[Tensor]) -> tuple[Any, ...]:
    """What a recurrence gives, with the axes of the node."""
    count, _, width = last[0].shape
    y = y.reshape(*y.shape[:2], count, width)
    if call.get("layout", 0):
        return y.permute(1, 0, 2, 3), *(s.permute(1, 0, 2) for s in last)
    single = 1 in y.shape[1:3]
    y = y.reshape(y.shape[0], count, y.shape[1], y.shape[3]) if single else y.permute(0, 2, 1, 3)
    return y, *last


def ordered(weights: Tensor, order: tuple[int, ...], width: int) -> Tensor:
    """Weights (directions, rows, ...) with their gates in another order."""
    parts = [weights[:, k * width : (k + 1) * width] for k in order]
    return T.concat(parts, axis=1)


@operator("LSTM")
def lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    p: Tensor | None = None,
) -> tuple[Any, ...]:
    """Long short-term memory; gates are input, output, forget, cell (Hochreiter, 1997)."""
    width = r.shape[2]
    w_now, r_now = (ordered(m, (0, 2, 3, 1), width) for m in (w, r))
    bias = None
    if b is not None:
        bias = ordered(b[:, : 4 * width] + b[:, 4 * width :], (0, 2, 3, 1), width)
    holes = None if p is None else ordered(p, (0, 2, 1), width)
    weights = (w_now, r_now, bias, None)
    made = at_once(call, cells_in(call, "lstm"), x, weights, lengths, (h, c), holes)
    if made is not None:
        return made
    backs = [r[d].T for d in range(r.shape[0])]
    products = (lambda d, t: t @ w[d].T), (lambda d, t: t @ backs[d])
    return lstm_of(call, x, r.shape[-1], (b, lengths, h, c, p), products)


Product = Callable[[int, Tensor], Tensor]


def lstm_of(
    call: Call,
    x: Tensor,
    width: int,
    others: tuple[Tensor | None, ...],
    products: tuple[Product, Product],
) -> tuple[Any, ...]:
    """An LSTM whose products are functions.

    Args:
        call: the node.
        x: inputs (time, batch, features).
        width: of states.
        others: biases, lengths, first states and cells, peepholes.
        products: what is multiplied with inputs, and with states, of (direction, tensor).
    """
    b, lengths, h, c, p = others
    of_input, of_state = products
    x, (h, c), chosen = prepared(call, x, width, ("sigmoid", "tanh", "tanh"), h, c)

    def step_of(d: int) -> Callable[[State, Tensor], State]:
        f, g, out = chosen[d]
        peep = None if p is None else [p[d, k * width : (k + 1) * width] for k in range(3)]

        def step(now: State, part: Tensor) -> State:
            last, cell = now
            gates = part + of_state(d, last)
            i, o, k, n = (gates[:, j * width : (j + 1) * width] for j in range(4))
            if peep is not None:
                i, k = i + peep[0] * cell, k + peep[2] * cell
            i, k, n = f(_clipped(call, i)), f(_clipped(call, k)), g(_clipped(call, n))
            k = 1 - i if call.get("input_forget", 0) else k
            cell = k * cell + i * n
            o = o if peep is None else o + peep[1] * cell
            return f(_clipped(call, o)) * out(cell), cell

        return step

    def project(d: int, data: Tensor) -> Tensor:
        made = of_input(d, data)
        return made if b is None else made + (b[d, : 4 * width] + b[d, 4 * width :])

    first: list[State] = [(h[d], c[d]) for d in range(len(chosen))]
    return layer(call, x, lengths, first, [step_of(d) for d in range(len(chosen))], project)


@operator("GRU")
def gru(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Any, ...]:
    """Gated recurrent units; gates are update, reset, hidden (Cho et al., 2014)."""
    width = r.shape[-1]
    linear_first = bool(call.get("linear_before_reset", 0))
    parts: list[Tensor | None] = [None, None]
    if b is not None:
        one, other = b[:, : 3 * width], b[:, 3 * width :]
        parts = [one, other] if linear_first else [one + other, None]
    given = [None if m is None else ordered(m, (1, 0, 2), width) for m in (w, r, *parts)]
    cells = cells_in(call, "gru", not linear_first)
    made = at_once(call, cells, x, tuple(given), lengths, (h,))  # type: ignore[arg-type]
    if made is not None:
        return made
    x, (h,), chosen = prepared(call, x, width, ("sigmoid", "tanh"), h)

    def step_of(d: int) -> Callable[[State, Tensor], State]:
        f, g = chosen[d]
        both, hidden = r[d, : 2 * width].T, r[d, 2 * width :].T
        bias = None if b is None else b[d, 5 * width :]

        def step(now: State, part: Tensor) -> State:
            (last,) = now
            gates = part[:, : 2 * width] + last @ both
            z = f(_clipped(call, gates[:, :width]))
            reset = f(_clipped(call, gates[:, width:]))
            if linear_first:
                inner = last @ hidden
                inner = reset * (inner if bias is None else inner + bias)
            else:
                inner = (reset * last) @ hidden
                inner = inner if bias is None else inner + bias
            n = g(_clipped(call, part[:, 2 * width :] + inner))
            return ((1 - z) * n + z * last,)

        return step

    def project(d: int, data: Tensor) -> Tensor:
        made = data @ w[d].T
        if b is None:
            return made
        zeros = T.zeros((width,), dtype=b.dtype, device=b.device)
        return made + b[d, : 3 * width] + T.concat([b[d, 3 * width : 5 * width], zeros], axis=0)

    first: list[State] = [(h[d],) for d in range(len(chosen))]
    return layer(call, x, lengths, first, [step_of(d) for d in range(len(chosen))], project)


@operator("RNN")
def rnn(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Any, ...]:
    """A plain recurrent layer."""
    width = r.shape[-1]
    bias = None if b is None else b[:, :width] + b[:, width:]
    made = at_once(call, cells_in(call, "tanh"), x, (w, r, bias, None), lengths, (h,))
    if made is not None:
        return made
    x, (h,), chosen = prepared(call, x, width, ("tanh",), h)

    def step_of(d: int) -> Callable[[State, Tensor], State]:
        back = r[d].T
        return lambda now, part: (chosen[d][0](_clipped(call, part + now[0] @ back)),)

    def project(d: int, data: Tensor) -> Tensor:
        made = data @ w[d].T
        return made if b is None else made + (b[d, :width] + b[d, width:])

    first: list[State] = [(h[d],) for d in range(len(chosen))]
    return layer(call, x, lengths, first, [step_of(d) for d in range(len(chosen))], project)
