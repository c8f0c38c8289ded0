"""Calls of the library's public functions that launch every kernel that a GPU runs, and which
kernels no call reaches.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn, quant
from cubepy.kernels.attention.append import groups_of
from cubepy.kernels.attention.cached import cached_attention
from cubepy.kernels.attention.gradients import attention_forward, attention_gradients
from cubepy.kernels.elementwise.sequence import steps
from cubepy.kernels.fused.bundled_sums import bundled_sums
from cubepy.kernels.fused.bundles import bundled_map
from cubepy.kernels.fused.maps import fused_map, joined_map
from cubepy.kernels.indexing.counts import counted
from cubepy.kernels.indexing.embedding import rows_summed
from cubepy.kernels.indexing.search import searched
from cubepy.kernels.interpolate import grid_sample
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.primitives import updates
from cubepy.kernels.random.stateful import drawn, dropped
from cubepy.kernels.recurrent.alignments import ctc_forward, ctc_gradient
from cubepy.kernels.recurrent.recurrence import packed, recurrence, recurrence_back
from cubepy.kernels.scan.mask import positions, selected
from cubepy.kernels.windows.columns import fold, unfold
from cubepy.lang.declare import Kernel
from cubepy.quant.linear.gpu.dequantize import taken
from cubepy.quant.schemes.scheme import parse_scheme
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from cubepy.tensor import execute, record
from cubepy.tensor.fusion.optimise import optimise
from tests.kernels.entry.test_device_arrays import CALLS as DEVICE_CALLS

F16, F32, BF16, I32, I64 = np.float16, np.float32, ml_dtypes.bfloat16, np.int32, np.int64

ONLY_FOR_CPUS = {
    "movement.pad.pad_rows": "planes have pad_lines",
    "random.distributions.fill": "planes have fill_wide",
    "indexing.bounds.look": "indices on a GPU are not looked at",
    "indexing.scatter_kernels.scatter_row": "planes have scatter_elements",
    "indexing.scatter_kernels.put_lines": "planes have put_rows",
    "indexing.scatter_kernels.put_elements": "planes have put_rows",
    "movement.concat.reverse_rows": "planes have reverse_lines",
    "scan.mask.put_selected": "planes have select_tiles",
    "normalization.columns_cpu.softmax_columns": "planes turn axes",
    "normalization.norms_rows.log_softmax_rows": "planes have softmax_held",
    "normalization.norms_rows.rms_norm_rows": "planes have layer_norm_held",
}

COMPILED_ELSEWHERE = {
    "attention.sm90.flash": "attention.test_offline",
    "attention.sm90.backward": "attention.test_offline",
    "attention.sm90.backward_256": "attention.test_offline",
    "attention.sm90.backward_passes": "attention.test_offline",
    "attention.sm90.masks": "attention.test_offline",
    "attention.gpu.flash_mma": "attention.test_offline",
    "attention.gpu.flash_fragments": "attention.test_fragments_emulated",
    "attention.gpu.flash_decoding": "attention.test_offline",
    "convolution.gpu.depthwise": "convolution.test_offline",
    "convolution.gpu.depthwise_weight_gradient": "convolution.test_offline",
    "convolution.gpu.depthwise_strip": "convolution.test_offline",
    "convolution.sm90.depthwise_nhwc": "convolution.test_offline",
    "convolution.gpu.depthwise_nchw": "convolution.test_offline",
    "convolution.sm90.depthwise_weight_gradient": "convolution.test_offline",
    "convolution.sm90.implicit_gemm": "convolution.test_offline",
    "convolution.sm90.operand_layout": "convolution.test_offline",
    "convolution.sm90.split_k": "convolution.test_offline",
    "convolution.gpu.fold": "convolution.test_offline",
    "convolution.gpu.implicit_gemm": "convolution.test_mma_emulated",
    "convolution.sm90.weight_gradient": "convolution.test_offline",
    "matmul.gpu.gemv_rows": "matmul.test_offline",
    "matmul.gpu.padded_operands": "matmul.test_offline",
    "matmul.gpu.gemv": "matmul.test_offline",
    "matmul.sm90.persistent": "matmul.test_offline",
    "matmul.gpu.mma_buffered": "matmul.test_mma_buffered",
    "matmul.gpu.mma_multistage": "matmul.test_offline",
    "matmul.gpu.simt_multistage": "matmul.emulated.test_simt_multistage",
    "matmul.gpu.mma_split_k": "matmul.emulated.test_split_k",
    "matmul.gpu.mma_held": "matmul.emulated.test_held",
    "matmul.sm90.cluster_split_k": "matmul.test_tiles",
    "matmul.sm90.tma_simt": "matmul.test_tiles",
    "matmul.sm90.tma_simt_split_k": "matmul.test_tiles",
    "quant.linear.gpu.gemm_int4": "quant.test_amd_int4",
    "quant.linear.gpu.gemm_int8": "quant.test_amd_int8",
    "quant.linear.gpu.gemm_mma_int8": "quant.test_offline",
    "quant.linear.gpu.gemv": "quant.test_offline",
    "quant.linear.gpu.gemm_mma": "quant.test_offline",
    "quant.linear.sm90.gemm_wgmma": "quant.test_wgmma",
}
"""Modules whose kernels have tests of their own machine code, and where."""


def zeros(*shape: int, dtype: Any = F32) -> np.ndarray:
    return np.zeros(shape, dtype)


ROWS, LONG, TABLE = zeros(64, 512), zeros(8, 40000), zeros(64, 64, 64)
IMAGE = zeros(2, 8, 20, 24)


def each(
    function: Callable[..., Any], dtypes: tuple[Any, ...], *shape: int
) -> list[tuple[Any, tuple[Any, ...]]]:
    return [(function, (zeros(*shape, dtype=d),)) for d in dtypes]


def attention_by_matrices(q: Any, k: Any) -> None:
    out, log_sums = attention_forward(q, k, k, True)
    attention_gradients(q, q, k, k, out, log_sums, True)


def recurrent(cell: str, gates: Any, matrix: Any, h: Any) -> None:
    first = (h, h) if cell == "lstm" else (h,)
    recurrence(cell, gates, packed(matrix, cell), matrix[:, :, 0], None, None, first, False)
    if gates.dtype in (F32, np.float64) or cb.device_properties_of().plane_size > 1:
        y, ends = gates[:, :, : h.shape[2]], first
        recurrence_back(cell, gates, matrix, matrix[:, :, 0], None, first, y, (y, *ends), False)


def windows_as_columns(x: Any) -> None:
    how, counts = ((3, 2), (1, 2), (1, 0), (2, 1)), (10, 22)
    fold(unfold(x, how, counts), x.shape[2:], how, counts)


def alignments(
    log: Any, whole: Any, states: Any, totals: Any, gradient: Any, beta: Any, given: Any
) -> None:
    """Labels and what is said of sequences are the first rows of `whole`."""
    labels, sequences = whole[0], whole[1:]
    ctc_forward[2, 1](log, labels, sequences, 0, states, totals)
    ctc_gradient[2, 1](log, labels, sequences, 0, states, totals, given, beta, gradient)


def quantized(
    x: Any, scheme: str, group: int | None = None, activations: str | None = None
) -> None:
    options = {} if group is None else {"group": group}
    with cb.use("cpu"):
        model = nn.Sequential(nn.Linear(128, 40))
        found = quant.quantize(
            model, scheme, measure_speed=False, activations=activations, **options
        ).model
    found = found.to(str(x.device))
    found(cb.tensor(x))
    found.to("bf16")(cb.tensor(x))


def picked_channels(indices: Any) -> None:
    weight = QuantizedWeight.from_float(zeros(40, 128), parse_scheme("int4", group=32))
    for dtype in (F32, BF16):
        taken(weight.on(indices.device), indices, dtype)


def one_step(q: Any, k: Any, cache: Any, angles: Any, starts: Any) -> None:
    for turns in (None, angles):
        cached_attention(q, k, k, cache, cache, starts, turns, turns, (0.2, 0, 0.0))
        cached_attention(q, k, k, cache, cache, starts, turns, turns, (0.2, 70, 0.0))
    codes = device_array.empty(cache.shape, np.dtype(np.int8), cache.device)
    scales = device_array.empty((*cache.shape[:3], groups_of(cache.shape[3])), F32, cache.device)
    held = (codes, codes, starts, angles, angles)
    cached_attention(q, k, k, *held, (0.2, 0, 0.0), (scales, scales))


def sampled(ordered: bool, x: Any, grid: Any, grad: Any) -> None:
    """Images at positions, and the gradients of that."""
    how = ("linear", "reflection", False)
    with cb.config.override(deterministic=ordered):
        grid_sample.grid_sample(x, grid, *how)
        grid_sample.grid_sample_grid(x, grid, grad, *how)
        grid_sample.grid_sample_image(grad, grid, x.shape[2:], *how)


def in_order(x: Any, index: Any) -> None:
    with cb.config.override(deterministic=True):
        K.scatter(x, 0, index, 1.0, "add")


def fused_columns(x: Any) -> None:
    t = cb.tensor(x)
    with record(t) as recorder:
        y = t * 0.5 + 1
        outputs = y, y.sum(axis=0), (y * t).max(axis=0)
    execute(optimise(recorder.graph(*outputs), t.device), recorder.inputs)


def fused_rows(x: Any) -> None:
    t = cb.tensor(x)
    with record(t) as recorder:
        e = (t - t.max(axis=-1, keepdims=True)).exp()
        y = e / e.sum(axis=-1, keepdims=True)
    execute(optimise(recorder.graph(y), t.device), recorder.inputs)


@cb.func
def both_ways(a, b):
    """a + b and a - b"""
    return a + b, a - b


def adam_of_two(p: Any, numbers: Any) -> None:
    members, shapes = [[p] * 4, [p[:100]] * 4], [(4096,), (100,)]
    bundled_map(updates.adam, members, shapes, [p.dtype] * 3, (numbers,))


def sums_of_two(x: Any, number: Any) -> None:
    bundled_map(f.add, [(x, number), (x[:100], number)], [(4096,), (100,)], [x.dtype])


CALLS: dict[str, list[tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "gelu": each(K.gelu, (F32, F16, BF16), 4096),
    "add": [(lambda a, b: K.map(f.add, a, b), (ROWS, ROWS[0])), (lambda a, b: K.map(f.add, a, b), (ROWS, ROWS[:, :1]))],
    "steps": [(lambda p, n, f=f, r=r: fused_map(f, [p] * r, p.shape, [p.dtype] * (r - 1), (n,)), (zeros(4096, dtype=d), zeros(10, dtype=e)))
              for f, r in ((updates.adam, 4), (updates.rmsprop_centered_momentum, 5)) for d, e in ((F32, F32), (BF16, F32), (np.float64, np.float64))],
    "sum": [*each(lambda x: K.sum(x, 1), (F32, BF16, I32), 64, 512), *each(lambda x: K.sum(x, 0), (F32, F16), 64, 512),
            *each(K.sum, (F32,), 8, 40000)],
    "max": [*each(lambda x: K.max(x, 1), (F32, BF16), 64, 512), *each(lambda x: K.max(x, 0), (F32,), 64, 512)],
    "argmax": [*each(lambda x: K.argmax(x, 1), (F32, BF16), 64, 512), *each(lambda x: K.argmax(x, 0), (F32,), 64, 512),
               *each(K.argmax, (F32,), 8, 400000), *each(lambda x: K.argmax(x, 0), (F32,), 40000, 8)],
    "softmax": [*each(K.softmax, (F32, F16, BF16), 64, 512), *each(K.softmax, (F32, BF16), 8, 200000), *each(K.softmax, (F32,), 8, 40000),
                *each(K.softmax, (F32,), 64, 77), *each(lambda x: K.softmax(x, 0), (F32,), 64, 77)],
    "layer_norm": [*each(lambda x: K.layer_norm(x, x.shape[1]), (F32, BF16), 64, 512),
                   *each(lambda x: K.layer_norm(x, x.shape[1]), (F32,), 8, 200000),
                   *each(lambda x: K.layer_norm(x, x.shape[1]), (F32,), 8, 40000),
                   *each(lambda x: K.layer_norm(x, x.shape[1]), (np.float64,), 64, 77)],
    "log_softmax": each(K.log_softmax, (F32, BF16), 64, 512),
    "logsumexp": each(lambda x: K.logsumexp(x, 1), (F32, BF16), 64, 70000),
    "rms_norm": each(lambda x: K.rms_norm(x, 512), (F32, BF16), 64, 512),
    "group_norm": [*each(lambda x: K.group_norm(x, 4), (F32, BF16), 2, 8, 20, 24),
                   *each(lambda x: K.group_norm(x, 1), (F32,), 1, 8, 200, 200)],
    "transpose": [*each(K.transpose, (F32, BF16, np.uint8, np.float64), 256, 512), *each(K.transpose, (BF16,), 77, 79)],
    "rows_summed": [(lambda v, n: rows_summed(v, n, 64), (zeros(8, 512, dtype=d), zeros(8, dtype=i))) for i in (I32, I64) for d in (F16, BF16)],
    "embedding": [(K.embedding, (zeros(64, dtype=i), zeros(64, 512, dtype=d))) for i in (I32, I64) for d in (F32, BF16)],
    "max_pool": [(lambda x: K.max_pool2d(x, 3, 2, 1), (IMAGE,)), (lambda x: K.max_pool2d(x, 3, 1, 1), (IMAGE,)),
                 (lambda x: K.max_pool2d(x, 3, 2, 1, layout="NHWC"), (zeros(2, 20, 24, 8),)),
                 (lambda x: K.max_pool2d(x, 3, 2, 1, return_indices=True), (IMAGE,)),
                 (lambda x: K.max_pool2d_input(x.shape, *K.max_pool2d(x, 2, return_indices=True), 2), (IMAGE,)),
                 (lambda x: K.adaptive_max_pool2d(x, 7), (IMAGE,)), (lambda x: K.max_pool3d(x, 3, 1, 1), (IMAGE[None],)),
                 (lambda x: K.adaptive_max_pool2d(x, 7, layout="NHWC"), (zeros(2, 20, 24, 8),)),
                 (lambda x: K.max_pool2d(x, 5, 1, 2), (IMAGE,)),
                 (lambda x: K.max_pool2d(x, 13, 1, 6, layout="NHWC"), (zeros(2, 20, 24, 8),)),
                 (lambda x: K.max_pool2d(x, 8, 1, 4, layout="NHWC"), (zeros(2, 20, 24, 8),)),
                 (lambda x: K.max_pool2d(x, 7, 1, 3, 2), (IMAGE,)), (lambda x: K.max_pool2d(x, 14, 1, 7), (IMAGE,)),
                 (lambda x: K.max_pool2d(x, 3, 2, 1, 8), (IMAGE,)), (lambda x: K.max_pool2d(x, 60, 1, 30), (zeros(2, 64, 50),)),
                 (lambda x: K.max_pool2d(x, 3, 1, 1, 10), (zeros(2, 40, 48),)),
                 (lambda x: K.max_pool2d(x, 3, 1, 1, 15, layout="NHWC"), (zeros(2, 40, 48, 8),)),
                 (lambda x: K.max_pool2d(x, 5, 1, 2, 17), (zeros(2, 80, 96),)),
                 (lambda x: K.max_pool2d(x, 7, 1, 3), (zeros(64, 256, 256),)),
                 (lambda x: K.max_pool2d(x, 13, 1, 6, layout="NHWC"), (zeros(1, 256, 256, 64),)),
                 (lambda x: K.max_pool2d(x, 5, 2, 2, 17, layout="NHWC"), (zeros(2, 80, 96, 8),)),
                 (lambda x: K.max_pool2d(x, 3, 2, 1, 8, layout="NHWC"), (zeros(2, 20, 24, 8),)),
                 (lambda x: K.max_pool3d_input(x.shape, *K.max_pool3d(x, 2, return_indices=True), 2), (IMAGE[None],))],
    "avg_pool": [(lambda x: K.avg_pool2d(x, 3, 2, 1), (IMAGE,)), (lambda x: K.adaptive_avg_pool2d(x, 1), (IMAGE,)),
                 (lambda x: K.avg_pool2d(x, 3, 2, 1, layout="NHWC"), (zeros(2, 20, 24, 8),)),
                 (lambda g: K.avg_pool2d_input((2, 8, 20, 24), g, 2), (zeros(2, 8, 10, 12),)),
                 (lambda x: K.avg_pool2d(x, 10), (IMAGE,)), (lambda x: K.avg_pool2d(x, 10, layout="NHWC"), (zeros(2, 20, 24, 8),))],
    "interpolate": [(lambda x, m=m: K.interpolate(x, scale_factor=2.0, mode=m), (IMAGE,))
                    for m in ("nearest", "bilinear", "bicubic")]
    + [(lambda g: K.interpolate_input((2, 8, 20, 24), g, mode="bicubic"), (zeros(2, 8, 10, 12),)),
       (lambda g: K.interpolate_input((2, 8, 2, 2), g, mode="bilinear"), (zeros(2, 8, 400, 400),))],
    "columns": [(windows_as_columns, (zeros(2, 3, 20, 24, dtype=d),)) for d in (F32, BF16)],
    "masks": [(positions, (zeros(*shape, dtype=bool),)) for shape in ((100,), (9, 2000))]
    + [(lambda x: selected(x, x.view(bool)[:, 0]), (zeros(9000, 2, dtype=np.uint8),))],
    "searchsorted": [(lambda x, r=r: searched(x, x, r), (zeros(3, 100, dtype=d),)) for r in (False, True) for d in (F32, I64)],
    "bincount": [(counted, (zeros(5000, dtype=I64), zeros(n, dtype=I64))) for n in (10, 3000, 9000)],
    "grid_sample": [(partial(sampled, o), (zeros(2, 8, *(6,) * a, dtype=d), zeros(2, *(5,) * a, a, dtype=d), zeros(2, 8, *(5,) * a, dtype=d)))
                    for a, d in ((2, F32), (2, BF16), (3, np.float64)) for o in (False, True)],
    "sort": [*each(K.sort, (F32,), 64, 100), *each(K.argsort, (F32, I64), 1, 200000)],
    "topk": [*each(lambda x: K.topk(x, 8), (F32,), 64, 100), *each(lambda x: K.topk(x, 60), (F32, F16), 1, 200000)],
    "cumsum": [*each(lambda x: K.cumsum(x, 1), (F32, I32, BF16), 8, 40000), *each(lambda x: K.cumsum(x, 0), (F32,), 512, 512),
               *each(lambda x: K.cumsum(x, 1), (F32,), 8, 100, 64), *each(lambda x: K.cumprod(x, 0), (BF16,), 40000, 8),
               *each(lambda x: K.cumsum(x, 0), (F32,), 1 << 15, 64)],
    "gather": [(lambda x, i: K.gather(x, 0, i), (zeros(64, 512, dtype=d), zeros(64, 512, dtype=i)))
               for i in (I32, I64) for d in (F32, BF16, np.uint8)],
    "gather_rows": [(lambda x, i: K.gather(x, 1, i), (zeros(m, 256), zeros(m, 128, dtype=i)))
                    for m in (4, 300) for i in (I32, I64)],
    "scatter_rows": [(lambda x, i, s, r=r: K.scatter(x, 1, i, s, r), (zeros(300, 256), zeros(300, 128, dtype=I64), zeros(300, 128)))
                     for r in ("assign", "add", "mul")],
    "pad_long": each(lambda x: K.pad(x, (1, 2)), (F32,), 4, 5000),
    "select": [(lambda x, i, a=a: K.select(x, a, i), (TABLE, zeros(100, dtype=i))) for i in (I32, I64) for a in range(3)],
    "scatter": [(lambda x, i, s, a=a, r=r: K.scatter(x, a, i, s, r), (ROWS, zeros(64, 512, dtype=I64), ROWS))
                for r in ("assign", "add", "mul", "max") for a in (0, 1)],
    "scatter_in_order": [(in_order, (ROWS, zeros(64, 512, dtype=I64)))],
    "concat": [(lambda a, b: K.concat([a, b], 1), (zeros(64, 512, dtype=d), zeros(64, 77, dtype=d))) for d in (F32, BF16)],
    "flip": each(lambda x: K.flip(x, (0, 1)), (F32, BF16), 64, 512),
    "pad": [(lambda x, m=m: K.pad(x, (1, 2, 3, 1), m), (IMAGE,)) for m in ("constant", "reflect", "replicate")],
    "statistics": [*each(lambda x: K.var(x, 1), (F32, BF16), 64, 512), *each(K.norm, (F32,), 8, 40000),
                   *each(lambda x: K.logsumexp(x, 1), (F32,), 64, 512)],
    "states": [
        *((lambda s, d=d: drawn(s, (1000,), "normal", 0.0, 1.0, d), (zeros(3, dtype=np.uint64),)) for d in (F32, np.float64)),
        (lambda s: drawn(s, (1000,), "integers", 0, 9, I64), (zeros(3, dtype=np.uint64),)),
        *((lambda x, s: dropped(x, s, 0.5), (zeros(1000, dtype=d), zeros(3, dtype=np.uint64))) for d in (F32, BF16)),
    ],
    "sequences": [(lambda d=d: steps(0, 1, 1000, d), ()) for d in (F32, BF16, I64)],
    "random": [(lambda d=d: K.normal(size=1000, dtype=d), ()) for d in (cb.f32, cb.bf16)]
              + [(lambda: K.uniform(size=1000), ()), (lambda: K.randint(7, size=1000), ())],
    "conv": [(lambda x, w, g=g: K.conv2d(x, w, groups=g), (zeros(2, 8, 20, 24, dtype=d), zeros(16, 8 // g, 3, 3, dtype=d)))
             for d in (F32, BF16) for g in (1, 8)],
    "conv_gradients": [(lambda x, g: K.conv_weight(x, (16, 8, 3, 3), g), (IMAGE, zeros(2, 16, 18, 22))),
                       (lambda w, g: K.conv_input((2, 8, 20, 24), w, g), (zeros(16, 8, 3, 3), zeros(2, 16, 18, 22)))],
    "attention_gradient": [(attention_by_matrices, tuple(zeros(1, 2, 70, 33, dtype=d) for _ in range(2)))
                           for d in (F32, BF16)]
                          + [(attention_by_matrices, (zeros(1, 2, 70, 600), zeros(1, 2, 70, 600)))],
    "cached_attention": [(one_step, (zeros(2, 4, n, 64, dtype=d), zeros(2, 2, n, 64, dtype=d), zeros(2, 2, 4096, 64, dtype=d),
                                     zeros(2, n, 16), zeros(2, dtype=I64))) for n in (1, 3) for d in (F32, BF16)],
    "picked_channels": [(picked_channels, (zeros(5, dtype=I64),))],
    "quantized": [(lambda x, o=o: quantized(x, *o), (zeros(m, 128, dtype=d),)) for m in (1, 130) for d in (F32, BF16)
                  for o in (("int8",), ("int4",), ("int4", 16), ("int8", None, "float"), ("int4", 32, "float"))],
    "fused_map": [(lambda a, b: fused_map(both_ways, (a, b), a.shape, (F32, F16)), (ROWS, ROWS[:, :1])),
                  (lambda a, b: fused_map(both_ways, (a, b), a.shape, (F32, F32)), (ROWS, ROWS))],
    "bundled_map": [(adam_of_two, (zeros(4096), zeros(10))), (sums_of_two, (zeros(4096), zeros(1)))],
    "joined_map": [(lambda a, b: joined_map(both_ways, (a, b), a.shape, (F32, F32), (1, 0), 1),
                    (ROWS, ROWS))],
    "bundled_sums": [(lambda *xs: bundled_sums(xs), (zeros(64, n, dtype=d),) * 2) for d in (F32, BF16) for n in (512, 130)],
    "fused_columns": each(fused_columns, (F32, BF16), 64, 512)
                     + each(fused_columns, (F32,), 2000, 9),
    "fused_rows": each(fused_rows, (F32, BF16), 64, 512),
    "recurrence": [(partial(recurrent, cell), (zeros(3, n, g * w, dtype=d), zeros(1, g * w, w, dtype=d), zeros(1, n, w, dtype=d)))
                   for cell, g in (("lstm", 4), ("gru", 3), ("tanh", 1)) for d in (F32, F16, np.float64)
                   for n, w in ((2, 40), (2, 20), (2000, 40))],
    "alignments": [(alignments, (zeros(5, 2, 7, dtype=d), zeros(4, 2, dtype=np.int64), zeros(5, 2, 5, dtype=d), zeros(2, dtype=d),
                                 zeros(5, 2, 7, dtype=d), zeros(2, 5, dtype=d), zeros(2, dtype=d))) for d in (F32, np.float64)],
    "device_calls": [(function, arrays) for function, arrays in DEVICE_CALLS.values()],
}  # fmt: skip


ON_THE_STACK = {"attention.flash_lines.attend"}
"""Written for one unit of a CPU, with its arrays on the stack: right on a GPU, slow, and only for
heads so wide that planes have no kernel for them.
"""


def name_of(kernel: Any) -> str:
    module = kernel.__module__.removeprefix("cubepy.").removeprefix("kernels.")
    return f"{module}.{kernel.__name__}"


def for_cpus(name: str) -> bool:
    """Whether a kernel stands where the CPU's kernels stand: in a folder `cpu`, or a file `*_cpu`."""
    return any(part.removesuffix("_kernels").endswith("cpu") for part in name.split(".")[:-1])


def elsewhere(name: str) -> bool:
    """Whether a kernel's module has tests of its own machine code."""
    return name.rpartition(".")[0] in COMPILED_ELSEWHERE


def run(name: str) -> None:
    """Make the calls of this name on the current device."""
    here = devices.current()
    for function, arrays in CALLS[name]:
        function(*(device_array.upload(np.ascontiguousarray(a), here) for a in arrays))


def every_kernel() -> dict[str, Kernel]:
    """The kernels of the library, by module and name."""
    found = {}
    for package in (K, quant):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            mine = [
                v
                for v in vars(module).values()
                if isinstance(v, Kernel) and v.__module__ == info.name
            ]
            found |= {name_of(kernel): kernel for kernel in mine}
    return found
