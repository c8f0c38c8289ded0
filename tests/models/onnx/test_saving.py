"""Modules and functions written as ONNX files, and read again; by onnxruntime too, where it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn, quant
from cubepy.errors import ArgumentError, ModelError
from cubepy.models.architectures.decoder import Decoder, DecoderConfig
from cubepy.models.architectures.rotary import rotary
from cubepy.models.exported.model import TorchModel
from cubepy.models.formats.onnx import read
from cubepy.nn import functional as F
from cubepy.tensor import apply, arange, cumulative_prod, cumulative_sum, full, meshgrid, where
from tests.models.exported.recorded import cases, decoded

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

GRAPHS, ARRAYS = cases()
REFUSED = {
    "erfc": "erfc",
    "lgamma": "lgamma",
    "digamma": "digamma",
    "shifts": "ONNX shifts unsigned integers only",
    "pools": "a pool that gives positions",
    "pools of signals": "windows of several lengths",
    "max_unpool": "a pool that gives positions",
    "erfinv": "erfinv",
    "ndtr": "erfc",
    "log_ndtr": "erfc",
    "log_ndtr away": "erfc",
    "gamma functions": "lgamma, trigamma",
    "decompositions": "det, slogdet, inv, solve, cholesky, svd, eigh",
    "norms of matrices": "svd",
    "the larger one": "nextafter",
}
rng = np.random.default_rng(5)


def draw(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def agree(found: np.ndarray, right: np.ndarray, limit: float = 1e-5) -> None:
    assert found.shape == right.shape and found.dtype == right.dtype
    if right.dtype.kind not in "fV":
        np.testing.assert_array_equal(found, right)
        return
    limit = 1e-2 if right.dtype.itemsize == 2 else limit
    scale = max(np.abs(right[np.isfinite(right)]).max(initial=0), 1)
    wide, theirs = found.astype(np.float64), right.astype(np.float64)
    np.testing.assert_allclose(wide, theirs, rtol=0, atol=limit * float(scale))


def round_trip(model: Callable[..., Any], path: Path, *args: Any) -> Any:
    """Save, load, and compare; gives the loaded model."""
    with cb.no_grad():
        given = model(*[cb.tensor(a) if isinstance(a, np.ndarray) else a for a in args])
    parts = given if isinstance(given, (list, tuple)) else [given]
    right = [part.numpy() for part in parts]
    cb.save(model, path, args)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    loaded = cb.load(path)
    found = loaded(*arrays)
    assert len(found) == len(right)
    for mine, one in zip(found.values(), right, strict=True):
        agree(mine.numpy(), one)
    if onnxruntime is not None and all(a.dtype.kind != "V" for a in arrays + right):
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        for theirs, one in zip(
            session.run(None, dict(zip(names, arrays, strict=True))), right, strict=True
        ):
            agree(theirs, one)
    return loaded


@pytest.mark.turns(6, "graphs of torch")
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_of_torch(name: str, tmp_path: Path) -> None:
    model = TorchModel(decoded(GRAPHS[name], ARRAYS))
    count = len(model.taken)
    fixed = GRAPHS[name]["fixed"]
    leaves = [ARRAYS.get(f"{name}/0/in/{n}", fixed.get(str(n))) for n in range(count)]

    def run(*arrays: Any) -> list[Any]:
        given = iter(arrays)
        filled = [next(given) if isinstance(x, np.ndarray) else x for x in leaves]
        args, kwargs = model.exported.takes.build(iter(filled))
        found = model.exported.gives.flatten(model(*args, **kwargs))
        return [v for v in found if isinstance(v, cb.Tensor)]

    arrays = [x for x in leaves if isinstance(x, np.ndarray)]
    if name in REFUSED:
        with pytest.raises(ModelError, match=REFUSED[name]):
            cb.save(run, tmp_path / "m.onnx", arrays)
        assert not list(tmp_path.iterdir())
        return
    round_trip(run, tmp_path / "m.onnx", *arrays)


SIGNED = np.array([-2.5, -1.0, -0.0, 0.0, 1.0, 2.5], np.float32)
WINDOWS = (2, 3), (1, 2), (1, 0), (2, 2)
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "cuts": (lambda x: (x[::-2, 1:], x[1, None, -1:], x[..., None, 0]), (draw(5, 4),)),
    "takes": (lambda x, i: (x[i], x[:, i], x[i, i]), (draw(4, 4), np.array([3, -1, 0]))),
    "puts": (lambda x, y: x.index_copy(1, [2, 0], y), (draw(3, 4), draw(3, 2))),
    "adds": (lambda x, y: x.index_add(0, [2, 2], y), (draw(3, 4), draw(2, 4))),
    "assigned": (lambda x: assigned(x), (draw(3, 4),)),
    "whole": (lambda a, b: (a // b, a % b), (np.array([-7, 7, 5]), np.array([2, -2, -3]))),
    "floats": (lambda a, b: (a // b, a % b, a.fmod(b)), (draw(9) * 5, draw(9))),
    "zeros with signs": (
        lambda a, b: (a.signbit(), a.copysign(b), a.atan2(b)),
        tuple(np.meshgrid(SIGNED, SIGNED[::-1])),
    ),
    "whole ones cut off": (lambda a: a.trunc(), (np.arange(-2, 3, dtype=np.int32),)),
    "resized to one": (
        lambda x: [
            F.interpolate(x, size=size, mode=mode, align_corners=False)
            for mode in ("bilinear", "bicubic")
            for size in ((1, 3), (4, 1), (1, 1))
        ],
        (draw(1, 2, 5, 6),),
    ),
    "corners by factors": (
        lambda x: [
            F.interpolate(x, scale_factor=factor, mode="bilinear", align_corners=True)
            for factor in (0.5, 1.5, 2.3)
        ],
        (draw(1, 2, 5, 7),),
    ),
    "read at a grid": (
        lambda x, g: [
            F.grid_sample(x, g, mode, padding, align)
            for mode in ("bilinear", "nearest")
            for padding, align in (("zeros", False), ("border", True), ("reflection", False))
        ],
        (draw(1, 2, 5, 7), draw(1, 3, 4, 2)),
    ),
    "windows": (
        lambda x: [
            columns := apply("unfold", x, how=WINDOWS, counts=(4, 2)),
            apply("fold", columns, size=(6, 7), how=WINDOWS, counts=(4, 2)),
        ],
        (draw(2, 3, 6, 7),),
    ),
    "mixed": (lambda a, b: (a + b, a < b, a * 2.5), (np.arange(3), draw(3))),
    "truth": (lambda a: ((a > 0) & ~(a > 1), (a > 0).any(0), (a > -9).all()), (draw(3, 4),)),
    "made": (lambda x: (arange(4) + x, full((2,), 3), where(x > 0, x, 0)), (draw(4),)),
    "sums": (
        lambda x: (x.sum(()), x.std(), x.norm(1, 0), cumulative_sum(x, axis=1)),
        (draw(3, 4),),
    ),
    "orders": (lambda x: (*x.sort(0, descending=True), *x.topk(2), x.argmax()), (draw(5, 3),)),
    "so far": (lambda x: (*x.cummax(0), *x.cummin(1)), (draw(5, 3),)),
    "grid": (lambda x, y: meshgrid(x, y), (draw(3), draw(2))),
    "small": (lambda x: (x.log1p(), x.expm1(), x.trunc()), (draw(50) * 1e-4,)),
    "limits": (lambda x: (x.log1p(), x.expm1(), x.isfinite()), (np.float32([-1, 0, 9, np.inf]),)),
    "empty": (lambda x: (x[:0].sum(1), x[:, :0]), (draw(3, 4),)),
    "a number": (lambda x: x.sum() * 2, (draw(3),)),
    "given back": (lambda x: (x, x + 1, x), (draw(3),)),
    "programs": (cb.jit(lambda x: F.gelu(x, "tanh").softmax(-1)), (draw(3, 4),)),
}


FUNCTIONS |= {
    "loops": (
        lambda x, w: cb.scan(lambda h, p: ((h @ w).tanh() + p, h.sum()), x[0], x),
        (draw(9, 2, 4), draw(4, 4)),
    ),
    "loops from the end": (
        lambda x: cb.scan(lambda h, p: (h * 0.5 + p, (h, p * 2)), x[0], x, reverse=True)[1],
        (draw(7, 3),),
    ),
    "loops without slices": (
        lambda x: cb.scan(lambda h, p: (h * x + 1, h), x, None, length=5),
        (draw(3),),
    ),
    "branches": (
        lambda x, w: cb.cond(x.sum() > 0, lambda a: a @ w, lambda a: a @ w - a, x),
        (draw(3, 3), draw(3, 3)),
    ),
}


def assigned(x: Any) -> Any:
    y = x.clone()
    y[1:, ::2] = 7.0
    y[0] += y[1]
    return y


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, tmp_path: Path) -> None:
    function, args = FUNCTIONS[name]
    round_trip(function, tmp_path / "f.onnx", *args)


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "rows": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)), (3, 8)),
    "axes": (lambda: nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.RMSNorm(16)), (2, 3, 8)),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        (2, 3, 12, 12),
    ),
    "heads": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "upwards": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), nn.Upsample(scale_factor=2)),
        (1, 2, 4, 4),
    ),
    "signals": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Mish()),
        (2, 2, 9),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, tmp_path: Path) -> None:
    make, shape = MODULES[name]
    model = make().eval()
    loaded = round_trip(model, tmp_path / "m.onnx", draw(*shape))
    mine, theirs = ({p.shape for p in m.parameters()} for m in (model, loaded))
    assert {s for s in mine if len(s) == 2} <= theirs


def test_decoders_and_what_is_tied(tmp_path: Path) -> None:
    config = DecoderConfig(
        vocabulary=50,
        width=16,
        layers=2,
        heads=4,
        groups=2,
        depth=4,
        inner=32,
        context=128,
        rotary=rotary(4, 10000.0),
    )
    model = Decoder(config).eval()
    path = tmp_path / "decoder.onnx"
    round_trip(model, path, rng.integers(0, 50, (2, 7)))
    weights = read(path).graph.weights
    assert weights["words.weight"].shape == (50, 16)
    assert sum(w.shape in ((50, 16), (16, 50)) for w in weights.values()) == 1  # the head is tied
    small = quant.quantize(cb.load(path), "int8", measure_speed=False)
    assert len(small.report.layers) > 4


def test_names_and_weights(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 3)

        def forward(self, image: Any, scale: float = 2.0, *, shift: Any = None) -> Any:
            y = self.first(image) * scale + shift
            return {"scores": y, "more": [y.sum(), y.max(1)]}

    model, path = Net(), tmp_path / "net.onnx"
    cb.save(model, path, [draw(2, 4)], {"shift": draw(3)})
    found = cb.look(path)
    assert [t.describe() for t in found.inputs] == ["image: f32 (2, 4)", "shift: f32 (3)"]
    assert [t.name for t in found.outputs] == ["scores", "more_0", "more_1"]
    loaded = cb.load(path)
    np.testing.assert_array_equal(
        loaded.state_dict()["first.weight"].numpy(), model.first.weight.numpy()
    )
    assert read(path).opsets[""] == 21


class Foreign:
    """A tensor of another library."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Pair(NamedTuple):
    a: Any
    b: Any


