"""Running a graph of a trace op by op; errors name the lines that the function asked for ops in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cubepy.errors import CubeError
from cubepy.runtime import recording
from cubepy.runtime.ahead import foresight
from cubepy.runtime.device import Device, use
from cubepy.runtime.memory.spans import meet
from cubepy.tensor.array import Tensor, apply
from cubepy.tensor.explained.lineage import Lineage
from cubepy.tensor.graph import execute
from cubepy.tensor.ir import Graph
from cubepy.tensor.modes import no_grad
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.program.plans.foreseen import foreseen, on_the_side
from cubepy.tensor.program.plans.host import Recording
from cubepy.tensor.program.plans.in_place import InPlace
from cubepy.tensor.program.plans.repeated import recorded_arrays
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import located, outside


def arrays_by_steps(
    graph: Graph,
    tensors: Sequence[Tensor],
    home: Device,
    lineage: Callable[[], Lineage],
    before: Callable[[int], Any] | None = None,
    first: int = 0,
) -> list[Any]:
    """The arrays of the outputs.

    Args:
        graph: what runs.
        tensors: its inputs.
        home: where constants are made.
        lineage: gives which traced ops its nodes are.
        before: is told the number of each node before it runs.
        first: what is added to these numbers; below 0 they are nobody's.
    """
    at = 0

    def note(node: int) -> None:
        nonlocal at
        at = max(0, node + first)
        if before is not None and node + first >= 0:
            before(node + first)

    recorded = recording.current() if recording.active else None
    looks = foresight.watching and foresight.looks()
    try:
        with no_grad(), use(home), foresight.first_run(on_the_side(graph, tensors, home)):
            if type(recorded) is Recording and not looks:
                return recorded_arrays(graph, tensors, home, note, recorded)
            run = foreseen if looks else apply
            return [t.storage.dense() for t in execute(graph, tensors, note, run)]
    except CubeError as error:
        lines, here = lineage().lines(at), located(outside())
        if error.location in (None, here):
            error.location = lines[0] if lines else here
        raise


def arrays_in_place(
    found: InPlace,
    tensors: Sequence[Tensor],
    home: Device,
    lineage: Callable[[], Lineage],
    before: Callable[[int], Any] | None = None,
) -> list[Any]:
    """The arrays of the outputs of a graph that writes states where they are.

    Args:
        found: the graph.
        tensors: its inputs; those that are written are nobody else's.
        home, lineage, before: as of `arrays_by_steps`.
    """
    states = [tensors[n].storage.dense() for n in found.written.values()]
    made = arrays_by_steps(found.body, tensors, home, lineage, before)
    outputs: list[Any] = [None] * len(found.graph.outputs)
    for n, array in zip(found.others, made, strict=False):
        seen = any(meet(array, state) for state in states)
        outputs[n] = kernels().copy(array) if seen else array
    reads = [Tensor(Dense(array)) for array in made[len(found.others) :]]
    first = len(found.body.nodes) - len(reads)

    def then(at: int) -> None:
        if before is not None and at >= len(found.body.nodes):
            before(at)

    try:
        steps = arrays_by_steps(found.steps, reads, home, lineage, then, first)
    except BaseException as error:
        if hasattr(error, "add_note"):  # from Python 3.11 on
            error.add_note(
                "This came while parameters and states of optimizers were written in place: some "
                "have their next values and others not. Load a checkpoint to go on."
            )
        raise
    for n, array, state in zip(found.written, steps, states, strict=True):
        if array is not state:
            recording.spoil()
            np.copyto(state, array)
        outputs[n] = state
    return outputs
