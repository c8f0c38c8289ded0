"""`and`, `or` and `in` give what they give in Python: the operand that decides, and flags."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb


@cb.kernel
def deciding(x: cb.Array, n: cb.Array, out: cb.Array):
    out[0] = x[0] or 5.0
    out[1] = x[1] and 7.0
    out[2] = n[0] or n[2]
    out[3] = n[2] and n[3] and n[0]
    out[4] = (n[0] and x[1]) or (n[1] and 2.5)
    out[5] = (x[1] > 5) or n[3]
    out[6] = (x[1] > 0) and (n[1] > 0)
    out[7] = n[2] or cb.atomic_add(n, 0, 3)
    if n[0] or n[1] and not n[0]:
        out[8] = n[0] + 10


def test_and_and_or_give_the_operand_that_decides(device: str) -> None:
    x, n, out = (
        np.arange(2, dtype=np.float32),
        np.arange(4, dtype=np.int32),
        np.zeros(9, np.float32),
    )
    deciding[1, 1](x, n, out, device=device)
    assert out.tolist() == [5, 7, 2, 0, 2.5, 3, 1, 2, 10]


@cb.kernel
def looking(n: cb.Array, out: cb.Array, low):
    for i in range(n.size):
        out[i] = (n[i] in (1, 3, low)) + 2 * (n[i] not in (2, 3))


def test_a_number_is_looked_for_in_a_tuple(device: str) -> None:
    n, out = np.arange(5, dtype=np.int32), np.zeros(5, np.int32)
    looking[1, 1](n, out, 4, device=device)
    assert out.tolist() == [2, 3, 0, 1, 3]


@cb.kernel
def looking_with_known(n: cb.Array, out: cb.Array, *, c: cb.Comptime[int]):
    """Some items are decided when the code is made, and not by those after them."""
    for i in range(n.size):
        out[i, 0] = c in (1, n[i], 3)
        out[i, 1] = c in (n[i], 1, 3)
        out[i, 2] = c not in (n[i], 1)
        out[i, 3] = n[i] in (c, 2, c + n[i])


@pytest.mark.parametrize("c", range(5))
def test_a_comptime_number_is_looked_for_in_a_tuple(device: str, c: int) -> None:
    n, out = np.arange(5, dtype=np.int32), np.zeros((5, 4), np.int32)
    looking_with_known[1, 1](n, out, c=c, device=device)
    want = [[c in (1, v, 3), c in (v, 1, 3), c not in (v, 1), v in (c, 2, c + v)] for v in range(5)]
    assert out.tolist() == np.array(want, np.int32).tolist()


@cb.kernel
def numbers_or_flags(x: cb.Array, out: cb.Array):
    """`n and flag` is a number where n decides, and one where the flag does."""
    i = cb.ABSOLUTE_POS
    if i < x.size:
        for n in range(3):
            flag = n and x[i] > 0 and x[i] < 4
            flag = not flag
            either = x[i] > 0 or n
            out[i, n] = flag + 10 * either


def test_numbers_and_flags_meet_in_numbers(device: str) -> None:
    out = np.zeros((4, 3), np.int32)
    with cb.use(device):
        numbers_or_flags[1, 4](np.array([1, -1, 5, 2], np.float32), out)
        cb.sync(device)
    assert out.tolist() == [[11, 10, 10], [1, 11, 21], [11, 11, 11], [11, 10, 10]]


@cb.kernel
def sides_of_two_dtypes(wide: cb.Array, narrow: cb.Array, out: cb.Array):
    """No side keeps a dtype of its own: what is computed next is computed in that of both."""
    i = cb.ABSOLUTE_POS
    w, n = wide[i], narrow[i]
    out[i, 0] = 0 - (n if i < 4 else w)
    out[i, 1] = 0 - (n or w)
    out[i, 2] = 0 - (n and w)
    out[i, 3] = (n if i < 2 else (w if i < 4 else n)) + 250
    out[i, 4] = (n or n or w) + 250
    out[i, 5] = (2 if i < 4 else 0.5) * n


def test_sides_of_two_dtypes_meet(device: str) -> None:
    wide, narrow = np.arange(3, 11, dtype=np.int32), np.array([1, 0, 2, 200] * 2, np.uint8)
    out = np.zeros((8, 6), np.float64)
    sides_of_two_dtypes[1, 8](wide, narrow, out, device=device)
    want = [
        [-(n if i < 4 else w), -(n or w), -(n and w), (n if i < 2 or i >= 4 else w) + 250, (n or w) + 250, (2 if i < 4 else 0.5) * n]
        for i, (w, n) in enumerate(zip(wide.tolist(), narrow.tolist(), strict=True))
    ]  # fmt: skip
    assert out.tolist() == want


@cb.kernel
def yielding_variables(x: cb.Array, h: cb.Array, out: cb.Array):
    """Variables that change at run time and have met no number with a dtype yield, as literals do."""
    i = cb.ABSOLUTE_POS
    w, half = 100, 0.5
    for _ in range(i % 3):
        w = w * 2
        half = half * 0.1
    low = w if i > 1 else 3
    out[i, 0] = w + x[i]
    out[i, 1] = (w + x[i]).dtype == cb.u8
    out[i, 2] = (-w + x[i]).dtype == cb.u8
    out[i, 3] = (cb.max(w, 7) + x[i]).dtype == cb.u8
    out[i, 4] = (half * h[i]).dtype == cb.f16
    out[i, 5] = (w / 4 * h[i]).dtype == cb.f16
    out[i, 6] = half * h[i]
    out[i, 7] = (low + x[i]) // 2


def test_variables_that_have_met_no_dtype_yield(device: str) -> None:
    x, h = np.array([100, 101, 102, 103, 104, 105], np.uint8), np.full(6, 3, np.float16)
    out = np.zeros((6, 8), np.float64)
    yielding_variables[1, 6](x, h, out, device=device)
    w = [100, 200, 400, 100, 200, 400]
    assert out[:, 0].tolist() == [(a + int(b)) % 256 for a, b in zip(w, x, strict=True)]
    assert (out[:, 1:6] == 1).all()
    want = (np.float32([0.5, 0.05, 0.005] * 2).astype(np.float16) * h).astype(np.float64)
    np.testing.assert_allclose(out[:, 6], want, rtol=2e-3)
    low = [3, 3, 400, 100, 200, 400]
    assert out[:, 7].tolist() == [(a + int(b)) % 256 // 2 for a, b in zip(low, x, strict=True)]
