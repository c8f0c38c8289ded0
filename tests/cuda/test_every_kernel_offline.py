"""Every kernel that the library launches on a GPU compiles for NVIDIA GPUs and spills nothing; no GPU is needed.

Public functions run on devices that keep the code of what is launched on them. A new kernel that no call here reaches
fails the last test: add a call, or name the kernel below with the reason why no GPU runs it.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn, quant
from cubepy.kernels import functions as f
from cubepy.kernels.attention_gradient import attention_forward, attention_gradients
from cubepy.lang.declare import Kernel
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from tests.kernels.test_device_arrays import CALLS as DEVICE_CALLS

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.codegen.disassemble import tool, usage
from cubepy.errors import BackendCompileError
from tests.cuda.recording import recording
from tests.cuda.test_library_offline import WIDE
from tests.cuda.thorough import ARCHITECTURES, THOROUGH

F16, F32, BF16, I32, I64 = np.float16, np.float32, ml_dtypes.bfloat16, np.int32, np.int64

ONLY_FOR_CPUS = {
    "gather.gather_lines": "planes have gather_lines_wide", "gather.gather_columns": "planes have gather_columns_wide",
    "gather.gather_elements": "planes have gather_lines_wide", "pad.pad_rows": "planes have pad_lines", "random.fill": "planes have fill_wide",
    "indices.look": "indices on a GPU are not looked at", "scatter.scatter_row": "planes have scatter_elements",
    "scatter.put_lines": "planes have put_rows", "scatter.put_elements": "planes have put_rows",
    "convolution_turn.pack_filters": "convolutions of a GPU are products of matrices",
    "convolution_block.convolve": "convolutions of a GPU are products of matrices",
    "convolution_turn.pack_turned": "convolutions of a GPU are products of matrices",
    "convolution_phases.convolve_phases": "convolutions of a GPU are products of matrices",
    "convolution_weight.sum_places": "convolutions of a GPU are products of matrices",
    "convolution_weight.fold_sums": "convolutions of a GPU are products of matrices",
    "convolution_channels.sum_channels": "convolutions of a GPU are products of matrices",
    "convolution_channels.channel_phases": "convolutions of a GPU are products of matrices",
    "convolution_channels.channel_rows": "convolutions of a GPU are products of matrices",
    "convolution_depthwise.depthwise": "convolutions of a GPU are products of matrices",
    "convolution_grouped.convolve_rows": "convolutions of a GPU are products of matrices",
    "convolution_planes.depthwise_planes": "convolutions of a GPU are products of matrices",
    "convolution_pointwise.convolve_points": "convolutions of a GPU are products of matrices",
    "attention_few.attend": "a GPU does strips of queries",
    "attention_gradient_lines.attend_back": "planes have score_gradients",
    "attention_gradient_lines.line_dots": "planes have row_dots",
    "concat.reverse_rows": "planes have reverse_lines", "elementwise.map_flat": "planes have map_lines",
    "elementwise.map_past": "planes have map_lines", "elementwise.map_rows": "planes have map_rows_wide",
    "matmul_kernels.pack_columns": "a GPU packs nothing", "matmul_kernels.pack_rows": "a GPU packs nothing",
    "matmul_cube.block_product": "planes have matmul_simt", "matmul_gathered.gathered_product": "planes have matmul_simt",
    "matmul_words.pack_words": "a GPU packs nothing",
    "matmul_words.lay_rows": "a GPU packs nothing", "matmul_words.split_words": "a GPU packs nothing",
    "matmul_split.add_parts": "planes share K in matmul_fma_planes and matmul_thin", "pool_strips.max_strips": "planes have pool_last",
    "matmul_plain.row_product": "planes have matmul_simt", "matmul_skinny.dot_rows": "planes have matmul_few",
    "matmul_skinny.sum_rows": "planes have matmul_simt", "matmul_apart.sum_apart": "planes have matmul_simt",
    "gather.select_slices": "planes have select_rows",
    "movement_tiles.transpose_tiles": "planes have transpose_shared",
    "movement_tiles.weave": "planes have transpose_shared",
    "normalise.softmax_rows": "planes have softmax_held", "normalise.softmax_past": "planes have softmax_held",
    "normalise.layer_norm_rows": "planes have layer_norm_held",
    "norms.log_softmax_rows": "planes have softmax_held", "norms.rms_norm_rows": "planes have layer_norm_held",
    "radix.count_digits": "planes have count_all_digits", "radix.move_keys": "planes have sweep",
    "radix.sort_rows": "planes have sort_rows_by_planes", "radix.sort_short_rows": "planes have sort_rows_by_planes",
    "radix.top_rows": "planes have top_of_pieces", "radix.top_few": "planes have top_of_pieces",
    "statistics_lines.statistic_of_rows": "planes have row_statistic",
    "statistics_lines.statistic_of_columns": "planes have row_statistic",
    "statistics_lines.join_pieces": "planes have row_statistic",
    "statistics_lines.truth_of_rows": "planes have reduce_rows_wide",
    "reduce_lines.reduce_rows": "planes have reduce_rows_wide", "reduce_lines.reduce_columns": "planes have reduce_columns_wide",
    "reduce_places.arg_rows": "planes have arg_rows_wide", "reduce_places.arg_columns": "planes have arg_columns_wide",
    "reduce_places.arg_pieces": "planes have arg_rows_wide", "reduce_places.arg_short_rows": "planes have arg_rows_wide",
    "reduce_places.arg_columns_join": "planes have arg_columns_wide", "scan.scan_rows": "planes have scan_held",
    "sort_lines.sort_whole_rows": "planes have sort_rows_by_planes", "sort_lines.sort_places": "planes have sort_rows_by_planes",
    "sort_quick.quicksort_runs": "planes have sweep", "topk_quick.top_by_parts": "planes have top_of_pieces",
    "sort_runs.sort_runs": "planes have sweep", "sort_runs.merge_runs": "planes have sweep",
    "band_lines.band_pixels": "planes have resample_planes", "band_lines.band_planes": "planes have resample_planes",
    "band_direct.band_places": "planes have resample_planes", "band_picks.pick_pixels": "planes have resample_planes",
    "band_picks.pick_planes": "planes have resample_planes", "pool_chosen.add_windows": "planes have pool_places_planes",
    "pool_arguments.add_chosen": "planes have pool_places_planes",
    "pool_arguments.add_chosen_planes": "planes have pool_places_planes",
    "pool_arguments.largest_pixels": "planes have pool_places_planes",
    "pool_arguments.largest_planes": "planes have pool_places_planes",
    **dict.fromkeys(
        (f"sort_buckets.{name}" for name in (
            "count_bins", "count_buckets", "fill_bins", "fill_equal", "join_bins", "key_ends", "move_to_buckets",
            "sort_each_bucket",
        )), "planes have sweep",
    ),
    "linear_kernels.quantize_rows": "planes have quantize_rows_for_planes",
    "linear_kernels.int8_product": "planes have plane_product_bytes",
    "linear_kernels.int4_product": "planes have plane_product",
}  # fmt: skip

COMPILED_ELSEWHERE = {
    "attention_hopper": "test_attention_offline", "attention_hopper_backward": "test_attention_offline",
    "attention_hopper_backward_wide": "test_attention_offline",
    "attention_hopper_masks": "test_attention_offline", "attention_planes": "test_attention_offline",
    "attention_split": "test_attention_offline",
    "convolution_channelwise": "test_convolution_offline", "convolution_channelwise_boxes": "test_convolution_offline",
    "convolution_channelwise_planes": "test_convolution_offline",
    "convolution_channelwise_weight": "test_convolution_offline", "convolution_hopper": "test_convolution_offline",
    "convolution_layout": "test_convolution_offline", "convolution_ranges": "test_convolution_offline",
    "convolution_weight_hopper": "test_convolution_offline",
    "matmul_across": "test_matmul_offline", "matmul_padded": "test_matmul_offline", "matmul_few": "test_matmul_offline", "matmul_hopper": "test_matmul_offline",
    "matmul_mma": "test_matmul_offline", "matmul_thin": "test_matmul_tiles", "matmul_fma": "test_matmul_tiles",
    "matmul_fma_planes": "test_matmul_tiles",
    "linear_gpu_dynamic": "test_quant_offline", "linear_gpu_few": "test_quant_offline",
    "linear_gpu_kernels": "test_quant_offline",
    "linear_gpu_wide": "test_quant_wide",
}  # fmt: skip
"""Modules whose kernels have tests of their own machine code."""


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


def in_order(x: Any, index: Any) -> None:
    with cb.config.override(deterministic=True):
        K.scatter(x, 0, index, 1.0, "add")


CALLS: dict[str, list[tuple[Callable[..., Any], tuple[Any, ...]]]] = {
    "gelu": each(K.gelu, (F32, F16, BF16), 4096),
    "add": [(lambda a, b: K.map(f.add, a, b), (ROWS, ROWS[0])), (lambda a, b: K.map(f.add, a, b), (ROWS, ROWS[:, :1]))],
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
    "rms_norm": each(lambda x: K.rms_norm(x, 512), (F32, BF16), 64, 512),
    "group_norm": [*each(lambda x: K.group_norm(x, 4), (F32, BF16), 2, 8, 20, 24),
                   *each(lambda x: K.group_norm(x, 1), (F32,), 1, 8, 200, 200)],
    "transpose": [*each(K.transpose, (F32, BF16, np.uint8, np.float64), 256, 512), *each(K.transpose, (BF16,), 77, 79)],
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
    "random": [(lambda d=d: K.normal(size=1000, dtype=d), ()) for d in (cb.f32, cb.bf16)]
              + [(lambda: K.uniform(size=1000), ()), (lambda: K.randint(7, size=1000), ())],
    "conv": [(lambda x, w, g=g: K.conv2d(x, w, groups=g), (zeros(2, 8, 20, 24, dtype=d), zeros(16, 8 // g, 3, 3, dtype=d)))
             for d in (F32, BF16) for g in (1, 8)],
    "conv_gradients": [(lambda x, g: K.conv_weight(x, (16, 8, 3, 3), g), (IMAGE, zeros(2, 16, 18, 22))),
                       (lambda w, g: K.conv_input((2, 8, 20, 24), w, g), (zeros(16, 8, 3, 3), zeros(2, 16, 18, 22)))],
    "attention_gradient": [(attention_by_matrices, tuple(zeros(1, 2, 70, 33, dtype=d) for _ in range(2)))
                           for d in (F32, BF16)]
                          + [(attention_by_matrices, (zeros(1, 2, 70, 600), zeros(1, 2, 70, 600)))],
    "quantized": [(lambda x, o=o: quantized(x, *o), (zeros(m, 128, dtype=d),)) for m in (1, 130) for d in (F32, BF16)
                  for o in (("int8",), ("int4",), ("int4", 16), ("int8", None, "float"), ("int4", 32, "float"))],
    "device_calls": [(function, arrays) for function, arrays in DEVICE_CALLS.values()],
}  # fmt: skip


def name_of(kernel: Any) -> str:
    return f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"


@cache
def launched(name: str, architecture: str) -> dict[str, tuple[str, Any]]:
    """The code of what a call launches: kernel and code, by the code's key."""
    with recording(architecture) as launches:
        here = devices.current()
        for function, arrays in CALLS[name]:
            function(*(device_array.upload(np.ascontiguousarray(a), here) for a in arrays))
    return {code.key: (name_of(kernel), code) for kernel, code in launches}


