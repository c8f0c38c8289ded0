"""What every tuned operation keeps: its candidates give what its reference gives."""

from __future__ import annotations

from itertools import islice
from typing import Any

import cubepy as cb
from cubepy.tune.check import difference
from cubepy.tune.tuned import TunedOp


def wrong_candidates(op: TunedOp, problem: Any, out: int, most: int = 2) -> list[tuple]:
    """The candidates of a problem on a CPU, up to `most` of each routine that takes it, which give
    another result than the reference: routine, blueprint, and what differs.

    Args:
        op: the operation.
        problem: of which arguments are made.
        out: which of them is written; it is filled with something else before.
        most: blueprints of a routine.
    """
    properties, found, tried = cb.device_properties_of("cpu"), [], 0
    for routine in op.routines:
        if routine.supports(problem, properties) is None:
            for blueprint in islice(routine.blueprints(problem, properties), most):
                args, tried = op.make(problem, 1), tried + 1
                args[out].fill(99)
                routine.launch(blueprint, problem, args)
                results, right = op.results(problem, args), op.reference(problem, args)
                wrong = difference(results, right, *op.tolerance(problem))
                found += [(routine.name, blueprint, wrong)] if wrong is not None else []
    assert tried, "no routine takes the problem"
    return found
