"""`quant.quantize`: which layers, with which data, and what the report says."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn, quant
from cubepy.errors import ArgumentError, KernelTypeError, QuantizationError, QuantizationWarning
from cubepy.quant.calibration.observer import samples
from cubepy.quant.report import LayerReport, QuantizationReport


class Model(nn.Module):
    """An embedding, attention, a feed-forward block, and a head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(40, 64)
        self.attention = nn.MultiHeadAttention(64, 4)
        self.hidden = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 64))
        self.head = nn.Linear(64, 40)
        self.head.weight = self.table.weight

    def forward(self, ids: object) -> cb.Tensor:
        x = self.table(ids)
        x = x + self.attention(x)
        return self.head(x + self.hidden(x))


@pytest.fixture
def model() -> Model:
    nn.init.generator().bit_generator.state = np.random.PCG64(3).state
    return Model().eval()


@pytest.fixture
def ids() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 40, (4, 12))


def reasons(result: quant.QuantizationResult) -> dict[str, str]:
    return {layer.name: layer.reason for layer in result.report.layers}


class TestLayers:
    def test_linear_weights_are_packed_and_the_rest_stays(
        self, model: Model, ids: np.ndarray
    ) -> None:
        result = quant.quantize(model, "int8", measure_speed=False)
        assert reasons(result) == {
            "table": "an embedding is looked up, not multiplied",
            "attention.in_proj_weight": "",
            "attention.out_proj": "",
            "hidden.0": "",
            "hidden.2": "",
            "head": "shared with an embedding",
        }
        assert result.model.hidden[0].weight.storage.kind == "quantized"
        assert result.model.table.weight.storage is model.table.weight.storage
        exact, near = model(ids).numpy(), result.model(ids).numpy()
        assert np.linalg.norm(exact - near) < 0.03 * np.linalg.norm(exact)

    def test_the_model_itself_changes_only_in_place(self, model: Model) -> None:
        other = quant.quantize(model, "int4", measure_speed=False).model
        assert model.hidden[0].weight.storage.kind == "dense" and other is not model
        same = quant.quantize(model, "int4", inplace=True, measure_speed=False).model
        assert same is model and model.hidden[0].weight.storage.kind == "quantized"

    def test_cross_attention_reads_parts_of_a_packed_weight(self, model: Model) -> None:
        attention = quant.quantize(model, "int8", measure_speed=False).model.attention
        rng = np.random.default_rng(1)
        q, kv = (rng.standard_normal((2, n, 64)).astype(np.float32) for n in (3, 5))
        exact, near = model.attention(q, kv).numpy(), attention(q, kv).numpy()
        assert np.linalg.norm(exact - near) < 0.03 * np.linalg.norm(exact)

    @pytest.mark.parametrize(
        "skip",
        [
            "hidden.*",
            ["hidden.0", "hidden.2"],
            ("hidden.0.weight", "hidden.2.weight"),
            lambda name, module: name.startswith("hidden"),
        ],
    )
    def test_skipped_layers_stay_float(self, model: Model, skip: object) -> None:
        result = quant.quantize(model, "int8", skip=skip, measure_speed=False)  # type: ignore[arg-type]
        assert {layer.name for layer in result.report.quantized} == {
            "attention.in_proj_weight",
            "attention.out_proj",
        }
        assert result.model.hidden[0].weight.storage is model.hidden[0].weight.storage
        assert "skip=" in reasons(result)["hidden.0"]

    def test_a_pattern_that_matches_nothing_is_remarked(self, model: Model) -> None:
        report = quant.quantize(model, "int8", skip=("hiden*",), measure_speed=False).report
        assert report.warnings == [
            "skip='hiden*' matched no layer"
        ] and "warning: skip='hiden*'" in str(report)

    def test_a_second_quantization_leaves_packed_layers(self, model: Model) -> None:
        once = quant.quantize(model, "int8", skip="hidden.0", measure_speed=False).model
        twice = quant.quantize(once, "int4", measure_speed=False)
        assert reasons(twice)["hidden.2"] == "already quantized"
        assert [layer.name for layer in twice.report.quantized] == ["hidden.0"]

    def test_a_result_is_called_as_its_model(
        self, model: Model, ids: np.ndarray, tmp_path: Path
    ) -> None:
        result = quant.quantize(model, "int8", measure_speed=False)
        np.testing.assert_array_equal(result(ids).numpy(), result.model(ids).numpy())
        with pytest.raises(QuantizationError, match=r"not QuantizationResult\n.*result\.model"):
            quant.quantize(result)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match=r"not QuantizationResult\n.*result\.model"):
            quant.save(result, tmp_path / "model.safetensors")  # type: ignore[arg-type]

    def test_shared_layers_stay_shared(self) -> None:
        layer = nn.Linear(32, 32)
        twice = quant.quantize(
            nn.Sequential(layer, nn.ReLU(), layer), "int8", measure_speed=False
        ).model
        assert twice[0] is twice[2] and twice[0].weight.storage.kind == "quantized"

    def test_a_single_layer_is_a_model(self) -> None:
        result = quant.quantize(nn.Linear(32, 8), "int4", measure_speed=False)
        assert result.model.weight.storage.kind == "quantized" and "(model)" in str(result)

    def test_half_precision_stays_half_precision(self) -> None:
        layer = nn.Linear(32, 8)
        layer.weight = nn.Parameter(layer.weight.astype("f16"))
        packed = quant.quantize(layer, "int8", measure_speed=False).model
        assert packed.weight.dtype is cb.f16

    @pytest.mark.parametrize("scheme", ["int8", "int4"])
    def test_running_makes_no_float_copy_of_a_weight(self, scheme: str) -> None:
        packed = quant.quantize(nn.Linear(512, 1024), scheme, measure_speed=False).model
        x = np.ones((4, 512), np.float32)
        packed(x)
        tracemalloc.start()
        try:
            packed(x)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 1024 * 512 / 4  # an eighth of what the codes alone would take in float16

    def test_other_ops_on_a_packed_weight_say_what_to_do(self, model: Model) -> None:
        weight = quant.quantize(model, "int8", measure_speed=False).model.hidden[0].weight
        with pytest.raises(KernelTypeError, match="cannot read quantized storage"):
            weight + 1
        with pytest.raises(KernelTypeError, match="only whole rows"):
            weight[:, :8]
        assert weight.numpy().shape == (96, 64)


