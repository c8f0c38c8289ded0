"""Reductions as data: one driver along rows and one down columns do all of them, in pieces or not."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import cubepy as cb
from cubepy import tune
from cubepy.errors import TuneError
from cubepy.kernels.reduce.problem import Arg, Reduce
from cubepy.kernels.reduce.reduction import (
    DEVIATION,
    LOG_SUM_EXP,
    NORM,
    NORMS,
    PRODUCT,
    SCALED_SUM,
    SUM,
    VARIANCE,
    Reduction,
    extreme,
)
from cubepy.kernels.reduce.routines import ARG, REDUCE
from cubepy.runtime.device import device_properties
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="arrays of the host")

Reference = Callable[[np.ndarray], np.ndarray]


def log_sum_exp(x: np.ndarray) -> np.ndarray:
    top = x.max(1)
    return top + np.log(np.exp(x - top[:, None]).sum(1))


def norm(order: float) -> Reference:
    return lambda x: np.linalg.vector_norm(x, ord=order, axis=1)


REDUCTIONS: dict[str, tuple[Reduction, float, Reference]] = {
    "sum": (SUM, 0.0, lambda x: x.sum(1)),
    "half": (SCALED_SUM, 0.5, lambda x: x.sum(1) / 2),
    "product": (PRODUCT, 0.0, lambda x: x.prod(1)),
    "largest": (extreme(cb.f64, True), 0.0, lambda x: x.max(1)),
    "smallest": (extreme(cb.f64, False), 0.0, lambda x: x.min(1)),
    "variance": (VARIANCE, 1.0, lambda x: x.var(1, ddof=1)),
    "deviation": (DEVIATION, 0.0, lambda x: x.std(1)),
    "log_sum_exp": (LOG_SUM_EXP, 0.0, log_sum_exp),
    "norm_1": (NORMS[1], 1.0, norm(1)),
    "norm_2": (NORMS[2], 2.0, norm(2)),
    "norm_3": (NORMS[3], 3.0, norm(3)),
    "norm_2.5": (NORM, 2.5, norm(2.5)),
    "norm_inf": (NORMS[math.inf], 0.0, norm(math.inf)),
}


def drawn(rows: int, n: int) -> np.ndarray:
    """Numbers near 1, so that products of many stay finite."""
    return 1 + np.random.default_rng(n).standard_normal((rows, n)) / (4 * math.sqrt(n))


@pytest.mark.parametrize("n", [1, 7, 100, 2049, 40000])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_rows_and_columns_give_what_the_formula_says(name: str, n: int) -> None:
    reduction, number, formula = REDUCTIONS[name]
    if name == "variance" and n == 1:
        number = 0.0
    x, found = drawn(3, n), np.zeros(3)
    want = formula(x) if name != "variance" or n > 1 else np.zeros(3)
    REDUCE.run(Reduce(x, found, reduction, cb.f64, number))
    np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)
    columns = np.ascontiguousarray(x.T)[None]
    REDUCE.run(Reduce(columns, found[None], reduction, cb.f64, number))
    np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("position", [0, 5, 2040, 39999])
@pytest.mark.parametrize("largest", [True, False])
def test_a_nan_is_seen_wherever_it_is(largest: bool, position: int) -> None:
    x, found = drawn(2, 40000), np.zeros(2)
    x[1, position] = np.nan
    reduction = extreme(cb.f64, largest)
    for data, out in ((x, found), (np.ascontiguousarray(x.T)[None], found[None])):
        REDUCE.run(Reduce(data, out, reduction, cb.f64))
        assert np.isfinite(found[0]) and np.isnan(found[1])


def test_routines_say_what_they_are_for() -> None:
    properties = device_properties(cb.Device("cpu"))
    rows = Reduce(np.zeros((2, 8)), np.zeros(2), SUM, cb.f64)
    columns = Reduce(np.zeros((1, 8, 2)), np.zeros((1, 2)), SUM, cb.f64)
    assert REDUCE.chosen(rows, properties).name == "rows"
    assert REDUCE.chosen(columns, properties).name == "columns"
    twice = columns._replace(reduction=VARIANCE)
    assert REDUCE.chosen(twice, properties).name == "blocks"
    with tune.force("reduce", "columns"), pytest.raises(TuneError, match="walk once"):
        REDUCE.run(twice)


def test_any_routine_for_columns_may_be_forced() -> None:
    x = drawn(1, 6000).reshape(1, 600, 10)
    found, forced = np.zeros((1, 10)), np.zeros((1, 10))
    ARG.run(Arg(x, where := np.zeros((1, 10), np.int64), True))
    assert where.tolist() == x.argmax(1).tolist()
    REDUCE.run(Reduce(x, found, VARIANCE, cb.f64))
    with tune.force("reduce", "blocks"):
        REDUCE.run(Reduce(x, forced, VARIANCE, cb.f64))
    assert found.tolist() == forced.tolist()
