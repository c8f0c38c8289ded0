"""Modules beside the functions that they call; what decoders see; pads as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import GradientError, ShapeError
from cubepy.nn import functional as F

RNG = np.random.default_rng(2)
X, Y = RNG.standard_normal((2, 2, 4, 5, 6))
ROWS, OTHERS, MORE = RNG.standard_normal((3, 4, 5))
T, LABELS, SEVERAL = np.sign(OTHERS), RNG.integers(0, 5, 4), np.tile([3, 0, -1, 1, 2], (4, 1))


def angle(a: Any, b: Any) -> Any:
    return 1 - F.cosine_similarity(a, b)


TRIPLE = (ROWS, OTHERS, MORE)
BY_ANGLE: dict[str, Any] = {"distance_function": angle, "margin": 0.5, "swap": True}
CASES: dict[str, tuple[nn.Module, Callable[..., Any], tuple[Any, ...]]] = {
    "ChannelShuffle": (nn.ChannelShuffle(2), lambda x: F.channel_shuffle(x, 2), (X,)),
    "Unfold": (nn.Unfold(2, 1, 1, 2), lambda x: F.unfold(x, 2, 1, 1, 2), (X,)),
    "Fold": (
        nn.Fold((5, 6), 2, stride=2),
        lambda x: F.fold(x, (5, 6), 2, stride=2),
        (RNG.standard_normal((2, 8, 6)),),
    ),
    "LocalResponseNorm": (
        nn.LocalResponseNorm(3, 0.5, 0.6, 2.0),
        lambda x: F.local_response_norm(x, 3, 0.5, 0.6, 2.0),
        (X,),
    ),
    "LPPool1d": (nn.LPPool1d(2, 3, 1), lambda x: F.lp_pool1d(x, 2, 3, 1), (X[0],)),
    "LPPool2d": (nn.LPPool2d(4, 2), lambda x: F.lp_pool2d(x, 4, 2), (X,)),
    "UpsamplingNearest2d": (
        nn.UpsamplingNearest2d(scale_factor=2),
        lambda x: F.interpolate(x, scale_factor=2),
        (X,),
    ),
    "UpsamplingBilinear2d": (
        nn.UpsamplingBilinear2d((7, 9)),
        lambda x: F.interpolate(x, (7, 9), mode="bilinear", align_corners=True),
        (X,),
    ),
    "Softmax2d": (nn.Softmax2d(), lambda x: F.softmax(x, 1), (X,)),
    "RReLU": (nn.RReLU().eval(), F.rrelu, (X,)),
    "CosineSimilarity": (nn.CosineSimilarity(2), lambda x, y: F.cosine_similarity(x, y, 2), (X, Y)),
    "PairwiseDistance": (
        nn.PairwiseDistance(3, 0.1, True),
        lambda x, y: F.pairwise_distance(x, y, 3, 0.1, True),
        (ROWS, OTHERS),
    ),
    "MarginRankingLoss": (
        nn.MarginRankingLoss(0.3),
        lambda *x: F.margin_ranking_loss(*x, 0.3),
        (ROWS, OTHERS, T),
    ),
    "HingeEmbeddingLoss": (
        nn.HingeEmbeddingLoss(0.5, reduction="sum"),
        lambda *x: F.hinge_embedding_loss(*x, 0.5, reduction="sum"),
        (ROWS, T),
    ),
    "TripletMarginLoss": (
        nn.TripletMarginLoss(2.0, 3, 0.1, True),
        lambda *x: F.triplet_margin_loss(*x, 2.0, 3, 0.1, True),
        TRIPLE,
    ),
    "TripletMarginWithDistanceLoss": (
        nn.TripletMarginWithDistanceLoss(**BY_ANGLE),
        lambda *x: F.triplet_margin_with_distance_loss(*x, **BY_ANGLE),
        TRIPLE,
    ),
    "SoftMarginLoss": (nn.SoftMarginLoss(), F.soft_margin_loss, (ROWS, T)),
    "MultiMarginLoss": (
        nn.MultiMarginLoss(2, 0.5, np.arange(5.0)),
        lambda x, t: F.multi_margin_loss(x, t, 2, 0.5, np.arange(5.0)),
        (ROWS, LABELS),
    ),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss(), F.multilabel_margin_loss, (ROWS, SEVERAL)),
    "MultiLabelSoftMarginLoss": (
        nn.MultiLabelSoftMarginLoss(np.arange(5.0)),
        lambda x, t: F.multilabel_soft_margin_loss(x, t, np.arange(5.0)),
        (ROWS, T > 0),
    ),
    "GaussianNLLLoss": (
        nn.GaussianNLLLoss(full=True),
        lambda *x: F.gaussian_nll_loss(*x, full=True),
        (ROWS, OTHERS, T + 1),
    ),
    "PoissonNLLLoss": (
        nn.PoissonNLLLoss(False, True, eps=0.1),
        lambda *x: F.poisson_nll_loss(*x, False, True, eps=0.1),
        (abs(ROWS), abs(OTHERS) * 3),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_module_is_its_function(name: str) -> None:
    module, function, given = CASES[name]
    inputs = [cb.tensor(x) for x in given]
    np.testing.assert_array_equal(module(*inputs).numpy(), function(*inputs).numpy())
    assert repr(module).startswith(name)


PADS = {"Reflection": "reflect", "Replication": "edge", "Circular": "wrap", "Zero": "constant"}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("kind", PADS)
def test_pads_are_those_of_numpy(kind: str, axes: int) -> None:
    x = RNG.standard_normal((2, 3, 4, 5, 3)[: axes + 2])
    pad = getattr(nn, f"{kind}Pad{axes}d")
    both = [(0, 0)] * 2
    np.testing.assert_array_equal(
        pad(2)(x).numpy(), np.pad(x, [*both, *[(2, 2)] * axes], PADS[kind])
    )
    sides = [1, 2, 0, 1, 2, 0][: 2 * axes]
    pairs = [(sides[2 * k], sides[2 * k + 1]) for k in reversed(range(axes))]
    want = np.pad(x, [*both, *pairs], PADS[kind])
    np.testing.assert_array_equal(pad(tuple(sides))(x).numpy(), want)
    np.testing.assert_array_equal(pad(sides)(x[0]).numpy(), want[0])
    constant = getattr(nn, f"ConstantPad{axes}d")(1, 7.0)
    want = np.pad(x, [*both, *[(1, 1)] * axes], constant_values=7)
    np.testing.assert_array_equal(constant(x).numpy(), want)
    assert f"padding={(1,) * 2 * axes}, value=7.0" in repr(constant)


def test_bags_begin_with_zeros_for_what_is_padding() -> None:
    bags = nn.EmbeddingBag(6, 3, mode="sum", padding_idx=2)
    assert bags.weight.detach().numpy()[2].tolist() == [0.0] * 3
    index, weights = np.array([[0, 2], [3, 3]]), np.array([[1.0, 1.0], [0.5, 2.0]], np.float32)
    table = bags.weight.detach().numpy()
    want = [table[0], 2.5 * table[3]]
    found = bags(index, per_sample_weights=weights)
    np.testing.assert_allclose(found.detach().numpy(), want, rtol=1e-6)
    found.sum().backward()
    assert (bags.weight.grad.numpy()[[2, 1, 4]] == 0).all()


def test_a_decoder_is_copies_that_learn_apart() -> None:
    layer = nn.TransformerDecoderLayer(8, 2, 16, 0.0)
    decoder = nn.TransformerDecoder(layer, 2, nn.LayerNorm(8))
    x, memory = (RNG.standard_normal((n, 2, 8)).astype(np.float32) for n in (3, 5))
    want = decoder.norm(layer(layer(x, memory), memory))
    found = decoder(x, memory)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)
    (found**2).mean().backward()
    assert all(p.grad is not None for p in decoder.parameters())


def test_a_transformer_draws_each_layer_anew_and_hides_what_comes() -> None:
    model = nn.Transformer(8, 2, 2, 2, 16, 0.0, batch_first=True)
    first, second = (model.decoder.layers[n].linear1.weight.numpy() for n in (0, 1))
    assert (first != second).any() and abs(first).max() <= np.sqrt(6 / 24)
    src, tgt = (RNG.standard_normal((2, n, 8)).astype(np.float32) for n in (5, 4))
    changed = tgt.copy()
    changed[:, 3] = 0
    mask = model.generate_square_subsequent_mask(4)
    for hidden in ({"tgt_mask": mask}, {"tgt_is_causal": True}):
        a, b = (model(src, x, **hidden).numpy() for x in (tgt, changed))
        np.testing.assert_allclose(a[:, :3], b[:, :3], rtol=1e-5, atol=1e-6)
        assert abs(a[:, 3] - b[:, 3]).max() > 1e-3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: nn.ZeroPad2d((1, 2)),
        lambda: nn.ReflectionPad1d(5)(X[0]).shape and nn.ReflectionPad1d(6)(X[0]),
        lambda: nn.Softmax2d()(ROWS),
        lambda: nn.TransformerDecoderLayer(8, 3),
        lambda: nn.ChannelShuffle(0),
    ],
)
def test_shapes_that_do_not_fit_are_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(ShapeError):
        wrong()


IN_PLACE = [
    nn.ReLU(True), nn.SiLU(inplace=True), nn.ReLU6(True), nn.LeakyReLU(0.2, True), nn.ELU(1.5, True),
    nn.CELU(inplace=True), nn.SELU(True), nn.Mish(True), nn.Hardswish(True), nn.Hardsigmoid(True),
    nn.Hardtanh(-0.5, 0.7, True), nn.Threshold(0.1, -2.0, True), nn.Dropout(1.0, True),
    nn.Dropout1d(1.0, True), nn.Dropout2d(1.0, True), nn.AlphaDropout(0.0, True),
]  # fmt: skip


@pytest.mark.parametrize("layer", IN_PLACE, ids=lambda m: type(m).__name__)
def test_layers_may_give_their_input_what_they_compute(layer: nn.Module) -> None:
    other = type(layer)() if not isinstance(layer, nn.Threshold) else nn.Threshold(0.1, -2.0)
    vars(other).update({k: v for k, v in vars(layer).items() if k != "inplace"})
    other.inplace = False
    x, kept = cb.tensor(X[0]), cb.tensor(X[0])
    want = other(kept)
    assert layer(x) is x and np.array_equal(x.numpy(), want.numpy())
    assert np.array_equal(kept.numpy(), X[0])
    leaf, same = (cb.tensor(X[0], requires_grad=True) for _ in range(2))
    (layer(leaf * 2) * 3).sum().backward()
    (other(same * 2) * 3).sum().backward()
    assert np.array_equal(leaf.grad.numpy(), same.grad.numpy())


def test_a_program_of_layers_in_place() -> None:
    net = nn.Sequential(nn.Linear(5, 5), nn.ReLU(True), nn.Linear(5, 3), nn.SiLU(True))
    plain = nn.Sequential(net[0], nn.ReLU(), net[2], nn.SiLU())
    run, x = cb.jit(net), cb.tensor(ROWS.astype(np.float32))
    for _ in range(3):
        np.testing.assert_allclose(run(x).numpy(), plain(x).numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(GradientError, match="leaf"):
        nn.ReLU(True)(cb.tensor([1.0], requires_grad=True))


@pytest.mark.parametrize("padding", [3, -2])
def test_a_row_for_padding_begins_as_zeros_and_stays(padding: int) -> None:
    table = nn.Embedding(5, 4, padding)
    assert table.padding_idx == 3 and not table.weight.numpy()[3].any()
    (table([[0, 3, 3], [1, 3, 0]]) ** 2).sum().backward()
    grad = table.weight.grad.numpy()
    assert not grad[3].any() and grad[0].all() and grad[1].all()
    with pytest.raises(ShapeError, match="padding_idx 5"):
        nn.Embedding(5, 4, 5)