def test_arrays_of_every_kind_are_inputs(tmp_path: Path) -> None:
    net, path, x = nn.Linear(3, 4), tmp_path / "net.onnx", draw(1, 3)
    right = net(cb.tensor(x)).numpy()
    for given in ([Foreign(x)], x, cb.tensor(x), Foreign(x)):
        cb.save(net, path, given)
        assert [i.name for i in read(path).graph.inputs] == ["input"]
        agree(cb.load(path)(x)["output"].numpy(), right)
    cb.save(lambda pair: pair.a - pair.b, path, [Pair(x, Foreign(x + 1))])
    agree(cb.load(path)(x, x + 1)["output"].numpy(), x - (x + 1))


def test_ops_without_a_form_are_named_with_the_line(tmp_path: Path) -> None:
    def wrong(x: Any) -> Any:
        y = x.lgamma()  # this line
        return y + x.digamma()

    ends = lambda x: cb.scan(lambda c, s: (c + s, c), x[0], x, until=lambda c: c.sum() > 1)[1]
    with cb.no_grad(), pytest.raises(ModelError, match="scan that ends where data say so"):
        cb.save(ends, tmp_path / "x.onnx", [draw(3, 2)])
    with pytest.raises(ModelError, match="no form for: lgamma, digamma") as caught:
        cb.save(wrong, tmp_path / "x.onnx", [draw(3)])
    assert "this line" in str(caught.value) and "test_saving.py" in str(caught.value)


