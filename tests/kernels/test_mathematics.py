"""The functions of numbers in `K.map` and as methods of tensors: shapes, dtypes, graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.tensor import Graph, execute, record
from tests.accuracy import BINARY, UNARY, bound, reference, ulps
from tests.staging import WHERE

X = np.linspace(0.05, 0.95, 2 * 37, dtype=np.float32).reshape(2, 37)
Y = np.float32([[0.3], [-2.0]])


def inputs(name: str) -> tuple[np.ndarray, ...]:
    x = X + 1 if name == "acosh" else X
    return (x, Y) if name in BINARY else (x,)


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_maps_and_tensors_compute_functions_of_numbers(name: str) -> None:
    values = inputs(name)
    spread = np.broadcast_arrays(*values)
    want = reference(name, *spread)
    mapped = K.map(getattr(cb, name), *values)
    first, *rest = (cb.tensor(v) for v in values)
    method = getattr(first, name)(*rest)
    assert method.dtype == cb.f32 and mapped.dtype == np.float32
    for got in (mapped, method.numpy()):
        assert got.shape == X.shape
        assert ulps(got, want, "f32").max() <= bound(name, "f32", WHERE or "cpu")


@pytest.mark.parametrize(("given", "made"), [(np.int32, np.float32), (np.int64, np.float64)])
def test_functions_of_integers_give_floats(given: Any, made: Any) -> None:
    n = np.array([1, 2, 3], given)
    for got in (K.map(cb.atan, n), cb.tensor(n).atan().numpy()):
        assert got.dtype == made
        np.testing.assert_allclose(got, np.arctan(n), rtol=1e-6)
    for got in (K.map(cb.hypot, n, n), cb.tensor(n).hypot(cb.tensor(n)).numpy()):
        assert got.dtype == made
        np.testing.assert_allclose(got, np.hypot(n, n), rtol=1e-6)


def test_signs_of_tensors_keep_their_dtype() -> None:
    assert cb.tensor([-3, 0, 2]).sign().numpy().tolist() == [-1, 0, 1]
    assert cb.tensor(np.float32([-3, 0, 2])).sign().dtype == cb.f32
    with pytest.raises(errors.DTypeError, match="sign works on numbers, not bool_"):
        cb.tensor([True]).sign()


def test_a_recorded_graph_of_them_survives_json() -> None:
    x = cb.tensor(X)
    with record(x) as r:
        out = x.tan().atan2(x.cosh()).copysign(-1.0)
    graph = Graph.from_json(r.graph(out).to_json())
    (got,) = execute(graph, [cb.tensor(X / 2)])
    wide = X.astype(np.float64) / 2
    want = np.copysign(np.arctan2(np.tan(wide), np.cosh(wide)), -1)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
