"""What torch's ops are called here: of the arguments of torch, our call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy.tensor as xp
import cubepy.tensor.linalg as la
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, apply, as_tensor

Function = Callable[..., Any]


def method(name: str) -> Function:
    return lambda x, *args, **kwargs: getattr(as_tensor(x), name)(*args, **kwargs)


def operator(op: str, turned: bool = False) -> Function:
    return lambda a, b: apply(op, as_tensor(b), a) if turned else apply(op, a, as_tensor(b))


def reduction(name: str, with_indices: bool = False) -> Function:
    """torch's reductions know `dim`, several of them, and `keepdim`."""

    def call(x: Tensor, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
        axis = tuple(dim) if isinstance(dim, list) else dim
        axis = None if axis == () else axis
        made = getattr(x, name)(axis=axis, keepdims=keepdim, **more)
        if not with_indices:
            return made
        return made, getattr(x, f"arg{name}")(axis=axis, keepdims=keepdim)

    return call


def spread(name: str) -> Function:
    def call(
        x: Tensor, dim: Any = None, unbiased: Any = True, keepdim: bool = False, correction: Any = 1
    ) -> Tensor:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        axis = tuple(dim) if isinstance(dim, list) else dim
        ours = (1 if correction is None else correction) if unbiased else 0
        return getattr(x, name)(  # type: ignore[no-any-return]
            axis=None if axis == () else axis, keepdims=keepdim, correction=ours
        )

    return call


def matrix_norm(
    x: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, dtype: Any = None
) -> Tensor:
    ends = (-2, -1)
    made = la.matrix_norm(x.movedim(tuple(dim), ends), ord=ord, keepdims=keepdim)
    return made.movedim(ends, tuple(dim)) if keepdim else made


def solve(a: Tensor, b: Tensor, left: bool = True) -> Tensor:
    """torch takes batches of vectors for such."""
    if not left:
        return la.solve(a.mT, b.mT).mT
    if b.ndim > 1 and b.shape == a.shape[:-1]:
        return la.solve(a, b.unsqueeze(-1)).squeeze(-1)
    return la.solve(a, b)


def of_dtype(function: Function) -> Function:
    def call(x: Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
        return function(x if dtype is None else x.astype(dtype), *args, **kwargs)

    return call


def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, alpha: float = 1) -> Tensor:
    return x.index_add(dim, index, source * alpha)


def pooled(name: str) -> Function:
    """Windows of one image, which torch takes without the axis of the batch, too."""
    axes = int(name[-2])

    def call(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        function = getattr(F, name)
        args = tuple(
            None if isinstance(a, tuple) and not a else a for a in args
        )  # the stride is the window's
        if x.ndim == axes + 2:
            return function(x, *args, **kwargs)
        made = function(x.unsqueeze(0), *args, **kwargs)
        if isinstance(made, (tuple, list)):
            return tuple(one.squeeze(0) for one in made)
        return made.squeeze(0)

    return call


def instance_norm(
    x: Tensor,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    assert use_input_stats
    return F.instance_norm(x, weight=weight, bias=bias, eps=eps)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def searchsorted(
    x: Tensor,
    values: Any,
    out_int32: bool = False,
    right: bool = False,
    side: Any = None,
    sorter: Any = None,
) -> Tensor:
    found = side or ("right" if right else "left")
    made = xp.searchsorted(x, values, side=found, sorter=sorter)
    return made.astype("i32") if out_int32 else made


def taken_along(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    return x.take_along_dim(indices, dim)


def named(torch: str, ours: Function) -> dict[str, Function]:
    return dict.fromkeys(torch.split(), ours)


CALLS: dict[str, Function] = {
    **{
        n: method(n.partition(".")[0])
        for n in """abs acos acosh asin asinh atan atanh ceil clamp clone contiguous cos
        cosh cumprod erf erfc erfinv exp exp2 expand expm1 flatten floor gather index_copy index_select
        digamma isfinite isinf isnan lgamma log log10 log1p log2 masked_fill masked_select matrix_exp movedim
        norm permute reciprocal repeat reshape roll round rsqrt sigmoid sign signbit sin sinh split
        sqrt square squeeze tan tanh tile transpose tril triu trunc unbind unsqueeze view chunk
        addcdiv addcmul addmm amax amin lerp narrow unflatten add baddbmm broadcast_to clamp_max
        clamp_min cross deg2rad diag diagonal diff fliplr flipud floor_divide frac index_fill
        isclose kthvalue logical_xor logit median mul nan_to_num nanmean nansum pinverse positive
        quantile rad2deg ravel reshape_as rot90 select sgn sub tensor_split trace true_divide
        unfold view_as where xlogy
        aminmax bucketize cdist corrcoef cov cummax cummin diag_embed diagflat dist fmax fmin
        heaviside isin logcumsumexp masked_scatter nanmedian nanquantile renorm sinc std_mean
        std_mean.unbiased unique var_mean var_mean.unbiased
        addbmm addmv addr diagonal_scatter dsplit float_power histc hsplit index_put isneginf
        isposinf ldexp logdet mode put select_scatter sum_to_size take
        unique_consecutive vdot vsplit cholesky frexp logaddexp2 qr isreal
        """.split()
    },
    **{
        n: operator(op)
        for n, op in {
            "atan2": "atan2",
            "copysign": "copysign",
            "eq": "eq",
            "fmod": "fmod",
            "ge": "ge",
            "gt": "gt",
            "hypot": "hypot",
            "le": "le",
            "logaddexp": "logaddexp",
            "lt": "lt",
            "max.binary": "maximum",
            "maximum": "maximum",
            "min.binary": "minimum",
            "minimum": "minimum",
            "ne": "ne",
            "nextafter": "nextafter",
            "pow": "pow",
            "remainder": "mod",
        }.items()
    },
    "rsub": lambda x, y, alpha=1: y - x * alpha,
    "flip": lambda x, dims: x.flip(*dims),
    "neg": lambda x: -x,
    **named("div.no_rounding_mode div.floor_rounding div.trunc_rounding", method("div")),
    **named("logical_and", xp.logical_and),
    **named("logical_or", xp.logical_or),
    "logical_not": xp.logical_not,
    "__radd__": lambda x, y: y + x,
    "__rdiv__": lambda x, y: y / x,
    "__rmatmul__": lambda x, y: y @ x,
    "__rmod__": lambda x, y: y % x,
    "__rmul__": lambda x, y: y * x,
    "__rpow__": lambda x, y: y**x,
    "__rsub__": lambda x, y: y - x,
    **{n: reduction(n) for n in "all any argmax argmin mean logsumexp sum".split()},
    "prod": reduction("prod"),
    "count_nonzero": lambda x, dim=None: xp.count_nonzero(
        x, axis=tuple(dim) if isinstance(dim, list) else dim
    ),
    **{
        f"{n}.reduction_{how}": reduction(n, how == "with_dim")
        for n in ("max", "min")
        for how in ("no_dim", "with_dim")
    },
    **named("std std.unbiased", spread("std")),
    **named("var var.unbiased", spread("var")),
    "cumsum": method("cumsum"),
    **named("log_softmax log_softmax.with_dtype", of_dtype(F.log_softmax)),
    **named("softmax softmax.with_dtype", of_dtype(F.softmax)),
    **named("nn.functional.softmin nn.functional.softmin.with_dtype", of_dtype(F.softmin)),
    **named("norm.fro norm.inf norm.nuc", method("norm")),
    **{f"index_reduce.{n}": method("index_reduce") for n in "amax amin mean prod".split()},
    **named("round.decimals_3 round.decimals_neg_3", method("round")),
    "linalg.vector_norm": lambda x, ord=2, dim=None, keepdim=False, dtype=None: x.norm(
        ord, tuple(dim) if isinstance(dim, list) else dim, keepdim
    ),
    "topk": lambda x, k, dim=-1, largest=True, sorted=True: x.topk(k, dim, largest),
    "argsort": lambda x, dim=-1, descending=False, stable=True: x.argsort(dim, descending),
    "sort": lambda x, dim=-1, descending=False, stable=True: x.sort(dim, descending),
    "msort": lambda x: x.sort(0)[0],
    **named("bmm dot matmul mm mv", product),
    "einsum": lambda xs, text: xp.einsum(text, *xs),
    "inner": lambda a, b: a @ b.T if a.ndim and b.ndim else a * b,
    "outer": lambda a, b: xp.einsum("i,j->ij", a, b),
    "linalg.cholesky": lambda x, upper=False: la.cholesky(x, upper=upper),
    "linalg.cross": lambda a, b, dim=-1: la.cross(a, b, axis=dim),
    "linalg.diagonal": lambda x, offset=0, dim1=-2, dim2=-1: la.diagonal(
        x.movedim((dim1, dim2), (-2, -1)), offset=offset
    ),
    "linalg.matrix_norm": matrix_norm,
    "linalg.solve": solve,
    "linalg.qr": lambda x, mode="reduced": la.qr(x, mode=mode),
    **{
        f"linalg.{n}": getattr(la, n)
        for n in """cond det inv matrix_power multi_dot norm slogdet solve_triangular
        svdvals vander""".split()
    },
    "linalg.norm.subgradients_at_zero": la.norm,
    "linalg.lstsq.grad_oriented": lambda a, b, driver: tuple(la.lstsq(a, b)),
    "linalg.vecdot": lambda a, b, dim=-1: xp.vecdot(a, b, axis=dim),
    "tensordot": lambda a, b, dims=2: xp.tensordot(
        a, b, axes=dims if isinstance(dims, int) else tuple(map(tuple, dims))
    ),
    "broadcast_tensors": lambda *xs: xp.broadcast_arrays(*xs),
    "cat": lambda xs, dim=0: xp.concat(xs, axis=dim),
    "stack": lambda xs, dim=0: xp.stack(xs, axis=dim),
    "expand_as": lambda x, y: x.expand(y.shape),
    "mT": lambda x: x.mT,
    "T": lambda x: x.T,
    "t": lambda x: x.T,
    "meshgrid.list_of_tensors": lambda xs, indexing: xp.meshgrid(*xs, indexing=indexing),
    "meshgrid.variadic_tensors": lambda *xs, indexing: xp.meshgrid(*xs, indexing=indexing),
    "repeat_interleave": method("repeat_interleave"),
    **named("split.list_args split_with_sizes", method("split")),
    "squeeze.multiple": method("squeeze"),
    "__getitem__": lambda x, index: x[index],
    "argwhere": lambda x: x.nonzero(),
    "nonzero": method("nonzero"),
    "index_add": index_add,
    "scatter": method("scatter"),
    "scatter_add": method("scatter_add"),
    **{f"scatter_reduce.{n}": method("scatter_reduce") for n in "sum amin amax prod mean".split()},
    "searchsorted": searchsorted,
    "take_along_dim": taken_along,
    "linspace": lambda start, end, steps, dtype="f32": xp.linspace(start, end, steps, dtype=dtype),
    "arange": lambda *ends, dtype=None: xp.arange(*ends, dtype=dtype),
    "full": lambda shape, value, dtype: xp.full(tuple(shape), value, dtype=dtype),
    "eye": lambda *sizes, dtype, requires_grad: xp.eye(*sizes, dtype=dtype),
    "constant_pad_nd": lambda x, pad, value=0: F.pad(x, pad, "constant", value),
    **{
        f"nn.functional.pad.{n}": F.pad
        for n in "circular constant reflect replicate replicate_negative".split()
    },
    **{
        f"nn.functional.{n}": pooled(n)
        for n in """adaptive_avg_pool1d adaptive_avg_pool2d
        adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d
        avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d conv1d conv2d conv3d
        conv_transpose1d conv_transpose2d conv_transpose3d""".split()
    },
    **{
        f"nn.functional.{n}": getattr(F, n)
        for n in """binary_cross_entropy
        binary_cross_entropy_with_logits celu cosine_embedding_loss cosine_similarity cross_entropy
        elu gelu glu group_norm hardshrink hardsigmoid hardswish hardtanh huber_loss kl_div l1_loss
        layer_norm leaky_relu linear logsigmoid mish mse_loss nll_loss normalize pixel_shuffle
        pixel_unshuffle prelu relu relu6 scaled_dot_product_attention selu silu smooth_l1_loss
        softplus softshrink softsign tanhshrink threshold grid_sample unfold batch_norm bilinear
        channel_shuffle gaussian_nll_loss hinge_embedding_loss local_response_norm
        margin_ranking_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss
        pairwise_distance pdist poisson_nll_loss rms_norm rrelu soft_margin_loss
        triplet_margin_loss upsample_bilinear
        upsample_nearest max_unpool1d max_unpool2d max_unpool3d""".split()
    },
    "nn.functional.embedding": lambda table, index, **how: F.embedding(
        index, table, how.get("padding_idx")
    ),
    "nn.functional.embedding_bag": lambda table, index, **how: F.embedding_bag(index, table, **how),
    "nn.functional.instance_norm": instance_norm,
    **{
        f"nn.functional.interpolate.{n}": F.interpolate
        for n in "area bicubic bilinear linear nearest trilinear".split()
    },
}
"""By the name in torch's op_db, with its variant."""

_INTEGERS = "of integers, which op_db's samples in f64 are not"
_RANDOM = "random numbers, of which torch draws others"
_MADE = "gives a tensor of no numbers, or of one"
_COMPLEX = "of complex numbers"
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(
        """__rand__ __ror__ __rxor__ bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift
        bitwise_xor nn.functional.one_hot""".split(),
        _INTEGERS,
    ),
    **dict.fromkeys(
        """bernoulli multinomial nn.functional.alpha_dropout nn.functional.dropout
        nn.functional.dropout2d
        nn.functional.dropout3d nn.functional.feature_alpha_dropout.with_train
        nn.functional.feature_alpha_dropout.without_train nn.functional.fractional_max_pool2d
        nn.functional.fractional_max_pool3d normal normal.in_place normal.number_mean randint
        uniform""".split(),
        _RANDOM,
    ),
    **dict.fromkeys(
        """linalg.cholesky_ex linalg.eig linalg.eigvals linalg.householder_product
        linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lu
        linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
        linalg.solve_ex linalg.tensorinv linalg.tensorsolve""".split(),
        "not in the array API",
    ),
    **dict.fromkeys(
        "linalg.eigh linalg.eigvalsh".split(),
        "one triangle is read in torch, the mean of both here",
    ),
    "linalg.matrix_rank": "bounds for each matrix, and absolute ones",
    "linalg.pinv": "bounds for each matrix, and absolute ones",
    "linalg.svd": "compared by test_linalg.py: samples are functions of signs",
    **dict.fromkeys(
        "linalg.matrix_rank.hermitian linalg.pinv.hermitian linalg.pinv.singular".split(),
        "the same function, of matrices of a kind",
    ),
    **dict.fromkeys(
        """allclose empty empty_like full_like new_empty new_full new_ones new_zeros ones ones_like
        zero_ zeros zeros_like""".split(),
        _MADE,
    ),
    **dict.fromkeys("bincount bitwise_not gcd lcm".split(), _INTEGERS),
    **dict.fromkeys("conj imag real nn.functional.silu.complex".split(), _COMPLEX),
    **dict.fromkeys(
        "bfloat16 bool byte char double float half int long short".split(),
        "conversions, whose samples are orders of memory",
    ),
    "addmm.decomposed": "the same calls again",
    "bmm.triton_optimized": "the same calls again",
    "equal": "gives a boolean; compared by test_bits.py",
    "item": "gives a number",
    "kron": "its samples are large; compared by test_order_and_sets.py",
    "linalg.lstsq": "the same calls again, with what it gives besides",
    "svd": "compared by test_bits.py: samples are functions of signs",
    "slice_scatter": "its samples are large; compared by test_bits.py",
    "linspace.tensor_overload": "ends that are tensors are not taken",
    "nn.functional.batch_norm.without_cudnn": "the same calls again",
    "nn.functional.ctc_loss": "torch's gradient is that by what log_softmax took; see "
    "test_alignments.py",
    "nn.functional.interpolate.nearest-exact": "compared by tests/kernels/interpolate/test_antialias.py",
    "nn.functional.multi_head_attention_forward": "compared by tests/nn/modules/test_attention.py",
    **dict.fromkeys(
        [f"nn.functional.max_unpool{n}d.grad" for n in (1, 2, 3)], "the same calls again"
    ),
    "nn.functional.triplet_margin_with_distance_loss": "samples are functions; see test_margins.py",
    "round.decimals_0": "the same calls again",
    "to": "conversions, whose samples are devices and orders of memory",
}
"""Names of op_db that we have and that are not compared, and why."""
