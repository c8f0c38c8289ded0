"""Branches, loops, sequences and optionals."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import numpy as np

from cubepy import tensor as T
from cubepy.errors import CubeError, ModelError
from cubepy.models.onnx.ops.loops import as_scan, rounds_of, slices_as_scan
from cubepy.models.onnx.records import Call, axis_of, ints, operator, shape_of
from cubepy.models.onnx.runner import NeedsElements, host_of, liftable
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, cond
from cubepy.tensor.record import recording_here

MOST_UNROLLED = 32
"""Rounds of a loop up to which a program has them written out."""
MOST_ROUNDS = 2**31
MOST_BRANCHED = 64
"""Nodes of a branch up to which both are part of a program, whichever a call takes."""


def truth(value: Any) -> bool:
    """What a condition says."""
    return bool(np.asarray(host_of(value)).reshape(-1)[0])


def several(values: list[Any]) -> Any:
    """Values as what a record gives."""
    return tuple(values)


@operator("If", plain=True)
def if_(call: Call, condition: Any) -> Any:
    """One of two subgraphs."""
    branches = call["then_branch"], call["else_branch"]
    try:
        chosen = branches[0 if truth(condition) else 1]
    except NeedsElements:
        if max(map(nodes_in, branches)) > MOST_BRANCHED or gpu_of(condition.device) is not None:
            raise
        return several(as_cond(call, condition, branches))
    return several(call.run_graph(chosen, []))


def as_cond(call: Call, condition: Tensor, branches: Any) -> list[Tensor]:
    """One of two subgraphs, which a program chooses."""

    def run(branch: Any) -> Any:
        found = call.run_graph(branch, [])
        if not all(isinstance(value, Tensor) for value in found):
            raise NeedsElements  # what is no tensor may decide shapes, or is a sequence
        return found

    try:
        given: list[Tensor] = cond(condition, *(partial(run, branch) for branch in branches))
    except CubeError as error:  # of the branch that is not taken, or they differ in shape
        raise NeedsElements from error
    return given


def nodes_in(graph: Any) -> int:
    """Nodes of a graph and of those in it."""
    found = len(graph.nodes)
    for node in graph.nodes:
        for value in node.attributes.values():
            inner = value if isinstance(value, list) else [value]
            found += sum(nodes_in(g) for g in inner if isinstance(g, type(graph)))
    return found


def stacked(values: list[Any], axis: int = 0) -> Any:
    """Values along a new axis."""
    if all(isinstance(v, np.ndarray) for v in values):
        return np.stack(values, axis)
    return T.stack([lifted(v) for v in values], axis=axis)


def lifted(value: Any) -> Any:
    """A host array as a tensor, where tensors have its dtype."""
    if isinstance(value, np.ndarray) and liftable(value):
        return T(np.ascontiguousarray(value).reshape(value.shape))
    return value


@operator("Loop", plain=True)
def loop(call: Call, most: Any = None, condition: Any = None, *carried: Any) -> Any:
    """A subgraph again and again, while a condition holds."""
    body = call["body"]
    rounds = MOST_ROUNDS if most is None else int(np.asarray(host_of(most)).reshape(-1)[0])
    goes = True if condition is None else truth(condition)
    states = list(carried)
    if recording_here() and goes and rounds > MOST_UNROLLED:
        known = rounds_of(call, body, states, rounds)
        if known is None:
            raise NeedsElements
        if known.count > MOST_UNROLLED:
            made = as_scan(known)
            if made is None:
                raise NeedsElements
            return several(made)
    scanned: list[list[Any]] = [[] for _ in range(len(body.outputs) - 1 - len(carried))]
    count = 0
    while goes and count < rounds:
        found = call.run_graph(body, [np.array(count, np.int64), np.array(True), *states])
        goes = truth(found[0])
        states = found[1 : 1 + len(states)]
        for kept, value in zip(scanned, found[1 + len(states) :], strict=True):
            kept.append(value)
        count += 1
    last = []
    for k, kept in enumerate(scanned):
        last.append(stacked(kept) if kept else _nothing(body, k + 1 + len(states)))
    return several([*states, *last])


def _nothing(body: Any, k: int) -> Any:
    """What a loop without a round gives for an output."""
    info = body.outputs[k].type
    lengths = [n if isinstance(n, int) else 0 for n in info.shape or ()]
    return np.zeros((0, *lengths), info.dtype or np.float32)


@operator("Scan", 9, plain=True)
def scan_(call: Call, *values: Any) -> Any:
    """A subgraph over the slices of tensors."""
    return several(_scanned(call, list(values), call.get("scan_input_axes")))


@operator("Scan", 8, plain=True)
def scan_of_batches(call: Call, lengths: Any, *values: Any) -> Any:
    """A subgraph over the slices of tensors, for each batch."""
    if lengths is not None:
        raise call.refuse("sequence lengths of Scan 8", "export with opset 9 or later")
    count = call["num_scan_inputs"]
    batches = shape_of(values[0])[0]
    found = [_scanned(call, [v[b] for v in values], [0] * count, old=True) for b in range(batches)]
    return several([stacked(list(parts)) for parts in zip(*found, strict=True)])


def _scanned(call: Call, values: list[Any], axes: Any, old: bool = False) -> list[Any]:
    body, count = call["body"], call["num_scan_inputs"]
    states, over = values[: len(values) - count], values[len(values) - count :]
    ways = call.get("directions" if old else "scan_input_directions") or [0] * count
    axes = axes or [0] * count
    axes = [axis_of(a, len(shape_of(v))) for a, v in zip(axes, over, strict=True)]
    rounds = {shape_of(v)[a] for v, a in zip(over, axes, strict=True)}
    if len(rounds) != 1:
        raise ModelError(f"a scan over axes of lengths {sorted(rounds)}")
    (steps,) = rounds
    many = len(body.outputs) - len(states)
    out_axes = [0] * many if old else call.get("scan_output_axes") or [0] * many
    out_ways = [0] * many if old else call.get("scan_output_directions") or [0] * many
    if recording_here() and steps > MOST_UNROLLED:
        found = slices_as_scan(call, states, over, axes, ways)
        if found is None:
            raise NeedsElements
        states, rows = found
        turned = [T.flip(y, axis=0) if way else y for y, way in zip(rows, out_ways, strict=True)]
        return [
            *states,
            *[
                T.moveaxis(y, 0, axis_of(axis, len(y.shape)))
                for y, axis in zip(turned, out_axes, strict=True)
            ],
        ]
    kept: list[list[Any]] = [[] for _ in range(many)]
    for k in range(steps):
        parts = [
            v[(slice(None),) * a + (steps - 1 - k if way else k,)]
            for v, a, way in zip(over, axes, ways, strict=True)
        ]
        found = call.run_graph(body, [*states, *parts])
        states = found[: len(states)]
        for to, value in zip(kept, found[len(states) :], strict=True):
            to.append(value)
    last = []
    for k, (to, axis, way) in enumerate(zip(kept, out_axes, out_ways, strict=True)):
        if not to:
            last.append(_nothing(body, len(states) + k))
            continue
        rank = len(shape_of(to[0])) + 1
        last.append(stacked(to[::-1] if way else to, axis_of(axis, rank)))
    return [*states, *last]


# Sequences are lists


@operator("SequenceConstruct", plain=True, splits=True)
def sequence_construct(call: Call, *values: Any) -> list[Any]:
    """A sequence of tensors."""
    return list(values)


@operator("SequenceEmpty", plain=True, splits=True)
def sequence_empty(call: Call) -> list[Any]:
    """A sequence of nothing."""
    return []


def _at(call: Call, sequence: list[Any], position: Any, more: int = 0) -> int:
    count = len(sequence) + more
    k = int(np.asarray(host_of(position)).reshape(-1)[0])
    if not -count <= k < count:
        raise call.refuse(f"position {k} of a sequence of {len(sequence)}")
    return k % count if count else 0


@operator("SequenceAt", plain=True, splits=True)
def sequence_at(call: Call, sequence: list[Any], position: Any) -> Any:
    """One of a sequence."""
    return sequence[_at(call, sequence, position)]


@operator("SequenceErase", plain=True, splits=True)
def sequence_erase(call: Call, sequence: list[Any], position: Any = None) -> list[Any]:
    """A sequence without one of its tensors."""
    k = len(sequence) - 1 if position is None else _at(call, sequence, position)
    return [v for n, v in enumerate(sequence) if n != k]


@operator("SequenceInsert", plain=True, splits=True)
def sequence_insert(call: Call, sequence: list[Any], value: Any, position: Any = None) -> list[Any]:
    """A sequence with one more tensor."""
    k = len(sequence)
    if position is not None:
        k = int(np.asarray(host_of(position)).reshape(-1)[0])
        k = k + len(sequence) if k < 0 else k
    return [*sequence[:k], value, *sequence[k:]]


@operator("SequenceLength", plain=True, splits=True)
def sequence_length(call: Call, sequence: list[Any]) -> Any:
    """How many tensors there are."""
    return np.array(len(sequence), np.int64)


@operator("ConcatFromSequence", plain=True, splits=True)
def concat_from_sequence(call: Call, sequence: list[Any]) -> Any:
    """The tensors of a sequence along an axis, or along a new one."""
    axis = call["axis"]
    if call.get("new_axis", 0):
        return stacked(sequence, axis_of(axis, len(shape_of(sequence[0])) + 1))
    if all(isinstance(v, np.ndarray) for v in sequence):
        return np.concatenate(sequence, axis)
    return T.concat([lifted(v) for v in sequence], axis=axis_of(axis, len(shape_of(sequence[0]))))


@operator("SplitToSequence", plain=True, splits=True)
def split_to_sequence(call: Call, x: Any, split: Any = None) -> list[Any]:
    """Parts of a tensor as a sequence."""
    axis = axis_of(call.get("axis", 0), len(shape_of(x)))
    length = shape_of(x)[axis]
    if split is None:
        keep = bool(call.get("keepdims", 1))
        return [x[(slice(None),) * axis + (slice(k, k + 1) if keep else k,)] for k in range(length)]
    given = host_of(split)
    if given.ndim:
        lengths = list(ints(given))
    else:
        each = int(given)
        lengths = [min(each, length - k) for k in range(0, length, each)]
    ends = np.cumsum([0, *lengths])
    cut = itertools.pairwise(ends)
    return [x[(slice(None),) * axis + (slice(int(a), int(b)),)] for a, b in cut]


@operator("SequenceMap", plain=True, splits=True)
def sequence_map(call: Call, sequence: list[Any], *others: Any) -> Any:
    """A subgraph for each tensor of sequences."""
    found = []
    for k in range(len(sequence)):
        given = [v[k] if isinstance(v, list) else v for v in (sequence, *others)]
        found.append(call.run_graph(call["body"], given))
    return several([list(parts) for parts in zip(*found, strict=True)])


@operator("Optional", plain=True, splits=True)
def optional(call: Call, value: Any = None) -> Any:
    """An optional with or without a value."""
    return value


@operator("OptionalGetElement", plain=True, splits=True)
def optional_get_element(call: Call, value: Any) -> Any:
    """The value of an optional."""
    if value is None:
        raise call.refuse("the optional has no value")
    return value


@operator("OptionalHasElement", plain=True, splits=True)
def optional_has_element(call: Call, value: Any = None) -> Any:
    """Whether an optional has a value."""
    return np.array(value is not None)
