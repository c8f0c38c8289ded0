"""Draw inputs, values and derivatives of torch's ops into a fixture that tests compare cubepy with.

    python scripts/make_op_fixture.py tests/tensor/fixtures/torch_ops.npz
    python scripts/make_op_fixture.py tests/tensor/fixtures/newer_torch_ops.npz newer

runs by hand where torch 2.13 is installed (cubepy need not be) and gives the same file each time.
Inputs are those of `op_db`, in f64, on a grid. Of each call there are its results y, the gradients
g of the sum of y * `weights(...)` by the inputs that have some, and the gradients of the sum of
g * `weights(...)` once more. Numbers are rounded to what tests look at, so that they compress.

The file: `index`, a JSON text (see `Writer`), and `floats`, all numbers as bytes, the first byte of
each ahead of the second ones.
"""

from __future__ import annotations

import json
import random
import sys
import warnings
import zlib
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing._internal.common_methods_invocations import op_db

NAMES = """
    abs acos acosh add asin asinh atan atan2 atanh ceil clamp clamp_max clamp_min copysign cos cosh
    deg2rad div.no_rounding_mode div.floor_rounding div.trunc_rounding true_divide eq erf erfc exp
    exp2 expm1 floor floor_divide fmod ge gt hypot isfinite isinf isnan le lgamma log log10 log1p
    log2 logaddexp logical_and logical_not logical_or logical_xor lt max.binary maximum min.binary
    minimum mul ne neg nextafter positive pow reciprocal remainder round rsqrt rsub sigmoid sign
    signbit sin sinh sqrt square sub tan tanh trunc where masked_fill
    __radd__ __rdiv__ __rmatmul__ __rmod__ __rmul__ __rpow__ __rsub__
    all amax amin any argmax argmin count_nonzero cumprod cumsum diff log_softmax
    log_softmax.with_dtype logsumexp max.reduction_no_dim max.reduction_with_dim mean
    min.reduction_no_dim min.reduction_with_dim norm norm.inf linalg.vector_norm prod softmax
    softmax.with_dtype std std.unbiased sum var var.unbiased argsort msort sort topk
    bmm dot einsum inner linalg.vecdot matmul mm mv outer tensordot
    broadcast_tensors broadcast_to cat chunk clone contiguous expand expand_as flatten flip mT T
    meshgrid.list_of_tensors meshgrid.variadic_tensors movedim permute ravel repeat
    repeat_interleave reshape reshape_as roll split split.list_args split_with_sizes squeeze
    squeeze.multiple stack t tile transpose tril triu unbind unsqueeze view view_as
    __getitem__ argwhere gather index_add index_copy index_select masked_select nonzero scatter
    scatter_add scatter_reduce.sum scatter_reduce.amin scatter_reduce.amax scatter_reduce.prod
    searchsorted select take_along_dim linspace arange full eye
    constant_pad_nd nn.functional.pad.constant nn.functional.pad.reflect
    nn.functional.pad.replicate nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
    nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d
    nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d nn.functional.avg_pool1d
    nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.batch_norm
    nn.functional.bilinear nn.functional.binary_cross_entropy
    nn.functional.binary_cross_entropy_with_logits nn.functional.celu nn.functional.conv1d
    nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d
    nn.functional.conv_transpose2d nn.functional.conv_transpose3d
    nn.functional.cosine_embedding_loss nn.functional.cosine_similarity
    nn.functional.cross_entropy nn.functional.elu nn.functional.embedding nn.functional.gelu
    nn.functional.glu nn.functional.group_norm nn.functional.hardshrink nn.functional.hardsigmoid
    nn.functional.hardswish nn.functional.hardtanh nn.functional.huber_loss
    nn.functional.instance_norm nn.functional.interpolate.area nn.functional.interpolate.bicubic
    nn.functional.interpolate.bilinear nn.functional.interpolate.linear
    nn.functional.interpolate.nearest nn.functional.interpolate.trilinear nn.functional.kl_div
    nn.functional.l1_loss nn.functional.layer_norm nn.functional.leaky_relu nn.functional.linear
    nn.functional.logsigmoid nn.functional.max_pool1d nn.functional.max_pool2d
    nn.functional.max_pool3d nn.functional.mish nn.functional.mse_loss nn.functional.nll_loss
    nn.functional.normalize nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
    nn.functional.prelu nn.functional.relu nn.functional.relu6 nn.functional.rms_norm
    nn.functional.scaled_dot_product_attention nn.functional.selu nn.functional.silu
    nn.functional.smooth_l1_loss nn.functional.softmin nn.functional.softmin.with_dtype
    nn.functional.softplus nn.functional.softshrink nn.functional.softsign
    nn.functional.tanhshrink nn.functional.threshold digamma linalg.cholesky linalg.cross linalg.det
    linalg.diagonal linalg.inv linalg.matrix_norm linalg.matrix_power linalg.qr linalg.slogdet
    linalg.solve linalg.svdvals nn.functional.grid_sample nn.functional.unfold
    baddbmm cross diag diagonal fliplr flipud frac index_fill isclose kthvalue logit median
    nan_to_num nanmean nansum pinverse quantile rad2deg rot90 sgn tensor_split trace unfold xlogy
    addcdiv addcmul addmm lerp narrow unflatten nn.functional.pad.circular
    nn.functional.pad.replicate_negative nn.functional.channel_shuffle
    nn.functional.embedding_bag nn.functional.gaussian_nll_loss
    nn.functional.hinge_embedding_loss nn.functional.local_response_norm
    nn.functional.margin_ranking_loss nn.functional.multi_margin_loss
    nn.functional.multilabel_margin_loss nn.functional.multilabel_soft_margin_loss
    nn.functional.pairwise_distance nn.functional.pdist nn.functional.poisson_nll_loss
    nn.functional.rrelu nn.functional.soft_margin_loss nn.functional.triplet_margin_loss
    nn.functional.upsample_bilinear
    nn.functional.upsample_nearest
    nn.functional.max_unpool1d nn.functional.max_unpool2d nn.functional.max_unpool3d
""".split()
NEWER = """
    aminmax bucketize cdist corrcoef cov cummax cummin diag_embed diagflat dist fmax fmin heaviside
    isin linalg.cond linalg.lstsq.grad_oriented linalg.multi_dot
    linalg.norm linalg.norm.subgradients_at_zero linalg.solve_triangular
    linalg.vander logcumsumexp masked_scatter nanmedian nanquantile renorm scatter_reduce.mean sinc
    std_mean std_mean.unbiased unique var_mean var_mean.unbiased
    erfinv matrix_exp
    addbmm addmv addr diagonal_scatter float_power histc index_put index_reduce.amax
    index_reduce.amin index_reduce.mean index_reduce.prod isneginf isposinf ldexp logdet mode norm.fro norm.nuc put
    round.decimals_3 round.decimals_neg_3 select_scatter sum_to_size take
    unique_consecutive hsplit vsplit dsplit vdot cholesky frexp logaddexp2 qr isreal
""".split()
"""In a file of their own, so that the first one needs not be drawn again."""
MOST = 10
"""Calls of an op, spread over those that it has."""
LARGEST = (180, 1500)
"""Elements of a tensor; of ops that have no two calls of smaller ones."""
GRID = 2.0**-12
"""Inputs are multiples of it."""
BITS = {"first": 36, "second": 30}
"""Bits of mantissas that are kept, of values and first derivatives, and of second ones."""


