"""Quantized models in files: lossless, mapped, atomic, and refused when damaged."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn, quant
from cubepy.errors import FileFormatError, QuantizationError, QuantizationWarning
from cubepy.models.packed.storage import Blocks

KEY = "cubepy.quant"


def build() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 33, bias=False)
    )


@pytest.fixture(params=["int8", "int4", "int4-symmetric"])
def packed(request: pytest.FixtureRequest) -> nn.Module:
    scheme, _, symmetric = request.param.partition("-")
    options = {"group": 16, "symmetric": bool(symmetric)} if scheme == "int4" else {}
    return quant.quantize(build(), scheme, measure_speed=False, **options).model


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)


class TestSaveAndLoad:
    def test_round_trip_is_lossless(self, packed: nn.Module, x: np.ndarray, tmp_path: Path) -> None:
        quant.save(packed, tmp_path / "m.safetensors")
        again = quant.load(build(), tmp_path / "m.safetensors")
        for name, tensor in packed.state_dict().items():
            other = again.state_dict()[name]
            assert other.storage.kind == tensor.storage.kind and other.dtype is tensor.dtype
            for part, array in tensor.storage.arrays().items():
                assert np.array_equal(array, other.storage.arrays()[part]), (name, part)
        assert np.array_equal(again(x).numpy(), packed(x).numpy())

    def test_loaded_weights_are_the_mapped_file(self, packed: nn.Module, tmp_path: Path) -> None:
        quant.save(packed, tmp_path / "m.safetensors")
        weight = quant.load(build(), tmp_path / "m.safetensors")[0].weight.storage.weight
        assert not weight.codes.flags.owndata and not weight.codes.flags.writeable

    def test_saving_again_gives_the_same_bytes(self, packed: nn.Module, tmp_path: Path) -> None:
        quant.save(packed, tmp_path / "a")
        quant.save(quant.load(build(), tmp_path / "a"), tmp_path / "b")
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    def test_float_models_pass_through(self, x: np.ndarray, tmp_path: Path) -> None:
        model = build()
        quant.save(model, tmp_path / "m", metadata={"source": "test"})
        assert nn.safetensors_metadata(tmp_path / "m") == {"source": "test"}
        assert np.array_equal(quant.load(build(), tmp_path / "m")(x).numpy(), model(x).numpy())

    def test_half_precision_is_remembered(self, tmp_path: Path) -> None:
        layer = nn.Linear(32, 8)
        layer.weight = nn.Parameter(layer.weight.astype("f16"))
        quant.save(quant.quantize(layer, "int8", measure_speed=False).model, tmp_path / "m")
        assert quant.read(tmp_path / "m")["weight"].dtype is cb.f16

    def test_plain_saving_points_here(self, packed: nn.Module, tmp_path: Path) -> None:
        with pytest.raises(FileFormatError, match="quantized storage") as caught:
            nn.save_safetensors(packed.state_dict(), tmp_path / "m")
        assert "cb.quant.save" in str(caught.value) and not list(tmp_path.iterdir())


class TestDamage:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        quant.save(
            quant.quantize(build(), "int4", group=16, measure_speed=False).model, tmp_path / "m"
        )
        return tmp_path / "m"

    def rewrite(self, file: Path, drop: str = "", metadata: dict[str, str] | None = None) -> Path:
        tensors = {name: t for name, t in nn.load_safetensors(file).items() if name != drop}
        other = file.with_name("other")
        nn.save_safetensors(
            tensors, other, nn.safetensors_metadata(file) if metadata is None else metadata
        )
        return other

    def test_a_missing_part_is_named(self, file: Path) -> None:
        with pytest.raises(FileFormatError, match="'0.weight' lacks its minimums"):
            quant.load(build(), self.rewrite(file, drop="0.weight.minimums"))

    def test_a_missing_layer_leaves_the_model_unchanged(self, file: Path) -> None:
        model = build()
        with pytest.raises(FileFormatError, match="missing: 0.bias"):
            quant.load(model, self.rewrite(file, drop="0.bias"))
        assert model[0].weight.storage.kind == "dense"
        quant.load(model, self.rewrite(file, drop="0.bias"), strict=False)
        assert model[0].weight.storage.kind == "quantized"

    def test_another_architecture_is_refused(self, file: Path) -> None:
        with pytest.raises(FileFormatError, match="wrong shapes: 0.weight"):
            quant.load(
                nn.Sequential(
                    nn.Linear(32, 48), nn.GELU(), nn.LayerNorm(48), nn.Linear(48, 33, bias=False)
                ),
                file,
            )

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "[]",
            "{}",
            '{"version": 1, "tensors": 3}',
            '{"version": 1, "tensors": {"0.weight": 3}}',
            "[" * 5000,
        ],
    )
    def test_damaged_metadata_is_refused(self, file: Path, text: str) -> None:
        with pytest.raises(FileFormatError, match="cubepy.quant"):
            quant.load(build(), self.rewrite(file, metadata={KEY: text}))

    @pytest.mark.parametrize(
        "change", [{"shape": [64, 48]}, {"scheme": "int9"}, {"gain": None}, {"dtype": "f99"}]
    )
    def test_metadata_that_lies_is_refused(self, file: Path, change: dict[str, object]) -> None:
        described = json.loads(nn.safetensors_metadata(file)[KEY])
        described["tensors"]["0.weight"].update(change)
        with pytest.raises(FileFormatError, match="0.weight"):
            quant.load(build(), self.rewrite(file, metadata={KEY: json.dumps(described)}))

    def test_a_newer_version_is_refused(self, file: Path) -> None:
        described = {**json.loads(nn.safetensors_metadata(file)[KEY]), "version": 2}
        with pytest.raises(FileFormatError, match="has the version 2"):
            quant.load(build(), self.rewrite(file, metadata={KEY: json.dumps(described)}))


class TestQuantizeFile:
    @pytest.fixture
    def source(self, tmp_path: Path) -> Path:
        rng = np.random.default_rng(1)
        tensors = {
            "token_embedding.weight": rng.standard_normal((10, 64)),
            "wte.weight": rng.standard_normal((10, 64)),
            "a.weight": rng.standard_normal((48, 64)),
            "odd.weight": rng.standard_normal((8, 30)),
            "norm.weight": rng.standard_normal(64),
            "a.bias": rng.standard_normal(48),
        }
        arrays = {name: array.astype(np.float32) for name, array in tensors.items()}
        arrays["ids.weight"] = np.arange(8).reshape(2, 4)
        nn.save_safetensors(arrays, tmp_path / "float", {"format": "pt"})
        return tmp_path / "float"

    def test_linear_weights_are_packed_and_the_rest_is_kept(self, source: Path) -> None:
        target = source.with_name("int4")
        report = quant.quantize_file(source, target, "int4")
        assert [layer.name for layer in report.quantized] == ["a.weight"]
        assert {layer.name: layer.reason for layer in report.skipped} == {
            "token_embedding.weight": "an embedding is looked up, not multiplied",
            "wte.weight": "an embedding is looked up, not multiplied",
            "odd.weight": "its 30 inputs are not a multiple of group=32",
        }
        before, after = nn.load_safetensors(source), quant.read(target)
        assert set(before) == set(after) and after["a.weight"].storage.kind == "quantized"
        for name in set(before) - {"a.weight"}:
            assert np.array_equal(before[name].numpy(), after[name].numpy())
        assert nn.safetensors_metadata(target)["format"] == "pt"
        assert "a.weight" in str(report)

    def test_a_matrix_that_the_group_does_not_fit_is_warned_of(self, source: Path) -> None:
        with pytest.warns(
            QuantizationWarning, match=r"1 layer stays in float: 'odd.weight': its 30 inputs"
        ) as told:
            report = quant.quantize_file(source, source.with_name("int4"), "int4")
        assert report.warnings == [str(told[0].message)]

    def file(self, folder: Path, **shapes: tuple[int, ...]) -> Path:
        rng = np.random.default_rng(2)
        tensors = {
            name.replace("__", "."): rng.standard_normal(shape) for name, shape in shapes.items()
        }
        nn.save_safetensors(
            {name: a.astype(np.float16) for name, a in tensors.items()}, folder / "float"
        )
        return folder / "float"

    def test_matrices_that_lie_the_other_way_round_stay_in_float(self, tmp_path: Path) -> None:
        gpt2 = self.file(
            tmp_path, h__c_attn__weight=(64, 192), h__c_attn__bias=(192,), h__c_proj__weight=(64, 64),
            h__c_proj__bias=(64,), lm_head__weight=(320, 64), straight__weight=(96, 64), straight__bias=(96,),
            other__weight=(96, 64), other__bias=(7,),
        )  # fmt: skip
        with pytest.warns(QuantizationWarning, match="4 layers stay in float"):
            report = quant.quantize_file(gpt2, tmp_path / "packed", "int8")
        assert [layer.name for layer in report.quantized] == ["straight.weight"]
        assert {layer.name: layer.reason for layer in report.skipped} == {
            "h.c_attn.weight": "its bias of 192 says that it is (inputs, outputs), as in Conv1D",
            "h.c_proj.weight": "it may be (inputs, outputs), as other matrices of this file are",
            "lm_head.weight": "it may be (inputs, outputs), as other matrices of this file are",
            "other.weight": "its bias of 7 goes with neither of its axes",
        }

    def test_names_of_gpt2_speak_where_nothing_else_does(self, tmp_path: Path) -> None:
        alone = self.file(tmp_path, c_proj__weight=(64, 64), c_proj__bias=(64,), q__weight=(64, 64))
        with pytest.warns(QuantizationWarning, match="'c_proj.weight': it may be"):
            report = quant.quantize_file(alone, tmp_path / "packed", "int8")
        assert [layer.name for layer in report.quantized] == ["q.weight"]
        linear = self.file(
            tmp_path, c_attn__weight=(192, 64), c_attn__bias=(192,), c_proj__weight=(64, 64)
        )
        report = quant.quantize_file(
            linear, tmp_path / "packed", "int8"
        )  # of a linear layer, as its bias says
        assert [layer.name for layer in report.quantized] == ["c_attn.weight", "c_proj.weight"]

    def test_a_file_of_conv1d_alone_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(
            QuantizationError, match=r"nothing to quantize: 'c_fc.weight' \(its bias of 256 says"
        ):
            quant.quantize_file(
                self.file(tmp_path, c_fc__weight=(64, 256), c_fc__bias=(256,)), tmp_path / "o"
            )

    def test_the_file_is_what_quantizing_the_model_gives(self, tmp_path: Path) -> None:
        model = build()
        nn.save_safetensors(model.state_dict(), tmp_path / "float")
        quant.quantize_file(tmp_path / "float", tmp_path / "file", "int4", group=16)
        quant.save(
            quant.quantize(model, "int4", group=16, measure_speed=False).model, tmp_path / "model"
        )
        assert (tmp_path / "file").read_bytes() == (tmp_path / "model").read_bytes()

    def test_patterns_skip(self, source: Path) -> None:
        report = quant.quantize_file(
            source, source.with_name("o"), "int8", skip=["odd*", "nothing"]
        )
        assert [layer.name for layer in report.quantized] == ["a.weight"]
        assert report.warnings == ["skip='nothing' matched no layer"]

    def test_nothing_to_quantize_writes_nothing(self, source: Path) -> None:
        with pytest.raises(
            QuantizationError, match="has nothing to quantize: 'token_embedding.weight'"
        ):
            quant.quantize_file(source, source.with_name("o"), "int8", skip="*")
        assert not source.with_name("o").exists()

    def test_a_quantized_source_is_refused(self, source: Path) -> None:
        quant.quantize_file(source, source.with_name("o"), "int8")
        with pytest.raises(QuantizationError, match="is quantized already"):
            quant.quantize_file(source.with_name("o"), source.with_name("p"), "int4")

    def test_source_and_target_may_be_the_same(self, source: Path) -> None:
        quant.quantize_file(source, source, "int8")
        assert quant.read(source)["a.weight"].storage.kind == "quantized"

    def test_a_truncated_source_is_refused(self, source: Path) -> None:
        source.write_bytes(source.read_bytes()[:-5])
        with pytest.raises(FileFormatError):
            quant.quantize_file(source, source.with_name("o"), "int8")

    def test_a_folder_is_refused_with_the_files_in_it(self, source: Path) -> None:
        source = source.rename(source.with_suffix(".safetensors"))
        with pytest.raises(QuantizationError, match=r"is a folder(.|\n)*files: float\.safetensors"):
            quant.quantize_file(source.parent, source.parent / "small.safetensors")
        assert not (source.parent / "small.safetensors").exists()

    def test_blocks_of_a_gguf_file_are_not_written(self, tmp_path: Path) -> None:
        layer = nn.Linear(32, 2, bias=False)
        layer.weight.take_over_(cb.Tensor(Blocks("Q8_0", np.zeros((2, 34), np.uint8))))
        with pytest.raises(QuantizationError, match="lies in blocks(.|\n)*keep the file"):
            quant.save(layer, tmp_path / "x.safetensors")
        assert not (tmp_path / "x.safetensors").exists()
