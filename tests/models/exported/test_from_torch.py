"""`cb.from_torch` and exported programs, where torch is installed."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, FileFormatError, ModelError
from cubepy.models.exported.archive import harmless

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


def error(found: Any, right: Any) -> float:
    right = right.detach().numpy()
    return float(np.abs(found.numpy() - right).max() / np.abs(right).max())


def network() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(2)
    ).eval()


@needs_torch
def test_modules_with_open_lengths() -> None:
    module = network()
    model = cb.from_torch(module, (torch.randn(2, 3, 8, 8),), dynamic=True)
    for shape in ((2, 3, 8, 8), (5, 3, 6, 9)):
        x = torch.randn(shape)
        assert error(model(x), module(x)) < 1e-5  # a tensor of torch
        assert error(model(x.numpy()), module(x)) < 1e-5


@needs_torch
def test_one_tensor_is_the_only_argument() -> None:
    module, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    assert error(cb.from_torch(module, x)(x), module(x)) < 1e-5


@needs_torch
def test_weights_are_copied_unless_they_are_shared() -> None:
    module, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    copied = cb.from_torch(module, (x,))
    shared = cb.from_torch(module, (x,), share=True)
    before = copied(x).numpy().copy()
    assert shared.weight.numpy().ctypes.data == module.weight.data_ptr()
    with torch.no_grad():
        module.weight.mul_(2)
    np.testing.assert_array_equal(copied(x).numpy(), before)


@needs_torch
def test_halves_keep_their_dtype() -> None:
    module, x = torch.nn.Linear(8, 4).bfloat16(), torch.randn(3, 8).bfloat16()
    model = cb.from_torch(module, (x,))
    assert model.weight.dtype is cb.bf16
    assert (
        np.abs(model(x).numpy().astype(np.float32) - module(x).detach().float().numpy()).max()
        < 0.02
    )


@needs_torch
def test_exported_files(tmp_path: Path) -> None:
    module, x = network(), torch.randn(2, 3, 8, 8)
    path = tmp_path / "network.pt2"
    batch = torch.export.Dim("batch")
    torch.export.save(torch.export.export(module, (x,), dynamic_shapes=({0: batch},)), path)
    found = cb.look(path)
    assert found.format == "PyTorch exported program"
    assert found.operators["aten.conv2d.default"] == 1 and not found.unsupported
    model = cb.load(path)
    y = torch.randn(5, 3, 8, 8)
    assert error(model(y), module(y)) < 1e-5


@needs_torch
def test_what_a_module_writes_in_place() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            y[:, 0] = 0
            y += 1
            return y

    class Counts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    x = torch.randn(3, 4)
    assert error(cb.from_torch(Writes(), (x,))(x), Writes()(x)) == 0
    with pytest.raises(ModelError, match="changes 'calls' when it runs"):
        cb.from_torch(Counts(), (x,))


@needs_torch
def test_missing_operators_with_their_lines() -> None:
    class Rare(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.i1(x) + torch.special.i0(x)

    with pytest.raises(ModelError, match="operators that are missing") as caught:
        cb.from_torch(Rare(), (torch.randn(3, 3),))
    said = str(caught.value)
    assert "aten.special_i1.default" in said and "aten.special_i0.default" in said
    assert "test_from_torch.py" in said and "torch.special.i1(x)" in said


@needs_torch
def test_complex_buffers_and_fourier_transforms(tmp_path: Path) -> None:
    """Of a module and of its file, with a length that calls decide."""

    class Rotated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            angle = torch.outer(torch.arange(16.0), 0.1 ** torch.arange(4))
            self.register_buffer("turns", torch.polar(torch.ones_like(angle), angle))

        def forward(self, x: Any) -> Any:
            z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * self.turns[: x.shape[1]]
            spectrum = torch.fft.rfft(torch.view_as_real(z).flatten(2), norm="ortho")
            return z.abs(), torch.fft.irfft(spectrum * (2 - 1j)), spectrum.imag

    module, path = Rotated(), tmp_path / "a.pt2"
    length = ({1: torch.export.Dim("length", max=16)},)
    example = (torch.randn(2, 5, 8),)
    torch.export.save(torch.export.export(module, example, dynamic_shapes=length), path)
    for model in (cb.from_torch(module, example, dynamic=length), cb.load(path)):
        assert model.state_dict()["turns"].shape == (16, 4, 2)
        for n in (5, 16):
            x = torch.randn(2, n, 8)
            for found, right in zip(model(x), module(x), strict=True):
                assert error(found, right) < 1e-5


@needs_torch
def test_modules_that_torch_cannot_export() -> None:
    class Decides(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x if x.sum() > 0 else -x

    with pytest.raises(ModelError, match="torch cannot export the Decides"):
        cb.from_torch(Decides(), (torch.randn(3),))


@needs_torch
@pytest.mark.parametrize("what", ["pickle", "length", "cut"])
def test_files_that_would_run_something(what: str, tmp_path: Path) -> None:
    path, wrong = tmp_path / "a.pt2", tmp_path / "b.pt2"
    module = torch.nn.Linear(3, 2)
    batch = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(module, (torch.randn(2, 3),), dynamic_shapes=batch), path)
    texts = {"pickle": "names pickles", "length": "more than arithmetic", "cut": "damaged|no zip"}
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(wrong, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if what == "pickle" and name.endswith("weights_config.json"):
                data = data.replace(b'"use_pickle": false', b'"use_pickle": true')
            if what == "length" and name.endswith("model.json"):
                said = json.loads(data)
                inputs = said["graph_module"]["graph"]["tensor_values"]["input"]["sizes"]
                inputs[0]["as_expr"]["expr_str"] = "exit(3)"
                data = json.dumps(said).encode()
            if what == "cut" and name.endswith("model.json"):
                data = data[:-20]
            new.writestr(name, data)
    with pytest.raises(FileFormatError, match=texts[what]):
        cb.load(wrong)


def test_damaged_archives(tmp_path: Path) -> None:
    """Whatever bytes are changed: an error of a damaged file, or a look at what is left."""
    path = tmp_path / "a.pt2"
    graph = {"graph_module": {"graph": {"nodes": [{"target": "torch.ops.aten.add.Tensor"}]}}}
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/models/model.json", json.dumps(graph))
        file.writestr("a/data/weights/weight_0", bytes(24))
    raw, draw = path.read_bytes(), np.random.default_rng(3)
    assert cb.look(path).operators == {"aten.add.Tensor": 1}
    refused = 0
    for _ in range(300):
        data = bytearray(raw)
        for at in draw.integers(0, len(data), int(draw.choice([1, 3, 20]))):
            data[at] = int(draw.integers(256))
        path.write_bytes(bytes(data[: int(draw.integers(len(data) // 2, len(data) + 1))]))
        for read in (cb.look, harmless):
            try:
                read(path)
            except FileFormatError:
                refused += 1
    assert refused > 100


def test_without_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    path = tmp_path / "network.pt2"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("network/models/model.json", "{}")
    with pytest.raises(ArgumentError, match="need the package torch"):
        cb.load(path)
    with pytest.raises(ArgumentError, match="from_torch takes a torch.nn.Module, not Linear"):
        cb.from_torch(cb.nn.Linear(2, 2))
