"""Operators of torch as functions of a line, with arguments, which `make_torch_fixture.py`
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
X = torch.randn(3, 4)
Y = torch.randn(3, 4)
POSITIVE = torch.rand(3, 4) + 0.5
WHOLE = torch.arange(-6, 6).reshape(3, 4)
SMALL = torch.tensor([[1, -2, 0, 3]], dtype=torch.int32)
IMAGE = torch.randn(2, 4, 6, 6)
SIGNAL = torch.randn(2, 4, 9)
VOLUME = torch.randn(1, 2, 4, 4, 4)
TRUE = X > 0
INDEX = torch.tensor([2, 0, 1])

UNARY = (
    "abs neg exp exp2 expm1 sin cos tan sinh cosh tanh erf erfc sigmoid floor ceil trunc round sign "
    "square relu isnan isinf isfinite atan asinh logical_not frac"
)
UNARY_POSITIVE = "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma acosh"
BINARY = (
    "add sub mul div remainder fmod maximum minimum atan2 hypot copysign logaddexp eq ne lt le gt "
    "ge logical_and logical_or logical_xor"
)
ACTIVATIONS = (
    "silu relu6 hardswish hardsigmoid hardtanh hardshrink softshrink leaky_relu elu selu celu "
    "softplus mish logsigmoid tanhshrink softsign gelu"
)
Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def operators() -> Iterator[Case]:
    """Functions of one operator, or a few."""
    for name in UNARY.split():
        yield name, getattr(torch, name), (X * 2,)
    for name in UNARY_POSITIVE.split():
        yield name, getattr(torch, name), (POSITIVE + (name == "acosh"),)
    for name in "asin acos atanh".split():
        yield name, getattr(torch, name), (X.tanh() * 0.9,)
    for name in BINARY.split():
        yield name, getattr(torch, name), (X, Y)
        if name not in ("atan2", "hypot", "copysign", "logaddexp", "div"):
            yield f"{name} of integers", getattr(torch, name), (WHOLE, SMALL + (SMALL == 0))
    for name in ACTIVATIONS.split():
        yield name, getattr(F, name), (X * 3,)
    for name in "bitwise_and bitwise_or bitwise_xor".split():
        yield name, getattr(torch, name), (WHOLE, SMALL)
        yield f"{name} of truth", getattr(torch, name), (TRUE, Y > 0)
    yield "bitwise_not", torch.bitwise_not, (WHOLE,)
    yield "shifts", lambda x: (x << 2, x >> 1), (WHOLE,)
    yield from promotions()
    yield from of_three()
    yield from movements()
    yield from indices()
    yield from reductions()
    yield from products()
    yield from layers()


def promotions() -> Iterator[Case]:
    half, zero = X.half(), torch.tensor(2.5, dtype=torch.float64)
    yield "integers and a float", lambda x: (x + 0.5, x * 2, x / 2, 1 - x, x**2), (WHOLE,)
    yield "kinds of integers", lambda a, b: a + b, (SMALL, WHOLE.to(torch.uint8))
    yield "integers and floats", lambda a, b: a * b, (WHOLE, half)
    yield "halves", lambda a, b: a + b, (half, X.bfloat16())
    yield "a wide float without axes", lambda a, b: a * b, (X, zero)
    yield "a wide float and integers", lambda a, b: a * b, (WHOLE, zero)
    yield "truth", lambda a, b: (a + b, a * b, a + 1, a * 0.5), (TRUE, Y > 0)
    yield "powers", lambda x: (x**2.0, x**-1, 2.0**x, x**0.5), (POSITIVE,)
    yield (
        "whole quotients",
        lambda a, b: (a // b, torch.div(a, b, rounding_mode="trunc")),
        (WHOLE, torch.full_like(WHOLE, 3)),
    )
    yield "casts", lambda x: (x.int(), x.double(), x.bool(), x.type_as(WHOLE)), (X * 3,)
    yield "alpha", lambda a, b: (torch.add(a, b, alpha=2), torch.rsub(a, b, alpha=3)), (X, Y)


def of_three() -> Iterator[Case]:
    yield "where", lambda m, a, b: (torch.where(m, a, b), torch.where(m, a, 0.0)), (TRUE, X, Y)
    yield "masked_fill", lambda x, m: x.masked_fill(m, -1e9), (X, TRUE)
    yield "clamp", lambda x: (x.clamp(-0.5, 0.5), x.clamp_min(0), x.clamp(max=0.1)), (X,)
    yield "lerp", lambda a, b: (torch.lerp(a, b, 0.3), torch.addcmul(a, a, b, value=2)), (X, Y)
    yield "nan_to_num", torch.nan_to_num, (torch.tensor([1.0, float("nan"), float("inf")]),)
    yield "in place", written, (X, Y)


def written(x: torch.Tensor, y: torch.Tensor) -> Any:
    """A view that is written changes what it is a view of."""
    z = x.clone()
    z[1] = 7.0
    z[:, 2:].mul_(y[:, 2:])
    z.view(-1)[0] += 1
    return z


def movements() -> Iterator[Case]:
    yield "views", lambda x: (x.view(2, 6), x.reshape(-1), x.flatten(), x.t(), x.mT), (X,)
    yield "unflatten", lambda x: x.unflatten(1, (2, 2)), (X,)
    yield "axes", lambda x: (x.permute(0, 2, 3, 1), x.movedim(1, -1), x.transpose(2, 3)), (IMAGE,)
    yield "ones", lambda x: (x.unsqueeze(1).squeeze(1), x[None].squeeze(), x.squeeze((0, 1))), (X,)
    yield "expand", lambda x: (x.expand(2, -1, 4), x[:, :1].expand_as(x)), (X,)
    yield "slices", lambda x: (x[1:, ::2], x[..., -1], x[:, -3:-1], x.narrow(1, 1, 2)), (X,)
    yield "parts", lambda x: (x.split(3, 1), x.split([1, 3], 1), x.chunk(2, 1), x.unbind(0)), (X,)
    yield "joined", lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y], -1)), (X, Y)
    yield "joined kinds", lambda x, y: torch.cat([x, y]), (X, WHOLE)
    yield "repeated", lambda x: (x.repeat(2, 1, 3), x.tile(2), x.repeat_interleave(2, 1)), (X,)
    yield "flip and roll", lambda x: (x.flip(0, 1), x.roll(1, 1), x.roll((1, 2), (0, 1))), (X,)
    yield "triangles", lambda x: (x.tril(), x.triu(1)), (X,)
    yield "pads", lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 2), value=3.0)), (X,)
    yield "pads of images", padded, (IMAGE,)
    yield "shuffle", lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2), 3), (IMAGE,)
    yield "windows", lambda x: (x.unfold(1, 2, 1), x.diagonal(), x.diagonal(1, 1, 0)), (X,)
    yield "made", made, (X,)
    yield "grid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), (X[0], Y[1, :3])


def padded(x: torch.Tensor) -> Any:
    kinds = ("reflect", "replicate", "circular")
    return [F.pad(x, (1, 2, 0, 1), mode=kind) for kind in kinds]


def made(x: torch.Tensor) -> Any:
    n = x.shape[1]
    return [
        torch.arange(n),
        torch.arange(1.0, 3.0, 0.5),
        torch.zeros(2, n),
        torch.ones(n, dtype=torch.int32),
        torch.full((2,), 7),
        torch.eye(3),
        torch.linspace(0, 1, 5),
        x.new_zeros(2),
        x.new_full((2,), 3),
        torch.ones_like(x),
        torch.full_like(x, 2),
        torch.scalar_tensor(2.0),
    ]


def indices() -> Iterator[Case]:
    pair = torch.tensor([[0, 3, -1]]), torch.tensor([[1], [2]])
    yield "index", lambda x, i: (x[i], x[:, i], x[i, i], x[i[:, None], i]), (X, INDEX)
    yield "index from the end", lambda x, i, j: (x[:, i], x[j, i]), (X, *pair)
    yield "index_select", lambda x, i: x.index_select(1, i), (X, INDEX)
    yield (
        "gather",
        lambda x, i: (x.gather(1, i[:, None]), x.take_along_dim(i[:, None], 1)),
        (X, INDEX),
    )
    yield (
        "scatter",
        lambda x, i, y: (x.scatter(1, i, y[:, :1]), x.scatter(1, i, 5.0)),
        (X, INDEX[:, None], Y),
    )
    yield "scatter_add", lambda x, i, y: x.scatter_add(0, i, y), (X, INDEX[:, None] % 2, Y)
    yield "index_add", lambda x, i, y: x.index_add(0, i, y, alpha=2), (X, INDEX, Y)
    yield "index_put", assigned, (X, INDEX, Y)
    yield "one_hot", lambda i: F.one_hot(i, 4), (INDEX,)
    yield "embedding", lambda w, i: F.embedding(i, w), (X, INDEX)


def assigned(x: torch.Tensor, i: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.clone()
    z[i, i] = y[:, 0]
    z[x > 1] = 0.0
    return z, x.index_put((i,), y, accumulate=True)


def reductions() -> Iterator[Case]:
    yield "sums", lambda x: (x.sum(), x.sum(1), x.sum((0, 1), keepdim=True), x.mean(0)), (X,)
    yield "sums of integers", lambda x: (x.sum(), x.cumsum(1), x.prod(0)), (SMALL,)
    yield "products", lambda x: (x.prod(1), x.cumprod(0)), (X,)
    yield "extremes", lambda x: (x.amax(1), x.amin((0, 1)), x.max(), x.min()), (X,)
    yield "extremes and where", lambda x: (*x.max(1), *x.min(0, keepdim=True)), (X,)
    yield "arguments", lambda x: (x.argmax(), x.argmax(1), x.argmin(0, keepdim=True)), (X,)
    yield "truths", lambda x: (x.any(), x.all(1), (x > -9).all()), (TRUE,)
    yield "spreads", lambda x: (x.var(), x.std(1), x.var(1, correction=0, keepdim=True)), (X,)
    yield "var_mean", lambda x: torch.var_mean(x, 1, correction=0), (X,)
    yield "norms", lambda x: (x.norm(), x.norm(1, dim=1), torch.linalg.vector_norm(x, 3)), (X,)
    yield "softmax", lambda x: (x.softmax(0), x.log_softmax(-1), x.logsumexp(1)), (X,)
    yield "order", lambda x: (*x.sort(1), x.argsort(0, descending=True), *x.topk(2)), (X,)
    yield "diff", lambda x: (x.diff(), x.diff(dim=0, prepend=x[:1])), (X,)
    yield "searchsorted", lambda x, y: torch.searchsorted(x, y, right=True), (X[0].sort()[0], Y)
    yield "count_nonzero", lambda x: x.count_nonzero(1), (WHOLE,)


def products() -> Iterator[Case]:
    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 2, 5, 8)
    wide = k.repeat_interleave(2, 1)
    mask = torch.randn(2, 1, 3, 5)
    yield "products", lambda x, y: (x @ y.t(), x.mm(y.t()), x.mv(y[0]), x[0].dot(y[0])), (X, Y)
    yield "bmm", lambda x: (x.bmm(x.mT), torch.baddbmm(x.mT @ x, x.mT, x, beta=0.5)), (SIGNAL,)
    yield "addmm", lambda b, x, y: torch.addmm(b, x, y.t(), beta=2, alpha=0.5), (X[0, :3], X, Y)
    yield "outer", lambda x, y: torch.outer(x[0], y[1]), (X, Y)
    yield "einsum", lambda x, y: torch.einsum("bcl,bdl->bcd", x, y), (SIGNAL, SIGNAL.flip(0))
    yield "linear", F.linear, (X, Y, X[0, :3])
    yield "attention", F.scaled_dot_product_attention, (q, wide, wide)
    yield "attention with a mask", F.scaled_dot_product_attention, (q, wide, wide, mask)
    yield (
        "attention of those before",
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3),
        (q,),
    )
    yield (
        "attention of groups",
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        (q, k),
    )
    yield (
        "attention of truths",
        lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m),
        (q, wide, mask > -1),
    )


def layers() -> Iterator[Case]:
    yield (
        "convolutions",
        nn.Sequential(
            nn.Conv1d(4, 6, 3, padding=1),
            nn.Conv1d(6, 4, 4, padding="same"),
            nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1),
        ),
        (SIGNAL,),
    )
    yield (
        "convolutions of images",
        nn.Sequential(
            nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
            nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8, padding_mode="reflect"),
            nn.ConvTranspose2d(8, 4, 2, stride=2),
        ),
        (IMAGE,),
    )
    yield "convolutions of volumes", nn.Conv3d(2, 3, (1, 2, 2)), (VOLUME,)
    yield (
        "pools",
        lambda x: (
            F.max_pool2d(x, 2),
            *F.max_pool2d(x, 3, 2, 1, return_indices=True),
            F.avg_pool2d(x, 2, 1, count_include_pad=False, padding=1),
            F.adaptive_avg_pool2d(x, (2, 3)),
            F.adaptive_max_pool2d(x, 2),
        ),
        (IMAGE,),
    )
    yield (
        "pools of signals",
        lambda x: (
            F.max_pool1d(x, 2),
            F.avg_pool1d(x, 3, ceil_mode=True),
            F.adaptive_avg_pool1d(x, 4),
        ),
        (SIGNAL,),
    )
    yield (
        "norms of images",
        trained(nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4))),
        (IMAGE,),
    )
    yield "norms of rows", nn.Sequential(nn.LayerNorm(4), nn.RMSNorm(4)), (X,)
    normed = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3, groups=2), dim=2)
    yield "weight norm", normed, (SIGNAL,)
    yield "dropout", nn.Sequential(nn.Dropout(), nn.Dropout2d()), (IMAGE,)
    yield (
        "resizing",
        lambda x: (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, size=(4, 9), mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=1.5, mode="bicubic"),
            F.interpolate(x, size=(3, 5), mode="nearest-exact"),
        ),
        (IMAGE,),
    )
    yield "gru", nn.GRU(4, 3, 2, bidirectional=True), (X[:, None],)
    yield "rnn", nn.RNN(4, 3, batch_first=True, bias=False), (X[None],)
    yield "lstm of a row", nn.LSTM(4, 3), (X,)
    yield "prelu and glu", nn.Sequential(nn.PReLU(4), nn.GLU()), (X,)
    yield "bilinear", Two(nn.Bilinear(4, 4, 2)), (X, Y)
    yield "attention layer", Two(nn.MultiheadAttention(4, 2, batch_first=True), 3), (X[None],)
    yield (
        "encoder layer",
        nn.TransformerEncoderLayer(8, 2, 12, batch_first=True),
        (torch.randn(2, 5, 8),),
    )


def trained(module: nn.Module) -> nn.Module:
    """Running means and variances that say something."""
    for name, buffer in module.named_buffers():
        if "running" in name:
            buffer.copy_(torch.rand_like(buffer) + 0.5)
    return module


class Two(nn.Module):
    """A module with its argument several times."""

    def __init__(self, inner: nn.Module, times: int = 0) -> None:
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, *xs: Any) -> Any:
        return self.inner(*(xs * self.times if self.times else xs))
