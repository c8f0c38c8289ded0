"""Operators of torch called by themselves, with the arguments that few modules give."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ModelError
from cubepy.models.exported import targets
from cubepy.models.exported.records import TARGETS, run_of

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

assert targets.__all__  # imported for its records

PLACES = {"layout", "device", "pin_memory", "memory_format", "non_blocking", "copy"}
"""Keywords that say where and how numbers lie: results are the same without them."""
READ = {
    "argsort": {"dim", "descending", "stable"},
    "scatter": {"reduce"},
    "einsum": {"path"},
    "repeat_interleave": {"output_size"},
    "sym_constrain_range": {"min", "max"},
    "sym_constrain_range_for_size": {"min", "max"},
} | {name: {"correction", "keepdim"} for name in ("std", "var", "var_mean")}
"""Keywords that operators look up by themselves, or that change no number."""


def run(name: str, *args: Any, **said: Any) -> np.ndarray:
    found = run_of(f"aten.{name}")
    assert found is not None
    return found(*args, **said).numpy()  # type: ignore[no-any-return]


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_no_keyword_of_torch_is_passed_over() -> None:
    for base in {name.split(".")[0] for name in TARGETS}:
        packet = getattr(torch.ops.aten, base, None)
        for overload in packet.overloads() if packet is not None else ():
            found, schema = run_of(f"aten.{base}.{overload}"), getattr(packet, overload)._schema
            if found is None or not schema.arguments or "Tensor" not in str(schema.returns[:1]):
                continue
            named = {a.name for a in schema.arguments if a.kwarg_only and not a.is_out}
            taken = inspect.signature(found).parameters.values()
            if any(p.kind is p.VAR_KEYWORD for p in taken):
                known = {p.name for p in taken} | PLACES | READ.get(base, set())
                assert named <= known, (base, overload, named - known)


def test_values_and_shapes_at_the_edge() -> None:
    x = cb.tensor([float("nan"), -np.inf, -0.0, 2.0])
    np.testing.assert_array_equal(run("sign.default", x), [0, -1, 0, 1])
    np.testing.assert_array_equal(run("sign.default", cb.tensor([-3, 0])), [-1, 0])
    np.testing.assert_array_equal(run("nan_to_num.default", cb.tensor([-3, 0])), [-3, 0])
    for dims in (0, -1, [0, -1]):
        assert run("squeeze.dim", cb.tensor(2.5), dims) == 2.5


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ({}, [1, 0, 3, 4]),
        ({"side": "left"}, [1, 0, 3, 4]),
        ({"side": "right"}, [3, 0, 4, 4]),
        ({"right": True, "out_int32": True}, [3, 0, 4, 4]),
    ],
)
def test_searchsorted_before_and_behind_equal_ones(said: dict[str, Any], right: list[int]) -> None:
    sequence, x = cb.tensor([1.0, 2.0, 2.0, 3.0]), cb.tensor([2.0, 0.0, 3.0, 5.0])
    found = run("searchsorted.Tensor", sequence, x, **said)
    assert found.dtype == (np.int32 if said.get("out_int32") else np.int64)
    assert found.tolist() == right
    order = np.array([3, 1, 0, 2])
    mixed = cb.tensor(np.array([2.0, 2.0, 3.0, 1.0], np.float32))
    assert run("searchsorted.Tensor", mixed, x, sorter=cb.tensor(order), **said).tolist() == right


@pytest.mark.parametrize("order", [0, 1, 2, 3, float("inf")])
def test_norms_in_a_dtype_of_their_own(order: float) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    found = run("linalg_vector_norm.default", cb.tensor(x), order, [1], dtype=cb.f64)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, np.linalg.norm(x.astype(np.float64), order, axis=1))


@pytest.mark.parametrize("widths", [(-1, 2), (2, -1), (-2, -1), (1, 2), (0, -2)])
def test_circular_pads_that_take_away(widths: tuple[int, int]) -> None:
    """The axis without what is taken away goes on with its other end."""
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 6)
    before, after = widths
    kept = x[..., max(-before, 0) : 6 + min(after, 0)]
    right = np.pad(kept, ((0, 0), (0, 0), (max(before, 0), max(after, 0))), "wrap")
    np.testing.assert_array_equal(run("pad.default", cb.tensor(x), widths, "circular"), right)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
@pytest.mark.parametrize("divisor", [3, -3])
def test_division_of_short_integers_by_numbers(dtype: Any, divisor: int) -> None:
    x = np.arange(-7, 8).astype(dtype)
    rest = run("fmod.Scalar", cb.tensor(x), divisor)
    quotient = run("div.Scalar_mode", cb.tensor(x), divisor, rounding_mode="trunc")
    assert rest.dtype == quotient.dtype == dtype
    np.testing.assert_array_equal(rest, np.fmod(x, divisor))
    np.testing.assert_array_equal(quotient, np.trunc(x / divisor))


def test_dtypes_of_bools_and_bytes() -> None:
    assert run("square.default", cb.tensor(np.array([True, False]))).tolist() == [1, 0]
    assert run("square.default", cb.tensor(np.array([True, False]))).dtype == np.int64
    full = cb.tensor(np.array([1, 2], np.uint8))
    assert run("all.default", full).dtype == run("any.default", full).dtype == np.uint8


@pytest.mark.parametrize("seed", range(8))
def test_rows_meet_the_matrix_of_their_group(seed: int) -> None:
    """Also where groups are empty, rows lie behind the last one, and gradients are wanted."""
    rng = np.random.default_rng(seed)
    groups, rows, k, n = (int(v) for v in rng.integers((1, 0, 1, 1), (14, 50, 40, 40)))
    x, w = rng.standard_normal((rows, k)), rng.standard_normal((groups, k, n))
    ends = np.sort(rng.integers(0, rows + 1, groups)).astype(rng.choice([np.int32, np.int64]))
    right = np.zeros((rows, n))
    for e, first in enumerate([0, *ends[:-1]]):
        right[first : ends[e]] = x[first : ends[e]] @ w[e]
    for dtype, by in ((np.float32, 1e-4), (np.float64, 1e-12)):
        given = cb.tensor(x.astype(dtype)), cb.tensor(w.astype(dtype)), cb.tensor(ends)
        for name in ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"):
            found = cb.jit(lambda *given, name=name: run_of(name)(*given))(*given)  # type: ignore
            np.testing.assert_allclose(found.numpy(), right, rtol=by, atol=by)
    turned = cb.tensor(w.transpose(0, 2, 1).copy(), requires_grad=True)
    run_of("aten._grouped_mm")(cb.tensor(x), turned.transpose(1, 2), cb.tensor(ends)).sum().backward()  # type: ignore  # fmt: skip
    starts = [0, *ends[:-1]]
    by_w = np.stack([x[a:b].sum(0) for a, b in zip(starts, ends, strict=True)])
    np.testing.assert_allclose(turned.grad.numpy(), np.repeat(by_w[:, None], n, 1), atol=1e-9)
    with pytest.raises(ModelError, match="groups of rows"):
        run_of("aten._grouped_mm")(given[1], given[0], given[2])  # type: ignore
