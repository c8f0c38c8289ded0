"""Autotune on a GPU: the same tuner, with the device's own clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import TuneWarning
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import Table, TunedOp, TunedRoutine, Tuner, Work
from cubepy.tune.roofline import measure_peaks
from cubepy.tune.routine import OPS
from cubepy.tune.stopwatch import DeviceStopwatch, stopwatch_for
from tests.device.kernels import slow_add

HERE = Device("cuda")


@cb.kernel
def scale_all(x: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int]):
    i = cb.ABSOLUTE_POS * lanes
    if i < out.size:
        out.store(i, x.load(i, lanes) * 2.0)


class Problem(NamedTuple):
    device: str
    n: int


@dataclass(frozen=True)
class Plan:
    lanes: int
    units: int
    defect: str = ""


class Scale(TunedRoutine):
    """out = 2 x; one blueprint is wrong, one cannot be compiled."""

    name = "scale"

    def blueprints(self, problem: Problem, properties: Any) -> Iterator[Plan]:
        yield from (
            Plan(1, 32),
            Plan(4, 256),
            Plan(4, 1 << 20),
            Plan(4, 256, "wrong"),
            Plan(4, 128),
        )

    def launch(self, blueprint: Plan, problem: Problem, args: tuple[Any, ...]) -> None:
        x, out = args
        cubes = -(-problem.n // (blueprint.lanes * blueprint.units))
        scale_all[cubes - (blueprint.defect == "wrong"), blueprint.units](
            x, out, lanes=blueprint.lanes
        )


class Scaling(TunedOp):
    problem = Problem

    def make(self, problem: Problem, seed: int) -> tuple[Any, ...]:
        x = np.random.default_rng(seed).standard_normal(problem.n).astype(np.float32)
        return upload(x, HERE), upload(np.zeros_like(x), HERE)

    def reference(self, problem: Problem, args: tuple[Any, ...]) -> list[np.ndarray]:
        return [2 * args[0].numpy()]

    def work(self, problem: Problem) -> Work:
        return Work(8 * problem.n)


@pytest.fixture
def op(tmp_path: Path) -> Iterator[TunedOp]:
    with cb.config.override(cache_dir=str(tmp_path), tune="none"):
        yield Scaling("scale", [Scale()])
    del OPS["scale"]


def test_a_gpu_operation_is_tuned_once_and_bad_candidates_are_left_out(op: TunedOp) -> None:
    problem, tuner = Problem("cuda", 1 << 23), Tuner()
    assert tuner.choose(op, problem).blueprint == Plan(1, 32)
    with cb.config.override(tune="quick"), pytest.warns(TuneWarning, match="other results"):
        chosen = tuner.choose(op, problem).blueprint
    decision = tuner.decision(op, problem)
    assert decision is not None
    print(decision)
    assert chosen.lanes == 4 and not chosen.defect
    assert {t.status for t in decision.excluded} == {"failed", "wrong"} and len(
        decision.excluded
    ) == 2
    again = Tuner()
    with cb.config.override(tune="quick"):
        assert again.choose(op, problem).blueprint == chosen
    assert again.measured == 0
    assert "cuda" in Table("cuda").device and Table("cpu").device != Table("cuda").device


def test_nothing_is_measured_while_a_graph_is_captured(op: TunedOp) -> None:
    tuner = Tuner()
    x, out = op.make(Problem("cuda", 4096), 0)
    problem = Problem("cuda", 4096)
    op.inferred(problem).launch(problem, x, out)
    with cb.config.override(tune="quick"), cb.capture() as graph:
        tuner.choose(op, problem).launch(problem, x, out)
    assert tuner.measured == 0 and graph.kernels == 1


def test_the_device_stopwatch_times_the_device(op: TunedOp) -> None:
    watch = stopwatch_for("cuda")
    assert isinstance(watch, DeviceStopwatch)
    x, y = upload(np.zeros(1, np.float32), HERE), upload(np.zeros(1, np.float32), HERE)
    slow_add[1, 1](x, y, 10)
    short = watch.time(lambda i: slow_add[1, 1](x, y, 10), 3)
    assert watch.time(lambda i: slow_add[1, 1](x, y, 2_000_000), 3) > 10 * short > 0


def test_the_limits_of_the_device_are_plausible(op: TunedOp) -> None:
    peaks = measure_peaks("cuda", stopwatch_for("cuda"))
    print(f"reads {peaks.bytes / 1e12:.2f} TB/s, f32 {peaks.flops['f32'] / 1e12:.1f} TFLOP/s")
    assert peaks.bytes > 1e11 and peaks.flops["f32"] > 1e12
