"""Functions and operators of Python on tuples and ranges: any, all, divmod, reversed, ==, *."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ComptimeError, KernelTypeError


@cb.kernel
def of_tuples(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        out[i, 0] = any((x[i] > 1, i == 0, False)) + 2 * all((x[i] > 1, True, i < 3))
        out[i, 1] = any((False, False)) + 2 * all((1, 2)) + 4 * any((x[i] > 9, True))
        out[i, 2] = sum((x[i],) * 3)
        out[i, 3] = ((1, i) == (1, 2)) + 2 * ((i, x[i]) != (2, 3.0))
        out[i, 4] = ((1, i) == (1, i, 2)) + 2 * ((1, (i, 2)) == (1, (3, 2)))


def test_tuples_are_asked_and_compared_item_by_item(device: str) -> None:
    x = np.arange(1, 6, dtype=np.float32)
    with cb.use(device):
        found = np.zeros((5, 5), np.float32)
        of_tuples[1, 8](x, found)
        cb.sync(device)
    for i, v in enumerate(x.tolist()):
        want = [
            any((v > 1, i == 0, False)) + 2 * all((v > 1, True, i < 3)),
            any((False, False)) + 2 * all((1, 2)) + 4 * any((v > 9, True)),
            3 * v,
            ((1, i) == (1, 2)) + 2 * ((i, v) != (2, 3.0)),
            0 + 2 * ((1, (i, 2)) == (1, (3, 2))),
        ]
        assert found[i].tolist() == want


@cb.kernel
def backwards(out: cb.Array, n):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        s = 0
        for j in reversed(range(n)):
            s = s * 10 + j
        for j in reversed(range(2, i + 4)):
            s = s * 10 + j
        for j in cb.unroll(reversed(range(0, 7, 3))):
            s = s * 10 + j
        for v in reversed((1, i)):
            s = s * 10 + v
        out[i] = s


@pytest.mark.parametrize("n", [0, 2])
def test_ranges_and_tuples_are_gone_through_backwards(device: str, n: int) -> None:
    out = np.zeros(3, np.int64)
    with cb.use(device):
        backwards[1, 4](out, np.int64(n))
        cb.sync(device)
    for i in range(3):
        s = 0
        for j in (*reversed(range(n)), *reversed(range(2, i + 4)), 6, 3, 0, i, 1):
            s = s * 10 + j
        assert out[i] == s


@cb.kernel
def divided(a: cb.Array, b: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < a.size:
        out[i, 0], out[i, 1] = divmod(a[i], b[i])
        q, r = divmod(7, b[i])
        out[i, 2] = q + r


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_divmod_is_quotient_and_remainder(device: str, dtype: Any) -> None:
    a, b = np.array([7, -7, 7, -7, 6], dtype), np.array([3, 3, -3, -3, 4], dtype)
    out = np.zeros((5, 3), dtype)
    with cb.use(device):
        divided[1, 8](a, b, out)
        cb.sync(device)
    want = [[x // y, x % y, 7 // y + 7 % y] for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert out.tolist() == want


@cb.kernel
def draws(out: cb.Array):
    out[0] = random.random()


@cb.kernel
def draws_by_numpy(out: cb.Array):
    out[0] = np.random.rand()


@cb.kernel
def reads_the_clock(out: cb.Array):
    out[0] = time.time()


@pytest.mark.parametrize("kernel", [draws, draws_by_numpy, reads_the_clock])
def test_what_changes_with_each_call_is_refused(kernel: Any) -> None:
    with pytest.raises(ComptimeError, match="something else in each call") as told:
        kernel[1, 1](np.zeros(1))
    assert "cb.philox" in told.value.hint


@cb.kernel
def by_twos(out: cb.Array, n):
    for k in reversed(range(0, n, 2)):
        out[k] = 1


def test_only_steps_of_one_are_reversed_at_run_time() -> None:
    with pytest.raises(KernelTypeError, match="reversed goes over a range with step 1"):
        by_twos[1, 1](np.zeros(4), 4)
