"""Products that repeat the launches of earlier calls."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.config import config
from cubepy.errors import AliasError, ReadOnlyError
from tests.staging import WHERE


def test_a_repeated_call_reads_what_its_arrays_hold_now() -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        a, b, bias = (rng.standard_normal(s, np.float32) for s in ((7, 12), (12, 80), (80,)))
        expected = np.maximum(2.0 * a.astype(np.float64) @ b + bias, 0)
        found = K.matmul(a, b, bias=bias, activation="relu", alpha=2.0)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        out = np.full((7, 80), 9, np.float32)
        assert K.matmul(a, b, bias=bias, activation="relu", alpha=2.0, out=out) is out
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-5)


def test_a_call_with_one_matrix_twice_does_not_teach_calls_with_two() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((10, 10), np.float32), rng.standard_normal((10, 10), np.float32)
    for _ in range(4):
        np.testing.assert_allclose(K.matmul(a, a), a @ a, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(K.matmul(a[:5], a[5:].T), a[:5] @ a[5:].T, rtol=1e-4, atol=1e-5)
    for _ in range(4):
        np.testing.assert_allclose(K.matmul(a, b), a @ b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(K.matmul(a, a), a @ a, rtol=1e-4, atol=1e-5)


def test_a_repeated_call_refuses_what_the_first_one_refuses() -> None:
    a, b, out = (
        np.ones((9, 9), np.float32),
        np.ones((9, 9), np.float32),
        np.zeros((9, 9), np.float32),
    )
    for _ in range(4):
        K.matmul(a, b, out=out)
    with pytest.raises(AliasError):
        both = np.ones((10, 9), np.float32)
        K.matmul(both[1:], b, out=both[:9])
    out.flags.writeable = False
    with pytest.raises(ReadOnlyError):
        K.matmul(a, b, out=out)


@pytest.mark.skipif(bool(WHERE), reason="the routine is one for CPUs")
def test_a_forced_routine_is_used_though_the_call_came_before() -> None:
    a = np.ones((100, 300), np.float32)
    b = np.ones((300, 100), np.float32)
    for _ in range(4):
        K.matmul(a, b)
    with cb.tune.force("matmul", "gemv"), pytest.raises(cb.errors.TuneError):
        K.matmul(a, b)
    with cb.profile() as profile:
        K.matmul(a, b)
    assert "block_product" in profile.kernels


def test_settings_and_counters_hold_for_repeated_calls() -> None:
    a, b = np.ones((9, 9), np.float32), np.ones((9, 9), np.float32)
    for _ in range(4):
        K.matmul(a, b)
    before = cb.stats().launches
    K.matmul(a, b)
    assert cb.stats().launches > before
    with config.override(debug=1):
        assert K.matmul(a, b)[0, 0] == 9
    with cb.use("python"):
        assert K.matmul(a, b)[0, 0] == 9


def test_threads_repeat_calls_side_by_side() -> None:
    rng = np.random.default_rng(5)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        a, b = (np.random.default_rng(seed).standard_normal((40, 40), np.float32) for _ in range(2))
        for _ in range(20):
            if not np.allclose(K.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(int(s),)) for s in rng.integers(0, 100, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