class TestRefusals:
    def test_nothing_to_quantize(self) -> None:
        with pytest.raises(
            QuantizationError, match="nothing to quantize: it holds no linear layer"
        ):
            quant.quantize(nn.Sequential(nn.GELU()), "int8")

    def test_everything_skipped(self, model: Model) -> None:
        with pytest.raises(
            QuantizationError, match=r"all of its layers are skipped.*matches skip='\*'"
        ):
            quant.quantize(model, "int8", skip="*")

    def test_a_layer_that_the_group_does_not_fit_stays_in_float_and_is_named(
        self, model: Model
    ) -> None:
        reason = "its 96 inputs are not a multiple of group=64"
        with pytest.warns(QuantizationWarning, match=f"stays? in float: 'hidden.2': {reason}"):
            report = quant.quantize(
                model, "int4", group=64, inplace=True, measure_speed=False
            ).report
        assert (
            model.hidden[0].weight.storage.kind == "quantized"
            and model.hidden[2].weight.storage.kind == "dense"
        )
        assert {layer.name: layer.reason for layer in report.skipped}["hidden.2"] == reason
        assert any("'hidden.2'" in text and reason in text for text in report.warnings)

    def test_a_group_that_fits_no_layer_names_one(self) -> None:
        lonely = nn.Sequential(nn.Linear(100, 64), nn.Linear(64, 100, bias=False))
        with pytest.raises(QuantizationError, match="'0' has K=100 inputs.*group=48") as caught:
            quant.quantize(lonely, "int4", group=48, inplace=True)
        assert "skip=('0',)" in str(caught.value)
        assert lonely[1].weight.storage.kind == "dense"

    def test_empty_and_shared_weights(self) -> None:
        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second, self.third = (
                    nn.Linear(32, 32),
                    nn.Linear(32, 32),
                    nn.Linear(32, 32),
                )
                self.empty, self.again = nn.Linear(32, 0), nn.Sequential(self.first)
                self.second.weight, self.scale = self.first.weight, self.third.weight

        report = quant.quantize(model := Tied(), "int4", inplace=True, measure_speed=False).report
        assert [layer.name for layer in report.quantized] == ["first", "second"]
        assert model.first.weight is model.second.weight and model.again[0] is model.first
        assert {layer.name: layer.reason for layer in report.skipped} == {
            "third": "shared with a module that is no linear layer", "empty": "it has no elements",
        }  # fmt: skip
        assert not report.warnings

    def test_unknown_scheme(self, model: Model) -> None:
        with pytest.raises(QuantizationError, match="unknown scheme 'fp3'"):
            quant.quantize(model, "fp3")

    def test_no_model(self) -> None:
        with pytest.raises(QuantizationError, match="a model is an nn.Module, not dict"):
            quant.quantize({}, "int8")  # type: ignore[arg-type]

    def test_nan_weights_leave_the_model_unchanged(self, model: Model) -> None:
        bad = model.hidden[2].weight.numpy().copy()
        bad[0, 0] = np.nan
        model.hidden[2].weight = nn.Parameter(bad)
        with pytest.raises(QuantizationError, match="'hidden.2' holds NaN or infinity"):
            quant.quantize(model, "int8", inplace=True)
        assert model.hidden[0].weight.storage.kind == "dense"

    def test_empty_or_poisoned_calibration(self, model: Model) -> None:
        with pytest.raises(QuantizationError, match="holds no sample inputs"):
            quant.quantize(model, "int4", calibrate=[])
        with pytest.raises(QuantizationError, match="NaN or infinity inside the model"):
            quant.quantize(
                nn.Linear(32, 8), "int8", calibrate=[np.full((2, 32), np.nan, np.float32)]
            )

    def test_a_skip_of_another_kind(self, model: Model) -> None:
        with pytest.raises(QuantizationError, match="skip takes names"):
            quant.quantize(model, "int8", skip=(3,))  # type: ignore[arg-type]


