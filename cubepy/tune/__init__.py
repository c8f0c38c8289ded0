"""Which routine does a problem on this device, and with which blueprint.

An operation (`Op`) has routines in an order; the first that supports a problem does it. Routines of
a `TunedOp` offer blueprints; `choose(op, problem)` gives the candidate to launch. Without tuning
that is the first blueprint of the first routine that fits. `config.tune` gives leave to measure.

Example:
    >>> from cubepy import tune
    >>> tune.op_named("matmul").name
    'matmul'
"""

from __future__ import annotations

from cubepy.tune.decision import Decision, Trial
from cubepy.tune.explain import Explanation, explain
from cubepy.tune.keys import bucket, factor
from cubepy.tune.routine import OPS, CpuRoutine, GpuRoutine, Op, Routine, op_named
from cubepy.tune.table import Table, export_table, import_table
from cubepy.tune.tuned import Candidate, TunedOp, TunedRoutine, Work, force
from cubepy.tune.tuner import TUNER, Tuner, choose

record = TUNER.record
tune = TUNER.tune

__all__ = [
    "OPS",
    "TUNER",
    "Candidate",
    "CpuRoutine",
    "Decision",
    "Explanation",
    "GpuRoutine",
    "Op",
    "Routine",
    "Table",
    "Trial",
    "TunedOp",
    "TunedRoutine",
    "Tuner",
    "Work",
    "bucket",
    "choose",
    "explain",
    "export_table",
    "factor",
    "force",
    "import_table",
    "op_named",
    "record",
    "tune",
]
