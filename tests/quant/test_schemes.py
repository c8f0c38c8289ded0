"""Schemes, packing, rounding, equalization and the meaning of quantized weights, on plain NumPy
arrays.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubepy.errors import FileFormatError, QuantizationError, ShapeError
from cubepy.quant.calibration.observer import Observer
from cubepy.quant.linear import reference
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.schemes.equalize import input_factors
from cubepy.quant.schemes.gptq import compensation, curvature
from cubepy.quant.schemes.rounding import fit_int4
from cubepy.quant.schemes.scheme import Scheme, parse_scheme
from cubepy.quant.weights import packing
from cubepy.quant.weights.weight import QuantizedWeight, Statistics

SCHEMES = [
    "int8",
    "int4",
    Scheme("int4", 4, 32, True),
    Scheme("int4", 4, 64, False),
    Scheme("int4", 4, 8, True),
]


def names(scheme: str | Scheme) -> str:
    return scheme if isinstance(scheme, str) else f"{scheme.name}-{scheme.group}-{scheme.symmetric}"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


class TestSchemeNames:
    def test_unknown_scheme_lists_the_schemes(self) -> None:
        with pytest.raises(
            QuantizationError, match="unknown scheme 'int3': the schemes are int8, int4"
        ) as caught:
            parse_scheme("int3")
        assert "Hint:" in str(caught.value)

    def test_something_that_is_no_scheme_is_refused(self) -> None:
        with pytest.raises(QuantizationError, match="a scheme is a name .* not int"):
            parse_scheme(4)  # type: ignore[arg-type]

    def test_group_and_symmetry_change_a_named_scheme(self) -> None:
        assert parse_scheme("int4", group=64, symmetric=True) == Scheme("int4", 4, 64, True)

    @pytest.mark.parametrize("group", [0, -32, 12, 2.0, True, "32"])
    def test_a_group_that_cannot_be_packed_is_refused(self, group: object) -> None:
        with pytest.raises(QuantizationError, match="a group is a positive multiple of 8"):
            parse_scheme("int4", group=group)  # type: ignore[arg-type]

    def test_int8_refuses_groups_and_asymmetry(self) -> None:
        with pytest.raises(QuantizationError, match="takes no group"):
            parse_scheme("int8", group=32)
        with pytest.raises(QuantizationError, match="int8 weights are symmetric"):
            parse_scheme("int8", symmetric=False)

    def test_a_group_that_does_not_divide_names_layer_k_and_remedies(self) -> None:
        with pytest.raises(QuantizationError) as caught:
            parse_scheme("int4", group=64).check(96, "encoder.dense")
        text = str(caught.value)
        assert "'encoder.dense' has K=96 inputs" in text and "group=64" in text
        assert "group=8 or 16 or 24 or 32 or 48 or 96" in text and "skip=('encoder.dense',)" in text

    def test_no_group_fits_an_odd_k(self) -> None:
        with pytest.raises(QuantizationError, match="leave the layer in float"):
            parse_scheme("int4").check(33, "x")


class TestPacking:
    @given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
    @settings(max_examples=40, deadline=None)
    def test_int8_survives_packing(self, rows: int, columns: int, seed: int) -> None:
        codes = np.random.default_rng(seed).integers(-127, 128, (rows, columns)).astype(np.int8)
        packed = packing.pack_int8(codes)
        assert (
            packed.shape == (-(-rows // 16), -(-columns // 4), 16, 4) and packed.flags.c_contiguous
        )
        assert np.array_equal(packing.unpack_int8(packed, codes.shape), codes)

    @given(st.integers(1, 70), st.integers(1, 12), st.integers(0, 2**32 - 1))
    @settings(max_examples=40, deadline=None)
    def test_int4_survives_packing_in_half_the_bytes(
        self, rows: int, eights: int, seed: int
    ) -> None:
        codes = np.random.default_rng(seed).integers(0, 16, (rows, 8 * eights)).astype(np.uint8)
        packed = packing.pack_int4(codes)
        assert packed.nbytes == -(-rows // 16) * 16 * 8 * eights // 2 and packed.flags.c_contiguous
        assert np.array_equal(packing.unpack_int4(packed, codes.shape), codes)

    @given(st.integers(1, 40), st.integers(1, 9))
    @settings(max_examples=20, deadline=None)
    def test_group_and_channel_values_survive_packing(self, rows: int, groups: int) -> None:
        values = np.arange(rows * groups, dtype=np.float16).reshape(rows, groups)
        assert np.array_equal(packing.unpack_groups(packing.pack_groups(values), rows), values)
        assert np.array_equal(
            packing.unpack_channels(packing.pack_channels(values[:, 0]), rows), values[:, 0]
        )

    def test_layout_is_the_documented_one(self) -> None:
        codes = np.arange(32 * 16).reshape(32, 16)
        eight = packing.pack_int8((codes % 100).astype(np.int8))
        assert eight[1, 2, 3, 1] == codes[16 + 3, 4 * 2 + 1] % 100
        four = packing.pack_int4((codes * 7 % 16).astype(np.uint8))
        assert four[1, 1, 5, 2] & 15 == codes[21, 8 + 2] * 7 % 16
        assert four[1, 1, 5, 2] >> 4 == codes[21, 8 + 4 + 2] * 7 % 16

    def test_int4_refuses_a_ragged_k(self) -> None:
        with pytest.raises(QuantizationError, match="K=12 is not a multiple of 8"):
            packing.pack_int4(np.zeros((4, 12), np.uint8))


class TestRounding:
    def test_search_is_never_worse_than_the_plain_range(self, rng: np.random.Generator) -> None:
        weight = rng.standard_normal((40, 96)).astype(np.float32) ** 3
        grid = fit_int4(weight, 32, symmetric=False)
        found = ((grid.values(grid.codes(weight)) - weight) ** 2).sum()
        low = weight.reshape(40, 3, 32).min(-1, keepdims=True)
        scale = (weight.reshape(40, 3, 32).max(-1, keepdims=True) - low) / 15
        plain = np.rint((weight.reshape(40, 3, 32) - low) / scale) * scale + low
        assert found < ((plain.reshape(40, 96) - weight) ** 2).sum()

    def test_important_inputs_are_kept_more_exactly(self, rng: np.random.Generator) -> None:
        weight = rng.standard_normal((64, 32)).astype(np.float32)
        importance = np.ones(32, np.float32)
        importance[:4] = 100
        errors = []
        for cost in (None, importance):
            grid = fit_int4(weight, 32, False, cost)
            errors.append(((grid.values(grid.codes(weight)) - weight)[:, :4] ** 2).sum())
        assert errors[1] < errors[0] / 2

    def test_factors_even_out_a_column_that_stands_out(self, rng: np.random.Generator) -> None:
        weight = rng.standard_normal((64, 64)).astype(np.float32)
        weight[:, 5] *= 20
        factors = input_factors(weight, None).astype(np.float32)
        even = weight / factors
        assert np.abs(even[:, 5]).max() < np.abs(weight[:, 5]).max() / 3
        assert np.exp(np.log(factors).mean()) == pytest.approx(1, rel=1e-2)

    def test_factors_of_dead_columns_are_harmless(self) -> None:
        factors = input_factors(np.zeros((4, 8), np.float32), None, np.zeros(8, np.float32))
        assert np.array_equal(factors, np.ones(8, np.float16))

    @pytest.mark.parametrize("columns", [1, 7, 128, 385])
    def test_compensation_is_the_upper_factor_of_the_inverse(self, columns: int) -> None:
        x = np.random.default_rng(columns).standard_normal((3 * columns, columns))
        hessian = x.T @ x
        factor = compensation(hessian)
        assert np.array_equal(factor, np.triu(factor)) and (np.diag(factor) > 0).all()
        np.testing.assert_allclose(factor.T @ factor @ hessian, np.eye(columns), atol=1e-9)

    def test_many_small_inputs_are_seen_as_one_large_one(self) -> None:
        rows = np.random.default_rng(0).standard_normal((100, 24)).astype(np.float32)
        many, one = Observer(24, moments=True), Observer(24, moments=True)
        one.see(rows)
        for at in range(0, 100, 7):
            reused = rows[at : at + 7].copy()
            many.see(reused)
            reused[:] = 0  # a model may write its next activations there
        seen, expected = many.statistics(), one.statistics()
        assert seen is not None and expected is not None and seen.count == 100
        np.testing.assert_allclose(seen.moments, expected.moments, rtol=1e-12)
        np.testing.assert_allclose(seen.moments, rows.astype(float).T @ rows, rtol=1e-5, atol=1e-4)
        np.testing.assert_array_equal(seen.largest, expected.largest)

    def test_compensation_survives_a_singular_hessian(self) -> None:
        factor = compensation(np.ones((8, 8)))
        assert np.isfinite(factor).all() and np.allclose(factor, np.triu(factor))
        assert np.isfinite(compensation(curvature(np.zeros((4, 4)), 0))).all()


class TestQuantizedWeight:
    @pytest.mark.parametrize("scheme", SCHEMES, ids=names)
    @pytest.mark.parametrize("rows", [1, 5, 16, 33])
    def test_dequantized_is_near(
        self, scheme: str | Scheme, rows: int, rng: np.random.Generator
    ) -> None:
        weight = rng.standard_normal((rows, 64)).astype(np.float32)
        quantized = QuantizedWeight.from_float(weight, scheme)
        near = quantized.dequantize()
        assert near.shape == weight.shape and near.dtype == np.float32
        error = np.linalg.norm(near - weight) / np.linalg.norm(weight)
        assert error < (0.02 if quantized.scheme.bits == 8 else 0.12)
        assert np.array_equal(quantized.dequantize(3, 5), near[3:5])

    @pytest.mark.parametrize("scheme", SCHEMES, ids=names)
    @pytest.mark.parametrize("size", [1e-9, 1e-4, 1.0, 1e6])
    def test_size_of_the_weights_does_not_matter(
        self, scheme: str | Scheme, size: float, rng: np.random.Generator
    ) -> None:
        weight = (rng.standard_normal((24, 64)) * size).astype(np.float32)
        near = QuantizedWeight.from_float(weight, scheme).dequantize()
        assert np.linalg.norm(near - weight) < 0.12 * np.linalg.norm(weight)

    @pytest.mark.parametrize("scheme", SCHEMES, ids=names)
    def test_zeros_and_constants_are_exact(self, scheme: str | Scheme) -> None:
        zeros = QuantizedWeight.from_float(np.zeros((3, 64), np.float32), scheme)
        assert not zeros.dequantize().any()
        ones = QuantizedWeight.from_float(np.ones((3, 64), np.float32), scheme).dequantize()
        assert np.allclose(ones, 1, atol=2e-3)

    def test_int8_takes_any_k(self, rng: np.random.Generator) -> None:
        weight = rng.standard_normal((7, 13)).astype(np.float32)
        assert np.allclose(
            QuantizedWeight.from_float(weight, "int8").dequantize(), weight, atol=0.05
        )

    @pytest.mark.parametrize("scheme", SCHEMES, ids=names)
    def test_sums_are_those_of_what_the_codes_stand_for(
        self, scheme: str | Scheme, rng: np.random.Generator
    ) -> None:
        quantized = QuantizedWeight.from_float(
            rng.standard_normal((20, 64)).astype(np.float32), scheme
        )
        sums = packing.unpack_channels(quantized.sums, 20)
        if quantized.scheme.bits == 8:
            sums = sums * packing.unpack_channels(quantized.scales, 20)
        assert np.allclose(sums, quantized.even_rows().sum(axis=1), rtol=1e-4, atol=1e-3)

    def test_int4_needs_at_most_16_percent_of_float(self, rng: np.random.Generator) -> None:
        weight = rng.standard_normal((512, 512)).astype(np.float32)
        quantized = QuantizedWeight.from_float(weight, "int4")
        assert quantized.nbytes <= 0.16 * quantized.float_nbytes == 0.16 * weight.nbytes

    def test_calibration_lowers_the_output_error(self, rng: np.random.Generator) -> None:
        mixing = rng.standard_normal((64, 64))
        x = (
            rng.standard_normal((400, 16)) @ mixing[:16] + 0.1 * rng.standard_normal((400, 64))
        ).astype(np.float32)
        weight = rng.standard_normal((48, 64)).astype(np.float32)
        seen = Statistics(x.T.astype(np.float64) @ x, np.abs(x).max(axis=0), len(x))
        for scheme in ("int4", "int8"):
            plain = QuantizedWeight.from_float(weight, scheme).dequantize()
            compensated = QuantizedWeight.from_float(weight, scheme, statistics=seen).dequantize()
            exact = x @ weight.T
            assert np.linalg.norm(x @ compensated.T - exact) < 0.8 * np.linalg.norm(
                x @ plain.T - exact
            )

    def test_what_cannot_be_quantized_is_named(self) -> None:
        bad = np.ones((4, 32), np.float32)
        bad[1, 2] = np.nan
        with pytest.raises(QuantizationError, match="'lin' holds NaN or infinity"):
            QuantizedWeight.from_float(bad, "int8", name="lin")
        with pytest.raises(QuantizationError, match=r"'lin' has the shape \(4,\)"):
            QuantizedWeight.from_float(np.ones(4), "int8", name="lin")
        with pytest.raises(QuantizationError, match=r"shape \(0, 8\)"):
            QuantizedWeight.from_float(np.ones((0, 8)), "int8")

    @pytest.mark.parametrize("scheme", SCHEMES, ids=names)
    def test_arrays_and_metadata_rebuild_it_without_a_copy(
        self, scheme: str | Scheme, rng: np.random.Generator
    ) -> None:
        quantized = QuantizedWeight.from_float(
            rng.standard_normal((20, 64)).astype(np.float32), scheme
        )
        again = QuantizedWeight.from_arrays(quantized.arrays(), quantized.metadata(), "w")
        assert again.codes is quantized.codes and again.scheme == quantized.scheme
        assert np.array_equal(again.dequantize(), quantized.dequantize())

    def test_damaged_arrays_and_metadata_are_named(self, rng: np.random.Generator) -> None:
        quantized = QuantizedWeight.from_float(
            rng.standard_normal((20, 64)).astype(np.float32), "int4"
        )
        arrays, facts = quantized.arrays(), quantized.metadata()
        with pytest.raises(FileFormatError, match="'w' lacks its minimums"):
            QuantizedWeight.from_arrays(
                {k: v for k, v in arrays.items() if k != "minimums"}, facts, "w"
            )
        with pytest.raises(FileFormatError, match="codes of quantized tensor 'w' should be uint8"):
            QuantizedWeight.from_arrays({**arrays, "codes": arrays["codes"][:1]}, facts, "w")
        with pytest.raises(FileFormatError, match="layout version 99"):
            QuantizedWeight.from_arrays(arrays, {**facts, "layout": 99}, "w")
        for damaged in (
            {},
            {**facts, "scheme": "int3"},
            {**facts, "shape": [4]},
            {**facts, "group": "x"},
        ):
            with pytest.raises(FileFormatError):
                QuantizedWeight.from_arrays(arrays, damaged, "w")


class TestReference:
    @pytest.mark.parametrize("scheme", SCHEMES, ids=names)
    @pytest.mark.parametrize("rows", [1, 70, 130])
    def test_linear_is_near_the_float_layer(
        self, scheme: str | Scheme, rows: int, rng: np.random.Generator
    ) -> None:
        x = rng.standard_normal((2, 3, 64)).astype(np.float32) + 0.5
        weight, bias = (
            rng.standard_normal((rows, 64)).astype(np.float32),
            rng.standard_normal(rows).astype(np.float32),
        )
        quantized = QuantizedWeight.from_float(weight, scheme)
        out = reference.linear(x, quantized, bias)
        assert out.shape == (2, 3, rows) and out.dtype == np.float32
        assert cosine(out, x @ weight.T + bias) > (0.9995 if quantized.scheme.bits == 8 else 0.99)
        assert cosine(out - bias, x @ quantized.dequantize().T) > 0.9998

    def test_linear_follows_the_documented_integer_formula(self, rng: np.random.Generator) -> None:
        x = rng.standard_normal((3, 64)).astype(np.float32)
        weight = QuantizedWeight.from_float(rng.standard_normal((5, 64)).astype(np.float32), "int4")
        u, scale, zero = reference.quantize_rows(x, weight.input_scale)
        v, shifted = u.astype(np.int32) - 128, zero - 128
        codes = packing.unpack_int4(weight.codes, weight.shape).astype(np.int32)
        dots = np.einsum("mgk,ngk->mng", v.reshape(3, 2, 32), codes.reshape(5, 2, 32))
        group_sums = v.reshape(3, 2, 32).sum(-1)
        total = (dots * packing.unpack_groups(weight.scales, 5).astype(np.float64)).sum(-1)
        assert weight.minimums is not None
        total += group_sums @ packing.unpack_groups(weight.minimums, 5).astype(np.float64).T
        total -= shifted[:, None] * packing.unpack_channels(weight.sums, 5)
        assert np.allclose(
            total * scale[:, None] * weight.gain, reference.linear(x, weight), rtol=1e-4, atol=1e-4
        )

    def test_rows_of_zeros_stay_zero_and_nan_stays_in_its_row(
        self, rng: np.random.Generator
    ) -> None:
        weight = QuantizedWeight.from_float(rng.standard_normal((9, 32)).astype(np.float32), "int8")
        x = np.zeros((3, 32), np.float32)
        x[1, 4], x[2] = np.nan, 1
        out = reference.linear(x, weight)
        assert not out[0].any() and np.isnan(out[1]).all() and np.isfinite(out[2]).all()

    def test_no_rows_give_no_rows(self) -> None:
        weight = QuantizedWeight.from_float(np.ones((9, 32), np.float32), "int8")
        assert reference.linear(np.zeros((0, 32), np.float32), weight).shape == (0, 9)

    def test_wrong_width_is_refused(self) -> None:
        weight = QuantizedWeight.from_float(np.ones((9, 32), np.float32), "int8")
        with pytest.raises(ShapeError, match="32 inputs got an array of shape"):
            reference.linear(np.zeros((2, 31), np.float32), weight)


class TestKernels:
    """The kernels compute what the reference says, to the rounding of float32 sums."""

    @pytest.mark.parametrize("scheme", SCHEMES, ids=names)
    @pytest.mark.parametrize("m", [1, 2, 5, 67])
    def test_kernels_follow_the_reference(
        self, scheme: str | Scheme, m: int, rng: np.random.Generator
    ) -> None:
        for rows, columns in ((70, 128), (16, 64)):
            weight = QuantizedWeight.from_float(
                rng.standard_normal((rows, columns)).astype(np.float32), scheme
            )
            x = rng.standard_normal((m, columns)).astype(np.float32) + 0.3
            bias = rng.standard_normal(rows).astype(np.float32)
            residual = rng.standard_normal((m, rows)).astype(np.float32)
            expected = reference.linear(x, weight, bias) + residual
            found = quantized_linear(x, weight, bias, residual)
            assert np.allclose(found, expected, rtol=1e-5, atol=2e-5)

    def test_int8_kernel_takes_any_k(self, rng: np.random.Generator) -> None:
        weight = QuantizedWeight.from_float(
            rng.standard_normal((33, 13)).astype(np.float32), "int8"
        )
        x = rng.standard_normal((3, 2, 13)).astype(np.float32)
        assert np.allclose(
            quantized_linear(x, weight), reference.linear(x, weight), rtol=1e-5, atol=1e-5
        )

    def test_activation_is_fused(self, rng: np.random.Generator) -> None:
        weight = QuantizedWeight.from_float(
            rng.standard_normal((16, 32)).astype(np.float32), "int4"
        )
        x = rng.standard_normal((4, 32)).astype(np.float32)
        expected = np.maximum(reference.linear(x, weight), 0)
        assert np.allclose(quantized_linear(x, weight, activation="relu"), expected, atol=1e-5)

    def test_nan_stays_in_its_row_and_zeros_stay_zero(self, rng: np.random.Generator) -> None:
        for scheme in ("int8", "int4"):
            weight = QuantizedWeight.from_float(
                rng.standard_normal((17, 32)).astype(np.float32), scheme
            )
            x = np.ones((4, 32), np.float32)
            x[0], x[1, 4], x[2, 31] = 0, np.nan, -np.inf
            out = quantized_linear(x, weight)
            assert not out[0].any() and np.isnan(out[1:3]).all() and np.isfinite(out[3]).all()

    def test_other_float_inputs_and_strides_work(self, rng: np.random.Generator) -> None:
        weight = QuantizedWeight.from_float(
            rng.standard_normal((17, 32)).astype(np.float32), "int8"
        )
        x = rng.standard_normal((32, 4)).astype(np.float32).T
        plain = reference.linear(np.ascontiguousarray(x), weight)
        assert np.allclose(quantized_linear(x, weight), plain, atol=1e-5)
        assert np.allclose(quantized_linear(x.astype(np.float64), weight), plain, atol=1e-5)
        assert cosine(quantized_linear(x.astype(np.float16), weight), plain) > 0.9999
        assert quantized_linear(x[:0], weight).shape == (0, 17)

    def test_rows_of_a_weight_are_those_of_the_whole(self, rng: np.random.Generator) -> None:
        for scheme in ("int8", "int4"):
            weight = QuantizedWeight.from_float(
                rng.standard_normal((70, 32)).astype(np.float32), scheme
            )
            for start, stop in ((16, 48), (32, 70), (3, 21)):
                part = weight.rows(start, stop)
                assert np.array_equal(part.dequantize(), weight.dequantize(start, stop))
            assert np.shares_memory(weight.rows(16, 48).codes, weight.codes)