class TestSamples:
    def test_items_are_calls(self) -> None:
        one, two = np.zeros(2), np.ones(3)
        assert list(samples([one, (one, two), {"x": two}])) == [
            ((one,), {}),
            ((one, two), {}),
            ((), {"x": two}),
        ]

    def test_an_array_is_cut_into_batches(self) -> None:
        found = [args[0].shape for args, _ in samples(np.zeros((70, 5)))]
        assert found == [(32, 5), (32, 5), (6, 5)]

    def test_calibration_lowers_the_error_on_its_kind_of_input(self) -> None:
        rng = np.random.default_rng(5)
        mixing = rng.standard_normal((8, 64)).astype(np.float32)
        layer = nn.Sequential(nn.Linear(64, 48))
        x = rng.standard_normal((300, 8)).astype(np.float32) @ mixing
        plain = quant.quantize(layer, "int4", sample=x, measure_speed=False).report
        guided = quant.quantize(layer, "int4", calibrate=x, sample=x, measure_speed=False).report
        assert (
            guided.calibrated and guided.output_error is not None and plain.output_error is not None
        )
        assert guided.output_error < 0.7 * plain.output_error

    def test_attention_and_keyword_inputs_are_seen(self, model: Model, ids: np.ndarray) -> None:
        report = quant.quantize(
            model, "int8", calibrate=[{"ids": ids}, (ids,), ids], measure_speed=False
        ).report
        assert all(layer.output_error is not None for layer in report.quantized)


