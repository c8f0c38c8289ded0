"""Operators of torch where tensors are empty, without axes or infinite; what is expected was
written down from torch 2.13.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.lang.dtypes import f64, i64
from cubepy.models.exported import targets
from cubepy.models.exported.records import run_of
from cubepy.tensor import Tensor

assert targets.__all__  # imported for its records
INF, NAN = float("inf"), float("nan")


def t(value: Any, dtype: str = "f32") -> Tensor:
    return cb.tensor(np.asarray(value, "f8")).astype(dtype)


LOWER = t([[4, 9], [1, 2]], "f64")
WINDOWS = "hann_window hamming_window blackman_window bartlett_window kaiser_window".split()
EDGES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], Any, str]] = {
    "eigvalsh reads one triangle": (
        "linalg_eigvalsh",
        (LOWER, "L"),
        {},
        np.linalg.eigvalsh([[4, 1], [1, 2]]),
        "f64",
    ),
    "eigvalsh reads the other one": (
        "linalg_eigvalsh",
        (LOWER, "U"),
        {},
        np.linalg.eigvalsh([[4, 9], [9, 2]]),
        "f64",
    ),
    "angle keeps 64 bits": ("angle", (t([-1, 2, NAN], "f64"),), {}, [np.pi, 0, NAN], "f64"),
    "angle keeps 16 bits": ("angle", (t([-1.0], "f16"),), {}, [np.float16(np.pi)], "f16"),
    "no step at NaN": ("heaviside", (t([NAN, -1, 0]), t([7, 7, 7])), {}, [0, 0, 7], "f32"),
    "ldexp of 16 bits": ("ldexp", (t([1, 3], "f16"), t([3, 14], "i64")), {}, [8, 49152], "f16"),
    "ldexp of 64 bits": ("ldexp", (t([1], "f64"), t([0.3])), {}, [2.0 ** np.float32(0.3)], "f64"),
    "xlogy of a number": ("xlogy.Scalar_Self", (2, t([1, 4], "f16")), {}, [0, np.log(16)], "f16"),
    "lcm of two widths": ("lcm", (t([4, 6], "i32"), t(10, "i64")), {}, [20, 30], "i32"),
    "vander of integers": ("vander", (t([2, 3], "i32"),), {}, [[2, 1], [3, 1]], "i64"),
    "trace of bytes": ("trace", (t([[200, 1], [1, 100]], "u8"),), {}, 300, "i64"),
    "kron without axes": ("kron", (t(2, "f64"), t([1, 3])), {}, [2, 6], "f64"),
    "cumsum without axes": ("cumsum", (t(3, "u8"), 0), {}, 3, "i64"),
    "cumprod without axes": ("cumprod", (t(3, "f16"), 0), {"dtype": i64}, 3, "i64"),
    "count without axes": ("count_nonzero", (t(3), 0), {}, 1, "i64"),
    "nanmean without axes": ("nanmean", (t(3), [-1]), {}, 3, "f32"),
    "diff of no order": ("diff", (t([1, 4]), 0, 0, t([9])), {}, [1, 4], "f32"),
    "any along no axis": ("any.dims", (t([0, 2]), []), {}, [False, True], "bool"),
    "all along no axis": ("all.dims", (t([0, 2]), [], True), {}, [False, True], "bool"),
    "sum to no axes": ("sum_to_size", (t([3, 4], "i32"), []), {}, 7, "i64"),
    "windows of no width": ("unfold", (t([[1, 2]]), 1, 0, 1), {}, np.zeros((1, 3, 0)), "f32"),
    "no columns apart": ("cdist", (t(np.zeros((2, 0))),) * 2 + (INF,), {}, [[0, 0]] * 2, "f32"),
    "hinge of infinity": ("hinge_embedding_loss", (t([INF, 2]), t([-1, 1]), 1.0, 2), {}, 2, "f32"),
    "median of nothing": ("median.default", (t([]),), {}, NAN, "f32"),
    "nanmedian of nothing": ("nanmedian.default", (t(np.zeros((2, 0))),), {}, NAN, "f32"),
    "quantiles between infinities": (
        "quantile",
        (t([-INF, 1, 2]), t([0.2, 0.4, 1]), 0),
        {},
        [NAN, -INF, 2],
        "f32",
    ),
    "a quantile without axes": ("quantile", (t(3), t([0.5]), 0, True), {}, [3], "f32"),
    "integers in a line": ("linspace", (-3, 1.5, 5), {"dtype": i64}, [-3, -2, -1, 0, 1], "i64"),
    "no batch is unpooled": (
        "max_unpool2d",
        (t(np.zeros((0, 2, 1, 1))), t(np.zeros((0, 2, 1, 1)), "i64"), [2, 2]),
        {},
        np.zeros((0, 2, 2, 2)),
        "f32",
    ),
    "no batch is sampled": (
        "grid_sampler_2d",
        (t(np.zeros((0, 2, 3, 3))), t(np.zeros((0, 4, 5, 2))), 0, 0, False),
        {},
        np.zeros((0, 2, 4, 5)),
        "f32",
    ),
    "no maps give no grid": (
        "affine_grid_generator",
        (t(np.zeros((0, 2, 3))), [0, 1, 4, 5], False),
        {},
        np.zeros((0, 4, 5, 2)),
        "f32",
    ),
    **{name: (name, (1, True), {"dtype": f64}, [1], "f64") for name in WINDOWS},
}


@pytest.mark.parametrize("case", EDGES)
def test_edges_are_torchs(case: str) -> None:
    name, args, said, want, dtype = EDGES[case]
    run = run_of(f"aten.{name}" if "." in name else f"aten.{name}.default")
    assert run is not None
    found = run(*args, **said)
    assert found.dtype.name.rstrip("_") == dtype and found.shape == np.shape(want)
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-3 if dtype == "f16" else 1e-6)


def test_a_row_that_does_not_count_is_named_from_the_end() -> None:
    run = run_of("aten.embedding_bag.padding_idx")
    assert run is not None
    rows, at = t([[1, 2], [30, 40]]), t([0, 1, 0], "i64")
    found = run(rows, at, t([0], "i64"), False, 0, False, None, False, -1)[0]
    assert found.tolist() == [[2.0, 4.0]]
    assert run(rows, at, t([0], "i64"), False, 0, False, None, False, None)[0].tolist() == [
        [32, 44]
    ]
