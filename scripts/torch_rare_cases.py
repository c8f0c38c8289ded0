"""More operators of torch, which few modules ask for, as functions; see `torch_cases.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional as F

from scripts.torch_cases import IMAGE, INDEX, POSITIVE, SIGNAL, TRUE, WHOLE, Case, X, Y

torch.manual_seed(1)
NAN = torch.where(X > 1, float("nan"), X)
CLASSES = torch.tensor([2, -100, 1])
WEIGHT = torch.rand(4) + 0.5
GRID = torch.rand(2, 3, 5, 2) * 3 - 1.5
VOLUME = torch.randn(1, 2, 3, 4, 2)
GRID3 = torch.rand(1, 2, 3, 2, 3) * 3 - 1.5
SQUARE = torch.randn(2, 3, 3) + 3 * torch.eye(3)
EVEN = SQUARE @ SQUARE.mT


def rare() -> Iterator[Case]:
    """All of them."""
    yield from losses()
    yield from samples()
    yield from parts()
    yield from places()
    yield from orders()
    yield from functions()
    yield from matrices()


def losses() -> Iterator[Case]:
    kinds = ("none", "mean", "sum")
    yield (
        "cross_entropy",
        lambda x, t, w: [
            F.cross_entropy(x, t, w, reduction=r, label_smoothing=s)
            for r in kinds
            for s in (0.0, 0.1)
        ],
        (X, CLASSES, WEIGHT),
    )
    yield "cross_entropy of images", F.cross_entropy, (IMAGE, IMAGE.argmax(1))
    yield (
        "cross_entropy of probabilities",
        lambda x, p, w: [F.cross_entropy(x, p, w, reduction=r, label_smoothing=0.2) for r in kinds],
        (X, Y.softmax(1), WEIGHT),
    )
    yield (
        "nll_loss",
        lambda x, t, w: [F.nll_loss(x, t, w, reduction=r, ignore_index=1) for r in kinds],
        (X, CLASSES % 4, WEIGHT),
    )
    yield "nll_loss of images", F.nll_loss, (IMAGE, IMAGE.argmax(1))
    yield (
        "losses of pairs",
        lambda x, y: [
            f(x, y, reduction=r)
            for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss)
            for r in kinds
        ],
        (X, Y),
    )
    yield (
        "losses with bounds",
        lambda x, y: (
            F.smooth_l1_loss(x, y, beta=0.3),
            F.huber_loss(x, y, delta=0.3),
            F.kl_div(x, y.softmax(1), reduction="batchmean"),
            F.kl_div(x, y, log_target=True, reduction="none"),
            F.poisson_nll_loss(x, y.abs() * 4, full=True),
        ),
        (X, Y),
    )
    yield (
        "binary cross entropies",
        lambda x, y, w: [
            *[F.binary_cross_entropy(x.sigmoid(), y, w, reduction=r) for r in kinds],
            *[
                F.binary_cross_entropy_with_logits(x, y, w, reduction=r, pos_weight=w * 2)
                for r in kinds
            ],
        ],
        (X, Y.sigmoid(), WEIGHT),
    )
    sign = torch.tensor([1.0, -1.0, 1.0])
    yield (
        "losses with margins",
        lambda x, y, s, t: (
            F.margin_ranking_loss(x[:, 0], y[:, 0], s, margin=0.2),
            F.hinge_embedding_loss(x[:, 1], s),
            F.cosine_embedding_loss(x, y, s, margin=0.1),
            F.triplet_margin_loss(x, y, x + y, swap=True),
            F.multi_margin_loss(x, t, p=2),
            F.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1], [0, -1, 1, 2], [2, 1, 0, 3]])),
        ),
        (X, Y, sign, CLASSES % 4),
    )
    yield (
        "distances",
        lambda x, y: (
            F.pairwise_distance(x, y),
            torch.cdist(x, y, p=1.0),
            torch.cdist(x, y),
            F.pdist(x),
            torch.dist(x, y, 3),
        ),
        (X, Y),
    )


def samples() -> Iterator[Case]:
    for mode in ("bilinear", "nearest", "bicubic"):
        yield (
            f"grid_sample {mode}",
            lambda x, g, mode=mode: [
                F.grid_sample(x, g, mode=mode, padding_mode=padding, align_corners=align)
                for padding in ("zeros", "border", "reflection")
                for align in (False, True)
            ],
            (IMAGE, GRID),
        )
    yield (
        "grid_sample of volumes",
        lambda x, g: [
            F.grid_sample(x, g, mode=mode, align_corners=False) for mode in ("bilinear", "nearest")
        ],
        (VOLUME, GRID3),
    )
    theta = torch.randn(2, 2, 3)
    yield (
        "affine_grid",
        lambda t: [F.affine_grid(t, (2, 1, 3, 4), a) for a in (False, True)],
        (theta,),
    )
    yield (
        "unfold",
        lambda x: (F.unfold(x, 3), F.unfold(x, (2, 3), (1, 2), (1, 2), (2, 1))),
        (IMAGE,),
    )
    yield "fold", lambda x: F.fold(F.unfold(x, 3, 1, 1, 2), (6, 6), 3, 1, 1, 2), (IMAGE,)
    yield "max_unpool", unpooled, (IMAGE,)
    yield "channel_shuffle", lambda x: F.channel_shuffle(x, 2), (IMAGE,)
    yield (
        "smooth resizing",
        lambda x: (
            F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
            F.interpolate(x, size=(4, 9), mode="bicubic", antialias=True),
        ),
        (IMAGE,),
    )
    bags = torch.tensor([0, 2, 1, 2]), torch.tensor([0, 3])
    yield (
        "embedding_bag",
        lambda w, i, o: [F.embedding_bag(i, w, o, mode=m) for m in ("sum", "mean", "max")],
        (X, *bags),
    )
    yield (
        "norms with what they used",
        lambda x: (
            *torch.native_layer_norm(x, (4,), None, None, 1e-5),
            F.local_response_norm(x[None], 2),
        ),
        (X,),
    )


def unpooled(x: torch.Tensor) -> Any:
    y, where = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, where, 2)


def parts() -> Iterator[Case]:
    yield "tensor_split", lambda x: (x.tensor_split(3, 1), x.tensor_split((1, 9), 1)), (X,)
    yield "splits", lambda x: (x.hsplit(2), x.vsplit([1, 2]), x[None].dsplit(2)), (X,)
    yield (
        "stacks",
        lambda x, y: (
            torch.hstack([x, y]),
            torch.vstack([x, y[0]]),
            torch.dstack([x, y]),
            torch.column_stack([x, y[:, 0]]),
            torch.atleast_3d(x[0]),
        ),
        (X, Y),
    )
    yield "quarter turns", lambda x: [x.rot90(k) for k in range(4)] + [x.fliplr(), x.flipud()], (X,)
    yield (
        "diagonals",
        lambda x: (
            torch.diag(x),
            torch.diag(x[0], 1),
            torch.diag_embed(x, -1),
            torch.diagflat(x[:, :2]),
            torch.diagonal_scatter(x, x[2, :3]),
        ),
        (X,),
    )
    yield "as_strided", lambda x: (x * 1).as_strided((2, 3), (1, 2), 1), (X,)
    yield (
        "copies of views",
        lambda x: (
            torch.view_copy(x, (4, 3)),
            torch.transpose_copy(x, 0, 1),
            torch.expand_copy(x[:1], (3, 4)),
        ),
        (X,),
    )
    yield (
        "pads that take away",
        lambda x: [
            F.pad(x, widths, mode=mode)
            for widths in ((-1, 2), (2, -1), (-1, -1))
            for mode in ("reflect", "replicate")
        ],
        (SIGNAL,),
    )
    yield "made of numbers", rare_makers, (X,)


def rare_makers(x: torch.Tensor) -> Any:
    n = x.shape[0]
    return [
        torch.logspace(0, 2, 4),
        torch.tril_indices(n, 4),
        torch.triu_indices(n, 4, 1),
        torch.hann_window(5),
        torch.hamming_window(5, periodic=False),
        torch.blackman_window(4),
        torch.bartlett_window(5),
        torch.kaiser_window(5, True, 3.0),
    ]


def places() -> Iterator[Case]:
    at = torch.tensor([[0, 1, 1, 0], [2, 1, 0, 0]])
    for how in ("sum", "prod", "mean", "amax", "amin"):
        yield (
            f"scatter_reduce {how}",
            lambda x, i, y, how=how: [
                x.scatter_reduce(0, i, y, how, include_self=own) for own in (True, False)
            ],
            (X, at, Y),
        )
    yield (
        "index_reduce",
        lambda x, i, y: [
            x.index_reduce(1, i, y, how, include_self=own)
            for how in ("prod", "mean", "amax", "amin")
            for own in (True, False)
        ],
        (X, torch.tensor([1, 3, 1, 1]), Y),
    )
    yield (
        "scatter with products",
        lambda x, i, y: (x.scatter(0, i, y, reduce="multiply"), x.scatter(0, i, 2.0, reduce="add")),
        (X, at, Y),
    )
    yield (
        "places",
        lambda x, i, y, m: (
            x.index_fill(1, i, 7.0),
            x.take(i * 3),
            x.put(i * 3, y[:, 0], accumulate=True),
            x.masked_scatter(m, y),
        ),
        (X, INDEX, Y, TRUE),
    )


def orders() -> Iterator[Case]:
    yield (
        "medians",
        lambda x, y: (
            *x.median(1),
            x.median(),
            *x.nanmedian(0, keepdim=True),
            y.nanmedian(),
            *y.median(0),
        ),
        (X, NAN),
    )
    yield "kth values", lambda x: (*x.kthvalue(2, 0), *x.kthvalue(4, -1, True), x.msort()), (X,)
    yield "modes", lambda x: (*(x // 3).mode(1), *(x // 3).mode(0, True)), (WHOLE,)
    yield (
        "quantiles",
        lambda x, y, q: (
            *[x.quantile(q, 1, interpolation=i) for i in ("linear", "lower", "higher", "midpoint")],
            x.quantile(0.3, interpolation="nearest"),
            y.nanquantile(q, 0, keepdim=True),
        ),
        (X, NAN, torch.tensor([0.1, 0.5, 1.0])),
    )
    yield "running extremes", lambda x, y: (*x.cummax(1), *x.cummin(0), *y.cummax(1)), (X, NAN)
    yield "running logarithms", lambda x: x.logcumsumexp(1), (X,)
    yield (
        "buckets",
        lambda x, b: (
            torch.bucketize(x, b),
            torch.searchsorted(x.sort(1)[0], x, right=True),
            torch.histc(x, 4, -1.0, 1.0),
            torch.isin(x.round(), b),
        ),
        (X, torch.tensor([-1.0, 0.0, 0.5])),
    )
    yield "spreads and means", lambda x: (*torch.std_mean(x, 1), *x.aminmax(dim=0)), (X,)
    yield "sums without what is missing", lambda x: (x.nansum(1), x.nanmean(0)), (NAN,)
    yield (
        "areas",
        lambda y, x: (
            torch.trapezoid(y, dx=0.5),
            torch.trapezoid(y, x, dim=0),
            torch.cumulative_trapezoid(y, x),
            y.renorm(2, 0, 1.0),
        ),
        (X, Y),
    )
    yield (
        "one element without axes",
        lambda x: (x.softmax(0), *x.max(0), *x.topk(1), x.cumsum(0), x.sort(0)[1]),
        (X[0, 0],),
    )


def functions() -> Iterator[Case]:
    yield (
        "xlogy",
        lambda x, y: (torch.xlogy(x, y), torch.xlogy(x * 0, y), torch.special.xlog1py(x, y)),
        (X, POSITIVE),
    )
    for name in "erfinv logit sinc ndtr log_ndtr entr".split():
        function = getattr(torch, name, None) or getattr(torch.special, name)
        yield name, function, (X.sigmoid() if name in ("logit", "entr") else X.tanh() * 0.99,)
    yield "log_ndtr away", torch.special.log_ndtr, (torch.tensor([-30.0, -5.0, -4.3, -1.0, 4.0]),)
    yield "angles", lambda x: (x.deg2rad(), x.rad2deg(), x.angle(), x.signbit()), (X,)
    yield (
        "isclose",
        lambda x, y, z: (
            torch.isclose(x, y, 0.5),
            torch.isclose(z, z, equal_nan=True),
            torch.isclose(z, z),
        ),
        (X, Y, NAN),
    )
    yield (
        "exponents",
        lambda x, n: (*torch.frexp(x), torch.ldexp(x, n), x.float_power(2)),
        (X, WHOLE),
    )
    yield (
        "the larger one",
        lambda x, y: (
            torch.fmax(x, y),
            torch.fmin(y, x),
            torch.heaviside(x, y),
            torch.logaddexp2(x, x + 1),
            torch.nextafter(x, y),
        ),
        (X, NAN),
    )
    yield "truths in order", lambda a, b: (torch.maximum(a, b), torch.minimum(a, b)), (TRUE, Y > 0)
    yield (
        "divisors",
        lambda a, b: (torch.gcd(a, b), torch.lcm(a, b)),
        (WHOLE * 6, WHOLE.flip(1) * 4),
    )
    yield (
        "gamma functions",
        lambda x: (torch.mvlgamma(x + 2, 3), torch.polygamma(1, x)),
        (POSITIVE,),
    )
    yield "rrelu", lambda x: F.rrelu(x), (X,)
    yield "of all dtypes", lambda x: (x.sgn(), torch.special.round(x), x.positive()), (X,)


def matrices() -> Iterator[Case]:
    yield (
        "decompositions",
        lambda x, y: (
            torch.linalg.det(x),
            *torch.linalg.slogdet(x),
            torch.linalg.inv(x),
            torch.linalg.solve(x, y),
            torch.linalg.cholesky(y),
            torch.linalg.svdvals(x),
            torch.linalg.eigvalsh(y),
            torch.linalg.matrix_power(x, 3),
        ),
        (SQUARE, EVEN),
    )
    yield (
        "norms of matrices",
        lambda x: (
            *[torch.linalg.matrix_norm(x, p) for p in ("fro", "nuc", 1, 2, float("inf"))],
            torch.linalg.norm(x, dim=(1, 2), keepdim=True),
        ),
        (SQUARE,),
    )
    yield (
        "rare products",
        lambda x, y: (
            torch.linalg.cross(x[:, :3], y[:, :3]),
            torch.kron(x, y[:2]),
            torch.inner(x, y),
            torch.linalg.multi_dot([x, y.t(), x]),
            torch.addr(x, x[:, 0], y[0], alpha=2),
            torch.vdot(x[0], y[0]),
            torch.tensordot(x[None], y[None], ([0, 2], [0, 2])),
            torch.trace(x),
        ),
        (X, Y),
    )
    yield "addbmm", lambda b, x: torch.addbmm(b, x, x.mT, beta=0.5), (X[:, :3], SQUARE)
    yield (
        "blocks and pairs",
        lambda x, y: (
            torch.block_diag(x, y[0], y[:, :1]),
            torch.cartesian_prod(x[0], y[0, :2]),
            torch.vander(x[0]),
        ),
        (X, Y),
    )
