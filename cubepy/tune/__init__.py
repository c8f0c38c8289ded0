"""Autotune: which routine, with which blueprint, is the fastest for a problem on this device.

An operation (`Op`) has routines; a routine offers blueprints; `choose(op, problem)` gives the
candidate to launch. Without tuning that is the first blueprint of the first routine that fits.
`config.tune` gives leave to measure.

Example:
    >>> from cubepy import tune
    >>> "matmul" in tune.OPS
    True
"""

from __future__ import annotations

from cubepy.tune.decision import Decision, Trial
from cubepy.tune.explain import Explanation, explain
from cubepy.tune.forced import force
from cubepy.tune.keys import bucket, factor
from cubepy.tune.routine import OPS, Candidate, Op, Routine, Work, op_named
from cubepy.tune.table import Table, export_table, import_table
from cubepy.tune.tuner import TUNER, Tuner, choose

record = TUNER.record
tune = TUNER.tune

__all__ = [
    "OPS",
    "TUNER",
    "Candidate",
    "Decision",
    "Explanation",
    "Op",
    "Routine",
    "Table",
    "Trial",
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
