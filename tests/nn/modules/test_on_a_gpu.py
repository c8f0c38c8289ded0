"""Modules and functions whose tensors were moved to a GPU, while the host is the default device:
results and gradients, op by op and as programs, are those of the host. The GPU is emulated where
there is none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F
from cubepy.tensor import Tensor
from tests.backends.hip.emulator.device import emulated

GPU = "cuda" if any(d.backend == "cuda" for d in cb.devices()) else "gfx1100"


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with contextlib.nullcontext() if GPU == "cuda" else emulated(GPU), cb.use("cpu"):
        yield


def some(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def whole(*shape: int, below: int = 4) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, below, shape)


def between(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).random(shape).astype(np.float32) * 0.9 + 0.05


ROW, ROWS, LINE, IMAGE, BLOCK = (5, 8), (2, 3, 8), (2, 4, 9), (2, 4, 7, 6), (1, 2, 4, 5, 4)
SIGNS = np.where(some(5) > 0, 1, -1).astype(np.float32)
Made = Callable[[], Callable[..., Any]]
MODULES: dict[str, tuple[Made, tuple[np.ndarray, ...]]] = {
    **{name: (lambda name=name: getattr(nn, name)(), (some(*ROW),)) for name in (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
        "LogSigmoid", "Mish", "PReLU", "ReLU6", "SELU", "SiLU", "Softplus", "Softshrink", "Softsign", "Tanhshrink",
    )},
    **{name: (lambda name=name: getattr(nn, name)(-1), (some(*ROW),)) for name in ("Softmax", "Softmin", "LogSoftmax")},
    "Threshold": (lambda: nn.Threshold(0.1, 2.0), (some(*ROW),)),
    "Bilinear": (lambda: nn.Bilinear(8, 3, 4), (some(5, 8), some(5, 3))),
    "Embedding": (lambda: nn.Embedding(9, 4, padding_idx=2), (whole(3, 5, below=9),)),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(9, 4, mode="mean"), (whole(3, 5, below=9),)),
    "BatchNorm1d": (lambda: nn.BatchNorm1d(8), (some(*ROW),)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(4), (some(*IMAGE),)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), (some(*IMAGE),)),
    "InstanceNorm2d": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), (some(*IMAGE),)),
    "LayerNorm": (lambda: nn.LayerNorm(8), (some(*ROW),)),
    "RMSNorm": (lambda: nn.RMSNorm(8), (some(*ROW),)),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(3), (some(*IMAGE),)),
    "Conv1d": (lambda: nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular"), (some(*LINE),)),
    "Conv2d": (lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2), (some(*IMAGE),)),
    "Conv3d": (lambda: nn.Conv3d(2, 3, 2), (some(*BLOCK),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(4, 3, 3, 2, 1, 1), (some(*IMAGE),)),
    "MaxPool2d": (lambda: nn.MaxPool2d(3, 2, 1), (some(*IMAGE),)),
    "AvgPool2d": (lambda: nn.AvgPool2d(3, 2, 1), (some(*IMAGE),)),
    "LPPool2d": (lambda: nn.LPPool2d(2, 2), (some(*IMAGE),)),
    "AdaptiveAvgPool2d": (lambda: nn.AdaptiveAvgPool2d((3, 2)), (some(*IMAGE),)),
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(4), (some(*LINE),)),
    "FractionalMaxPool2d": (
        lambda: lambda x: F.fractional_max_pool2d(x, 2, (3, 3), _random_samples=0.4 * np.ones((2, 4, 2), np.float32)),
        (some(*IMAGE),),
    ),
    "ReflectionPad2d": (lambda: nn.ReflectionPad2d(2), (some(*IMAGE),)),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d((1, 3)), (some(*LINE),)),
    "CircularPad2d": (lambda: nn.CircularPad2d(1), (some(*IMAGE),)),
    "ConstantPad1d": (lambda: nn.ConstantPad1d((2, 0), 1.5), (some(*LINE),)),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), (some(*IMAGE),)),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), (some(*IMAGE),)),
    "Unfold": (lambda: nn.Unfold(3, padding=1), (some(*IMAGE),)),
    "Fold": (lambda: nn.Fold((7, 6), 3, padding=1), (some(2, 18, 42),)),
    "Upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (some(*IMAGE),)),
    "grid_sample": (lambda: lambda x, g: F.grid_sample(x, g, align_corners=False), (some(*IMAGE), some(2, 3, 5, 2) / 2)),
    "affine_grid": (lambda: lambda t: F.affine_grid(t, (2, 1, 4, 5), align_corners=False), (some(2, 2, 3),)),
    "LSTM": (lambda: nn.LSTM(8, 4, bidirectional=True), (some(*ROWS),)),
    "GRU": (lambda: nn.GRU(8, 4, 2, batch_first=True), (some(*ROWS),)),
    "LSTMCell": (lambda: nn.LSTMCell(8, 4), (some(*ROW),)),
    "RNNCell": (lambda: nn.RNNCell(8, 4, nonlinearity="relu"), (some(*ROW),)),
    "MultiheadAttention": (lambda: _attending(nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True)), (some(*ROWS),)),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), (some(*ROWS),)),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0, norm_first=True), (some(*ROWS), some(4, 3, 8))),
    "CosineSimilarity": (lambda: nn.CosineSimilarity(), (some(*ROW), some(*ROW, seed=1))),
    "PairwiseDistance": (lambda: nn.PairwiseDistance(), (some(*ROW), some(*ROW, seed=1))),
    "pdist": (lambda: F.pdist, (some(*ROW),)),
    "normalize": (lambda: F.normalize, (some(*ROW),)),
    "CrossEntropyLoss": (
        lambda: nn.CrossEntropyLoss(weight=np.arange(1, 9, dtype=np.float32), label_smoothing=0.1, ignore_index=3),
        (some(*ROW), whole(5, below=8)),
    ),
    "NLLLoss": (lambda: nn.NLLLoss(weight=np.arange(1, 9, dtype=np.float32)), (some(*ROW), whole(5, below=8))),
    "BCELoss": (lambda: nn.BCELoss(), (between(*ROW), between(*ROW))),
    "BCEWithLogitsLoss": (
        lambda: nn.BCEWithLogitsLoss(pos_weight=np.arange(1, 9, dtype=np.float32)), (some(*ROW), between(*ROW)),
    ),
    "KLDivLoss": (lambda: nn.KLDivLoss("batchmean"), (some(*ROW), between(*ROW))),
    "HuberLoss": (lambda: nn.HuberLoss(delta=0.5), (some(*ROW), some(*ROW, seed=1))),
    "SmoothL1Loss": (lambda: nn.SmoothL1Loss(), (some(*ROW), some(*ROW, seed=1))),
    "L1Loss": (lambda: nn.L1Loss(), (some(*ROW), some(*ROW, seed=1))),
    "PoissonNLLLoss": (lambda: nn.PoissonNLLLoss(full=True), (some(*ROW), whole(*ROW).astype(np.float32))),
    "GaussianNLLLoss": (lambda: nn.GaussianNLLLoss(), (some(*ROW), some(*ROW, seed=1), between(*ROW))),
    "MarginRankingLoss": (lambda: nn.MarginRankingLoss(0.1), (some(5), some(5, seed=1), SIGNS)),
    "HingeEmbeddingLoss": (lambda: nn.HingeEmbeddingLoss(), (some(5), SIGNS)),
    "CosineEmbeddingLoss": (lambda: nn.CosineEmbeddingLoss(0.2), (some(*ROW), some(*ROW, seed=1), SIGNS)),
    "TripletMarginLoss": (lambda: nn.TripletMarginLoss(swap=True), tuple(some(*ROW, seed=n) for n in range(3))),
    "MultiMarginLoss": (lambda: nn.MultiMarginLoss(), (some(*ROW), whole(5, below=8))),
    "MultiLabelMarginLoss": (
        lambda: nn.MultiLabelMarginLoss(), (some(3, 4), np.array([[3, 0, -1, 1], [0, -1, 1, 2], [2, 1, 0, 3]])),
    ),
    "MultiLabelSoftMarginLoss": (lambda: nn.MultiLabelSoftMarginLoss(), (some(*ROW), whole(*ROW, below=2).astype(np.float32))),
    "SoftMarginLoss": (lambda: nn.SoftMarginLoss(), (some(5), SIGNS)),
    "AdaptiveLogSoftmaxWithLoss": (lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 12, [4, 8]), (some(*ROW), whole(5, below=12))),
    "quantile": (lambda: lambda x: x.quantile(np.float32([0.2, 0.7]), 1), (some(*ROW),)),
    "std": (lambda: lambda x: x.std(-1) + x.logsumexp(-1), (some(*ROW),)),
    "index_fill": (lambda: lambda x: x.index_fill(1, np.array([1, 3]), 7.0) * x.tril(), (some(*ROW),)),
    "masked_fill": (lambda: lambda x, y: x.masked_fill(y > 0, -1.0) + x.clip(-0.5, 0.5), (some(*ROW), some(*ROW, seed=1))),
    "cumprod": (lambda: lambda x: x.cumprod(1) + x.roll(1, 0), (some(*ROW),)),
    "one_hot": (lambda: lambda x, i: x @ F.one_hot(i, 8).astype("f32").T, (some(*ROW), whole(5, below=8))),
    "numbers": (lambda: lambda x: cb.tensor(2.0).to(x.device) * x + (x > 0).astype("f32") * 3 - 1, (some(*ROW),)),
}  # fmt: skip


def _attending(net: Any) -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Tensor) -> Tensor:
            hidden = np.zeros((x.shape[1], x.shape[0]), bool)
            hidden[0, 1] = True
            return net(x, x, x, key_padding_mask=cb.tensor(hidden).to(x.device))[0]  # type: ignore[no-any-return]

    return Net()


def numbers_of(found: Any) -> list[Tensor]:
    if isinstance(found, Tensor):
        return [found]
    return [t for part in found for t in numbers_of(part)]


def step_of(net: Any, parameters: list[Any]) -> Callable[..., list[Tensor]]:
    """Gives results, and gradients by floats that are given and by parameters."""

    def step(*arrays: Tensor) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() if x.dtype.is_float else x for x in arrays]
        for p in parameters:
            p.grad = None
        results = numbers_of(net(*leaves))
        sum((t * t).sum() for t in results if t.dtype.is_float).backward()  # type: ignore[union-attr]
        grads = [t.grad for t in (*leaves, *parameters) if t.grad is not None]
        return [*[t.detach() for t in results], *grads]

    return step


def done(name: str, home: str, program: bool) -> list[np.ndarray]:
    """Results, and gradients by floats that are given and by parameters, of a third call; where a
    GPU is emulated, ops are called once: `tests/runtime/replay` has what repeats them.
    """
    made, given = MODULES[name]
    net = made()
    parameters = []
    if isinstance(net, nn.Module):
        for n, p in enumerate(net.parameters()):
            p.data = cb.tensor(some(*p.shape, seed=n) * 0.3)
        net.to(home)
        parameters = [*net.parameters()]

    step = step_of(net, parameters)
    run = cb.jit(step) if program else step
    for _ in range(3 if program or GPU == "cuda" else 1):
        found = run(*[cb.tensor(x, device=home) for x in given])
    for t in found:
        assert t.device.backend == home.split(":")[0], name
    return [t.numpy() for t in found]


@pytest.mark.turns(1 if GPU == "cuda" else 12)
@pytest.mark.parametrize("program", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_results_and_gradients(name: str, program: bool) -> None:
    for got, want in zip(done(name, GPU, program), done(name, "cpu", False), strict=True):
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-4 * scale)