def test_a_spec_is_an_input_of_its_shape(tmp_path: Path) -> None:
    net, path = nn.Linear(3, 2), tmp_path / "net.onnx"
    cb.save(net, path, (cb.TensorSpec((5, 3)),))
    x = draw(5, 3)
    agree(cb.load(path)(x)["output"].numpy(), net(cb.tensor(x)).numpy())
    cb.save(lambda pair: pair[0] * pair[1], path, ([cb.TensorSpec((2,), "i64"), draw(2)],))
    assert cb.load(path)(pair_0=[2, 3], pair_1=draw(2))["output"].shape == (2,)


def test_what_is_refused(tmp_path: Path) -> None:
    linear = nn.Linear(32, 8)
    with pytest.raises(ArgumentError, match=r"must end with .onnx, not 'x.safetensors'"):
        cb.save(linear, tmp_path / "x.safetensors", [draw(2, 32)])
    with pytest.raises(ArgumentError, match="missing a required argument: 'input'"):
        cb.save(linear, tmp_path / "x.onnx")
    with pytest.raises(ArgumentError, match="args of cb.save is a tuple of inputs, not 3"):
        cb.save(linear, tmp_path / "x.onnx", 3)
    with pytest.raises(ArgumentError, match="kwargs of cb.save is a dict of inputs, not an array"):
        cb.save(linear, tmp_path / "x.onnx", draw(2, 32), draw(2, 32))
    with pytest.raises(ArgumentError, match="gives a float, which is no tensor"):
        cb.save(lambda x: 3.0, tmp_path / "x.onnx", [draw(2)])
    small = quant.quantize(linear, "int8", measure_speed=False).model
    with pytest.raises(ModelError, match="'weight' is quantized, which is not written"):
        cb.save(small, tmp_path / "x.onnx", [draw(2, 32)])
    with pytest.raises(FileNotFoundError, match="no folder"):
        cb.save(linear, tmp_path / "none" / "x.onnx", [draw(2, 32)])
    assert not list(tmp_path.iterdir())


