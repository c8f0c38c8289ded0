"""Products with few columns on a CPU: a is read where it stands, however it lies."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.tune import TUNER, choose, tuned
from tests.pretend import NAME, pretend

RNG = np.random.default_rng(5)
KINDS = {"f32": (np.float32, 3e-6), "f16": (np.float16, 1e-3), "bf16": (ml_dtypes.bfloat16, 8e-3)}


def lying(values: np.ndarray, how: str) -> np.ndarray:
    """The same numbers in another order of memory."""
    if how == "columns":
        return np.asfortranarray(values)
    if how == "parts of rows":
        wider = np.zeros((values.shape[0], values.shape[1] + 3), values.dtype)
        wider[:, 1:-2] = values
        return wider[:, 1:-2]
    if how == "every other":
        wider = np.zeros((2 * values.shape[0], 2 * values.shape[1]), values.dtype)
        wider[::2, ::2] = values
        return wider[::2, ::2]
    return values


@pytest.mark.parametrize("how", ["rows", "columns", "parts of rows", "every other"])
@pytest.mark.parametrize("kind", KINDS)
def test_few_columns_are_those_of_float64(kind: str, how: str) -> None:
    dtype, limit = KINDS[kind]
    for _ in range(12):
        m, k, n = RNG.integers(1, 90), RNG.integers(1, 200), RNG.integers(1, 10)
        a = lying(RNG.standard_normal((m, k)).astype(dtype), how)
        b = lying(RNG.standard_normal((k, n)).astype(dtype), str(RNG.choice(["rows", how])))
        want = a.astype(np.float64) @ b.astype(np.float64)
        size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
        found = [K.matmul(a, b)]
        frame = np.full((m + 2, n + 2), 7, dtype)
        found.append(K.matmul(a, b, out=frame[1:-1, 1:-1]))
        if n == 1:
            found.append(K.matmul(a, b[:, 0])[:, None])
        for one in found:
            assert one.shape == (m, n)
            assert np.all(np.abs(one.astype(np.float64) - want) <= limit * (size + 1e-30)), (
                m,
                k,
                n,
            )
        frame[1:-1, 1:-1] = 7
        assert np.all(frame == np.asarray(7, dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_few_rows_or_columns_are_those_of_float64(kind: str) -> None:
    dtype, limit = KINDS[kind]
    for turn in range(40):
        batch, few, k, other = (int(n) for n in RNG.integers(1, (7, 6, 70, 90)))
        m, n = (few, other) if turn % 2 else (other, few)
        parts = []
        for rows, columns in ((m, k), (k, n)):
            turned = bool(RNG.integers(2))
            whole = RNG.standard_normal(
                (batch, columns, rows) if turned else (batch, rows, columns)
            )
            whole = whole.astype(dtype)
            parts.append(whole.transpose(0, 2, 1) if turned else whole)
        a, b = parts
        if turn % 5 == 0:
            a = np.broadcast_to(a[:1], a.shape)
        wide = [v.astype(np.float64) for v in (a, b)]
        want, size = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
        residual = RNG.standard_normal(want.shape).astype(dtype)
        plain, added = K.matmul(a, b), K.matmul(a, b, residual=residual)
        assert np.all(np.abs(plain.astype(np.float64) - want) <= limit * (size + 1e-30)), turn
        want, size = want + residual, size + np.abs(residual.astype(np.float64))
        assert np.all(np.abs(added.astype(np.float64) - want) <= limit * (size + 1e-30)), turn


def test_a_matrix_by_a_vector_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one by a few columns, where there are not so many cores that K is split."""
    few = replace(cb.device_properties_of("cpu"), cores=2)
    monkeypatch.setattr(tuned, "device_properties", lambda device: few)
    for m, k, n in ((256, 256, 1), (1000, 33, 1), (2, 3, 1), (64, 512, 4), (200, 300, 8)):
        problem = Product("cpu", m, k, n, layout="columns")
        assert MATMUL.inferred(problem).routine.name == "turned"
    with cb.use("cpu"):
        explained = K.matmul.explain(np.ones((64, 32), np.float32), np.ones(32, np.float32))
    assert "  turned (" in str(explained)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_every_routine_takes_arrays_of_other_devices(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many cores as there are make other routines the best, on a device that is no host, too."""
    dtype, limit = KINDS[kind]
    used = set()
    for cores in (1, 2, 16, 128):
        many = replace(cb.device_properties_of("cpu"), cores=cores)
        with pretend(monkeypatch):
            monkeypatch.setattr(tuned, "device_properties", lambda device, many=many: many)
            TUNER.forget()
            for m, k, n in (
                (70, 512, 19),
                (70, 4096, 19),
                (1, 4096, 64),
                (33, 2048, 8),
                (8, 64, 900),
            ):
                a, b = (RNG.standard_normal(s).astype(dtype) for s in ((m, k), (n, k)))
                there = [cb.tensor(v, device=NAME) for v in (a, b)]
                with cb.use(NAME):
                    found = K.matmul(there[0].storage.array, there[1].storage.array.T)
                    used.add(choose(MATMUL, Product(NAME, m, k, n, layout="columns")).routine.name)
                exact = a.astype(np.float64) @ b.astype(np.float64).T
                error = np.abs(found.numpy().astype(np.float64) - exact).max()
                assert error <= limit * np.abs(exact).max() * np.sqrt(k / 64), (cores, m, k, n)
    TUNER.forget()
    assert "split" in used


@pytest.mark.parametrize("seed", range(16))
def test_outer_products(seed: int) -> None:
    """A K of 1, batches that are repeated, any strides, into a part of an array."""
    rng = np.random.default_rng(seed)
    dtype = [np.float32, np.float64, np.float16, np.float32][seed % 4]
    m, n, b = (int(v) for v in rng.integers(1, 70, 3))
    batch = [(), (b % 4 + 1,), (2, b % 3 + 1)][int(rng.integers(3))]
    other = tuple(1 if rng.random() < 0.5 else k for k in batch)[int(rng.integers(0, 2)) :]
    x = rng.standard_normal((*batch, m, 3)).astype(dtype)[..., 1:2]
    y = rng.standard_normal((*other, n, 1)).astype(dtype).swapaxes(-1, -2)
    want = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(K.matmul(x, y), want, rtol=1e-3 if dtype is np.float16 else 1e-7)
    whole = np.full((*batch, m, n + 3), 5, dtype)
    K.matmul(x, y, out=whole[..., 1 : n + 1])
    np.testing.assert_array_equal(whole[..., 1 : n + 1], K.matmul(x, y))
    assert (whole[..., 0] == 5).all() and (whole[..., n + 1 :] == 5).all()


@pytest.mark.parametrize("kind", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_integers_of_any_size_wrap_as_those_of_numpy(kind: str) -> None:
    ends = np.iinfo(kind)
    for _ in range(20):
        m, n = (int(RNG.choice([1, 2, RNG.integers(3, 12), RNG.integers(12, 90)])) for _ in "mn")
        k = int(RNG.integers(0, 150))
        hows = RNG.choice(["rows", "columns", "parts of rows", "every other"], 2)
        other = str(RNG.choice([kind, kind, "i1", "i4"]))
        a = lying(RNG.integers(ends.min, ends.max, (m, k), kind, endpoint=True), hows[0])
        b = lying(RNG.integers(-128, 127, (k, n)).astype(other), hows[1])
        dtype = K.matmul(a, b).dtype
        want = a.astype(dtype) @ b.astype(dtype)
        frame = np.full((m + 2, n + 2), 7, dtype)
        K.matmul(a, b, out=frame[1:-1, 1:-1])
        np.testing.assert_array_equal(frame[1:-1, 1:-1], want, str((m, k, n, hows, other)))
        frame[1:-1, 1:-1] = 7
        assert np.all(frame == 7)
        batches = np.stack([a, a[::-1]])
        np.testing.assert_array_equal(K.matmul(batches, b), np.stack([want, want[::-1]]))
        if n == 1:
            np.testing.assert_array_equal(K.matmul(a, b[:, 0]), want[:, 0])


def test_bools_are_truths_of_products() -> None:
    for m, k, n in ((17, 30, 5), (90, 30, 70), (1, 300, 40), (40, 512, 1), (5, 0, 3)):
        a, b = RNG.random((m, k)) < 0.2, RNG.random((k, n)) < 0.2
        np.testing.assert_array_equal(K.matmul(a, b), a @ b)
        np.testing.assert_array_equal(K.matmul(a, np.asfortranarray(b)), a @ b)
        np.testing.assert_array_equal(K.matmul(a, b[:, 0]), a @ b[:, 0])