class Left(Exception):
    """A call that a fixture does not hold."""


class Writer:
    """The fixture as it grows: calls as JSON, in which a tensor is
    `{"tensor": shape, "dtype": name, "grad": bool}` and its numbers come next among the floats.
    """

    def __init__(self, largest: int = LARGEST[-1]) -> None:
        self.largest = largest
        self.floats: list[np.ndarray] = []

    def tensor(self, t: torch.Tensor, bits: int = 52) -> dict[str, Any]:
        if t.numel() > self.largest or t.is_complex() or t.is_sparse:
            raise Left("large, or of another kind")
        array = t.detach().numpy(force=True)
        self.floats.append(rounded(array.astype(np.float64), bits).reshape(-1))
        return {"tensor": list(t.shape), "dtype": str(array.dtype), "grad": t.requires_grad}

    def form(self, value: Any) -> Any:
        """An argument as JSON."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, (tuple, list, torch.Size)):
            return {type(value).__name__.lower(): [self.form(v) for v in value]}
        if isinstance(value, slice):
            return {"slice": [value.start, value.stop, value.step]}
        if value is Ellipsis:
            return {"ellipsis": 0}
        if isinstance(value, dict):
            known = {k: v for k, v in value.items() if k not in ("device", "memory_format")}
            if any(value.get(k) not in (None, "cpu") for k in ("device", "memory_format")):
                raise Left("a device or an order of memory")
            return {k: self.form(v) for k, v in known.items()}
        raise Left(f"an argument of {type(value)}")


def rounded(array: np.ndarray, bits: int) -> np.ndarray:
    """Numbers with so many bits of mantissa."""
    fraction, exponent = np.frexp(array)
    return np.where(
        np.isfinite(array), np.ldexp(np.round(fraction * 2.0**bits), exponent - bits), array
    )


def weights(seed: int, shape: Any) -> np.ndarray:
    """What results and gradients are weighed with; tests draw them again."""
    return np.asarray(np.random.default_rng(seed).integers(1, 64, tuple(shape)) / 32)


def on_grid(value: Any) -> Any:
    """Arguments with fresh tensors of numbers on the grid."""
    if isinstance(value, torch.Tensor):
        t = value.detach().clone()
        if t.is_floating_point():
            t = torch.round(t / GRID) * GRID
        return t.requires_grad_(value.requires_grad)
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return type(value)(on_grid(v) for v in value)
    return {k: on_grid(v) for k, v in value.items()} if isinstance(value, dict) else value


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (tuple, list)) else []


def call(writer: Writer, op: Any, sample: Any) -> dict[str, Any]:
    """A call, its results and derivatives."""
    given = on_grid((sample.input, *sample.args)), on_grid(dict(sample.kwargs))
    said = {"args": writer.form(list(given[0])), "kwargs": writer.form(given[1])}
    results = tensors_in(sample.output_process_fn_grad(op(*given[0], **given[1])))
    said["results"] = [writer.tensor(y.detach(), BITS["first"]) for y in results]
    moved = [t for t in tensors_in(given) if t.requires_grad]
    known = [y for y in results if y.requires_grad]
    if not moved or not known:
        return said
    total = sum((y * torch.from_numpy(weights(n, y.shape))).sum() for n, y in enumerate(known))
    twice = op.supports_gradgrad
    first = torch.autograd.grad(total, moved, create_graph=twice, allow_unused=True)
    said["first"] = [None if g is None else writer.tensor(g.detach(), BITS["first"]) for g in first]
    found = [(n, g) for n, g in enumerate(first) if g is not None and g.requires_grad]
    if not twice or not found:
        return said
    total = sum((g * torch.from_numpy(weights(n + 100, g.shape))).sum() for n, g in found)
    second = torch.autograd.grad(total, moved, allow_unused=True)
    said["second"] = [
        None if g is None else writer.tensor(g.detach(), BITS["second"]) for g in second
    ]
    return said


def is_held(op: Any, sample: Any, largest: int) -> bool:
    """Whether a call is one that a fixture can hold."""
    given = tensors_in((sample.input, sample.args, sample.kwargs))
    if any(t.numel() > largest for t in given):
        return False
    try:
        call(Writer(largest), op, sample)
    except Left:
        return False
    return True


def calls_of(writer: Writer, op: Any) -> list[dict[str, Any]]:
    """Some of the calls of an op that op_db knows."""
    torch.manual_seed(zlib.crc32(op.name.encode()))
    random.seed(1)
    np.random.seed(1)
    wanted = op.supports_autograd and torch.float64 in op.dtypes
    samples = list(op.sample_inputs("cpu", torch.float64, requires_grad=wanted))
    fits: list[Any] = []
    for largest in LARGEST:
        if sum(1 for s in fits if any(t.ndim for t in tensors_in((s.input, s.args)))) < 2:
            fits = [sample for sample in samples if is_held(op, sample, largest)]
    if len(fits) > MOST:
        fits = [fits[round(n * (len(fits) - 1) / (MOST - 1))] for n in range(MOST)]
    return [call(writer, op, sample) for sample in fits]


def main(path: str, which: str = "older") -> None:
    warnings.filterwarnings("ignore")
    names, writer, known = NEWER if which == "newer" else NAMES, Writer(), {}
    for op in op_db:
        known.setdefault(op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""), op)
    index: dict[str, Any] = {"torch": torch.__version__.partition("+")[0], "names": sorted(known)}
    with sdpa_kernel(SDPBackend.MATH):  # the one that has second derivatives
        index["calls"] = {name: calls_of(writer, known[name]) for name in names}
    floats = np.concatenate(writer.floats)
    np.savez_compressed(
        path,
        index=np.frombuffer(json.dumps(index, separators=(",", ":")).encode(), np.uint8),
        floats=np.ascontiguousarray(floats.view(np.uint8).reshape(-1, 8).T),
    )
    print(
        len(names), "ops", sum(map(len, index["calls"].values())), "calls", floats.size, "numbers"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