def test_a_file_is_complete_or_the_old_one(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "x.onnx"
    cb.save(nn.Linear(3, 2), path, [draw(1, 3)])
    before = path.read_bytes()

    def full_disk(*args: Any) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space left"):
        cb.save(nn.Linear(3, 4), path, [draw(1, 3)])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN, "projected"])
def test_recurrent_layers_without_gradients_are_written_as_scans(kind: Any, tmp_path: Path) -> None:
    kind = partial(nn.LSTM, proj_size=2) if kind == "projected" else kind
    net = kind(3, 5, bidirectional=True).eval()
    for p in net.parameters():
        p.requires_grad_(False)
    x = np.random.default_rng(3).standard_normal((6, 2, 3)).astype(np.float32)
    cb.save(lambda x: net(x)[0], tmp_path / "net.onnx", [x])
    assert cb.look(tmp_path / "net.onnx").operators["Scan"] == 2
    found = cb.load(tmp_path / "net.onnx")(x)["output"].numpy()
    np.testing.assert_allclose(found, net(x)[0].numpy(), atol=1e-6)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_running_products(dtype: str, exclusive: bool, tmp_path: Path) -> None:
    for _ in range(6):
        shape = tuple(rng.integers(1, 9, rng.integers(1, 4)).tolist())
        axis, x = int(rng.integers(len(shape))), rng.integers(-3, 4, shape).astype(dtype)

        def products(t: Any, axis: int = axis) -> Any:
            return cumulative_prod(t, axis=axis, include_initial=exclusive)

        cb.save(products, tmp_path / "p.onnx", [x])
        right = products(cb.tensor(x)).numpy()
        agree(cb.load(tmp_path / "p.onnx")(x)["output"].numpy(), right)
        if onnxruntime is not None:
            session = onnxruntime.InferenceSession(str(tmp_path / "p.onnx"))
            agree(session.run(None, {session.get_inputs()[0].name: x})[0], right)
