"""Operations without measurements: the first routine of their order that supports a problem."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cb
from cubepy import tune
from cubepy.errors import TuneError
from cubepy.tune import CpuRoutine, GpuRoutine, Op, Routine
from cubepy.tune.routine import OPS, text


class Numbers(NamedTuple):
    x: Any
    function: Any = None
    scale: float = 1.0


class Planes(GpuRoutine):
    name = "planes"

    def launch(self, p: Numbers, properties: cb.DeviceProperties) -> str:
        return self.name


class Few(CpuRoutine):
    name = "few"

    def unfit(self, p: Numbers, properties: cb.DeviceProperties) -> str | None:
        return None if p.x.size <= properties.lanes(cb.f32) else "for few elements"

    def launch(self, p: Numbers, properties: cb.DeviceProperties) -> str:
        return self.name


class Lines(CpuRoutine):
    name = "lines"

    def launch(self, p: Numbers, properties: cb.DeviceProperties) -> str:
        return self.name


@pytest.fixture
def op() -> Iterator[Op]:
    yield Op("numbers", [Planes(), Few(), Lines()])
    del OPS["numbers"]


FEW, MANY = Numbers(np.zeros(4, np.float32)), Numbers(np.zeros(4000, np.float32))


def test_the_first_that_supports_a_problem_does_it(op: Op) -> None:
    assert op.run(FEW) == "few"
    assert op.run(MANY) == "lines"


def test_what_is_forced_does_it_or_says_why_not(op: Op) -> None:
    with tune.force("numbers", "lines"):
        assert op.run(FEW) == "lines"
        with tune.force("numbers", "inferred"):
            assert op.run(FEW) == "few"
    with tune.force("numbers", "few"), pytest.raises(TuneError, match="for few elements"):
        op.run(MANY)
    with pytest.raises(TuneError, match="have no blueprints"):
        tune.force("numbers", "few", lanes=3)


def test_a_problem_for_nobody_names_every_reason() -> None:
    alone = Op("alone", [Planes(), Few()])
    del OPS["alone"]
    with pytest.raises(TuneError, match="no routine of alone") as info:
        alone.run(MANY)
    assert "planes: for GPUs; few: for few elements" in str(info.value)


def test_explain_shows_the_order_and_the_reasons(op: Op) -> None:
    found = tune.explain(lambda: op.run(MANY))
    (choice,) = found.choices
    assert (choice.op, choice.routine, choice.how) == ("numbers", "lines", "inferred")
    assert [(o.routine, o.reason) for o in choice.others] == [
        ("planes", "for GPUs"),
        ("few", "for few elements"),
    ]
    assert "numbers: x=float32[4000]\n  lines (inferred)\n  not planes: for GPUs" in str(found)


def test_explain_shows_the_same_choice_once(op: Op) -> None:
    found = tune.explain(lambda: [op.run(p) for p in (FEW, MANY, FEW)])
    assert [c.routine for c in found.choices] == ["few", "lines"]


def test_nothing_is_recorded_that_cannot_be_measured(op: Op) -> None:
    with tune.record() as seen:
        op.run(FEW)
    assert not seen


def test_a_problem_is_read_without_what_is_as_usual() -> None:
    problem = Numbers(np.zeros((2, 3), np.int8), cb.exp, 2.0)
    assert text(problem) == "x=int8[2, 3], function=exp, scale=2.0"
    assert text(problem._replace(function=None, scale=1.0)) == "x=int8[2, 3]"


def test_a_routine_without_work_says_so() -> None:
    with pytest.raises(NotImplementedError):
        Routine().launch(FEW, cb.device_properties_of())
