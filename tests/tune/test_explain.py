"""`explain`: what a call did, and why it took no other way."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy import tune
from cubepy.kernels.matmul.routines import MATMUL

X = np.random.default_rng(0).standard_normal((70, 40), np.float32)


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = tune.roofline.Peaks(1e9, {"f32": 1e9})
    monkeypatch.setattr(tune.TUNER, "peaks", lambda device, watch: peaks)


def test_every_routine_is_named_once_with_its_reason() -> None:
    found = K.matmul.explain(X, X.T)
    (choice,) = found.choices
    names = [choice.routine, *(other.routine for other in choice.others)]
    assert sorted(names) == sorted(r.name for r in MATMUL.routines)
    assert choice.how == "inferred"
    assert (choice.problem.m, choice.problem.k, choice.problem.n) == (70, 40, 70)
    reasons = {other.routine: other.reason for other in choice.others}
    assert reasons["plain"] == "only when forced"
    assert reasons["simt"] == "for GPUs"


def test_work_and_limit_are_those_of_the_product() -> None:
    found = tune.explain(K.matmul, X, X.T)
    assert found.flops == 2 * 70 * 40 * 70
    assert found.bytes == 4 * (2 * 70 * 40 + 70 * 70)
    assert found.bound == pytest.approx(found.flops / 1e9)
    spent = sum(launch.seconds for launch in found.launches)
    assert found.share == pytest.approx(found.bound / spent)


def test_what_was_forced_is_said_to_be_forced() -> None:
    with tune.force("matmul", "tile"):
        (choice,) = K.matmul.explain(X[:2], X.T).choices
    assert (choice.routine, choice.how) == ("tile", "forced")
    reasons = {other.routine: other.reason for other in choice.others}
    assert reasons["gemv"] == "another one is forced"


def test_functions_with_one_kernel_show_their_launches() -> None:
    found = K.prepack.explain(X)
    assert not found.choices
    assert [launch.calls for launch in found.launches] == [1]
    assert found.bytes == X.nbytes and found.flops == 0
    text = str(found)
    assert text.startswith("prepack on cpu") and found.launches[0].kernel in text


def test_every_function_of_the_library_explains_itself() -> None:
    functions = [getattr(K, name) for name in K.__all__ if name not in ("functions", "views")]
    silent = [f for f in functions if callable(f) and not hasattr(f, "explain")]
    assert silent == [K.Generator]


def test_nothing_is_known_of_limits_on_the_python_backend() -> None:
    with cb.use("python"):
        found = K.sum.explain(X[:2])
    assert found.bound == found.share == 0
    assert "limit" not in str(found)


def test_results_are_written_where_they_are_asked_for() -> None:
    out = np.zeros((70, 70), np.float32)
    K.matmul.explain(X, X.T, out=out)
    np.testing.assert_allclose(out, X @ X.T, rtol=1e-5, atol=1e-5)