def has_disassembler() -> bool:
    try:
        tool()
    except BackendCompileError:
        return False
    return True


ON_THE_STACK = {"attention_lines.attend"}
"""Written for one unit of a CPU, with its arrays on the stack: right on a GPU, slow, and only for heads so wide that
planes have no kernel for them."""

CHECKED = {name_of(call[0]) for *_, call in WIDE.values()}
"""Keys of code that was read, and kernels: calls share much of theirs, and one kind of each kernel is enough where not
everything is compiled. Those of `WIDE` have tests of their own machine code."""


@pytest.mark.skipif(not has_disassembler(), reason="reading machine code needs cuobjdump")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CALLS)
def test_nothing_spills(name: str, architecture: str) -> None:
    spilled = {}
    for key, (kernel, code) in launched(name, architecture).items():
        seen = (
            key in CHECKED
            if THOROUGH
            else kernel in CHECKED or kernel.partition(".")[0] in COMPILED_ELSEWHERE
        )
        if kernel not in ON_THE_STACK and not seen and (stack := usage(code.cubin).stack):
            spilled[kernel, key[:8]] = stack
        CHECKED.update((key, kernel))
    assert not spilled, "bytes of stack by kernel"


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


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_is_reached(architecture: str) -> None:
    reached = {kernel for name in CALLS for kernel, _ in launched(name, architecture).values()}
    known = every_kernel()
    elsewhere = {name for name in known if name.partition(".")[0] in COMPILED_ELSEWHERE}
    missing = sorted(known.keys() - reached - ONLY_FOR_CPUS.keys() - elsewhere)
    assert not missing, (
        "kernels that no call reaches: add a call to CALLS, or a reason to ONLY_FOR_CPUS"
    )
    assert not reached & ONLY_FOR_CPUS.keys(), "a GPU runs these: they need no reason"
    assert ONLY_FOR_CPUS.keys() <= known.keys(), "these kernels are gone"