class TestReport:
    def test_sample_gives_errors_of_layers_and_model(self, model: Model, ids: np.ndarray) -> None:
        report = quant.quantize(model, "int8", sample=ids).report
        assert report.output_error is not None and 0 < report.output_error < 0.03
        assert report.output_cosine is not None and report.output_cosine > 0.999
        for layer in report.quantized:
            assert layer.weight_error is not None and 0 < layer.weight_error < 0.01
            assert layer.output_error is not None and 0 < layer.output_error < 0.03
            assert layer.rows == 48 and layer.speed is not None and layer.speed > 0

    def test_bytes_are_those_in_memory(self, model: Model) -> None:
        result = quant.quantize(model, "int4", measure_speed=False)
        packed = [result.model.hidden[0], result.model.hidden[2], result.model.attention.out_proj]
        by_name = {layer.name: layer for layer in result.report.layers}
        assert by_name["hidden.0"].bytes_after == packed[0].weight.nbytes
        assert by_name["hidden.0"].bytes_before == 4 * 64 * 96
        assert result.report.bytes_after == sum(
            layer.bytes_after for layer in result.report.quantized
        )
        assert result.report.ratio < 0.2

    def test_table_has_a_line_for_every_layer_and_totals(self, model: Model) -> None:
        result = quant.quantize(model, "int8", measure_speed=False)
        lines = str(result).splitlines()
        assert lines[0].split()[:3] == ["layer", "shape", "stored"] and "speed" not in lines[0]
        assert lines[2].startswith("table") and "skipped: an embedding" in lines[2]
        assert lines[-1].startswith(
            "int8, a scale for each output channel: 4 layers quantized, 2 skipped;"
        )

    def test_report_is_plain_data(self, model: Model, ids: np.ndarray) -> None:
        model, report = quant.quantize(model, "int4", sample=ids)
        again = json.loads(json.dumps(report.as_dict()))
        assert again["layers"][1]["shape"] == [192, 64] and again["ratio"] == report.ratio

    def test_slower_layers_are_warned_of(self) -> None:
        def layer(name: str, after: float) -> LayerReport:
            return LayerReport(name, (8, 8), "int8", "", 256, 80, 0.01, None, 1, 1.0, after)

        report = QuantizationReport("int8", [layer("a", 2.0), layer("b", 4.0), layer("c", 0.5)])
        assert report.speed == pytest.approx(3 / 6.5)
        assert report.warnings == [
            "2 of 3 quantized layers are slower than in float, the slowest b (0.25x with 1 rows); they save memory only"
        ]


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Conv1d(2, 4, 3)
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.last = nn.Linear(64, 1)


def test_weights_that_are_no_linear_layers_are_named() -> None:
    report = quant.quantize(Mixed(), "int8", measure_speed=False).report
    (left,) = report.skipped
    assert left.name == "image.weight" and left.shape == (4, 2, 3)
    assert left.reason == "a weight of Conv1d, which is no linear layer"
    assert "image.weight" in str(report)
    report = quant.quantize(Mixed(), "int8", skip="image.*", measure_speed=False).report
    assert report.skipped[0].reason == "matches skip='image.*'" and "matched no" not in str(report)
    with pytest.raises(QuantizationError, match="it holds no linear layer"):
        quant.quantize(nn.Sequential(nn.Conv1d(2, 4, 3)), "int8")


def test_a_shared_weight_is_counted_once() -> None:
    report = quant.quantize(Mixed(), "int8", skip="last", measure_speed=False).report
    assert report.bytes_before == 64 * 64 * 4
    assert [layer.reason for layer in report.quantized] == ["", "the weight of 'first'"]
    assert "int8: the weight of 'first'" in str(report)


def test_layers_that_became_larger_are_told() -> None:
    report = quant.quantize(Mixed(), "int8", measure_speed=False).report
    (told,) = report.warnings
    assert told.startswith("1 of 3 quantized layers are larger than in float, such as last (256 ->")
