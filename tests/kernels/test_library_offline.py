"""Every memory-bound kernel of the library compiles for NVIDIA GPUs without spilling, with wide
accesses; no GPU is needed.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.elementwise import map_cpu, transposed_cpu
from cubepy.kernels.elementwise import map_gpu as ec
from cubepy.kernels.elementwise.problem import identity
from cubepy.kernels.indexing import gather_gpu
from cubepy.kernels.indexing.gather_cpu import select_slices
from cubepy.kernels.movement import pad_gpu as ml
from cubepy.kernels.movement import transpose_gpu as mc
from cubepy.kernels.normalization import moments_gpu as nm
from cubepy.kernels.normalization import rows_cpu
from cubepy.kernels.normalization import softmax_gpu as nc
from cubepy.kernels.pooling.gpu import naive as pc
from cubepy.kernels.primitives import functions as f
from cubepy.kernels.reduce import arg_cpu
from cubepy.kernels.reduce import reduce_gpu as rc
from cubepy.kernels.reduce import rows_cpu as reduce_cpu
from cubepy.kernels.reduce.held_rows_gpu import HeldPlan
from cubepy.kernels.reduce.reduction import SUM, VARIANCE, extreme, extreme_at
from cubepy.kernels.reduce.statistics_gpu import OnlinePlan, log_sum_exp_online, reduce_rows_held
from cubepy.kernels.reduce.walk_gpu import Pass
from cubepy.kernels.scan import scan_gpu as sp

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.thorough import ARCHITECTURES, some

pytestmark = needs_sass

F32, I32, I64 = (
    np.zeros((64, 64), np.float32),
    np.zeros((64, 64), np.int32),
    np.zeros((64, 64), np.int64),
)
B16 = np.zeros((64, 64), ml_dtypes.bfloat16)
F64 = np.zeros((64, 64))
CUBE, WORDS, I32_3, I64_3 = F32[None], np.zeros((1, 64, 64), np.uint32), I32[None], I64[None]
IMAGE = np.zeros((2, 8, 8, 64), np.float32)
VECTOR, NARROW = F32[0], B16[0]
WINDOW = (1, 1, 0, 0, (3, 3), (1, 1))

MAX, ONE_ROW = extreme(cb.f32, True), reduce_cpu.RowPlan(cb.f32, 4)

UNCHANGED = {
    "map_flat": (map_cpu.map_flat, VECTOR, (VECTOR, VECTOR), f.add, 4, 8192),
    "map_rows": (map_cpu.map_rows, F32, (F32, F32), f.add, (False, True), 1, 4, 8192),
    "reduce_rows": (reduce_cpu.reduce_rows, F32, F32, SUM, 1.0, ONE_ROW, 16384, True),
    "max_rows": (reduce_cpu.reduce_rows, F32, F32, MAX, 1.0, ONE_ROW, 16384, True),
    "arg_rows": (arg_cpu.arg_rows, F32, I64[0], True, MAX.walks[0], ONE_ROW),
    "softmax_rows": (rows_cpu.softmax_rows, F32, F32, 4, 4),
    "layer_norm_rows": (
        rows_cpu.layer_norm_rows,
        F32,
        VECTOR,
        VECTOR,
        F32,
        1e-5,
        0,
        4,
        4,
        False,
        False,
    ),
    "transpose_tiles": (transposed_cpu.transpose_tiles, CUBE, CUBE, 4, 4),
    "select_slices": (select_slices, CUBE, I64, CUBE, 16, I64[0], 0, 8, 8, 4),
}
"""Kernels written for one unit: right on a GPU too, where the others are faster and are what is
launched.
"""

SINGLE = ec.LinePlan(4, 1, (False,))
ROW, WORDY = rc.RowPlan(4, 256, 1), rc.RowPlan(8, 256, 1)
ONE = (1.0, 64)  # a reduction's number, and how many elements it reduces to one
ADD, TOP = Pass(SUM.walks[0], cb.f32, SUM.finish), Pass(MAX.walks[0], cb.f32, MAX.finish)
SECOND = Pass(VARIANCE.walks[1], cb.f32, VARIANCE.finish, 1)
BEST = Pass(extreme_at(cb.f32, True), cb.f32, index=cb.i32)
COLUMN = rc.ColumnPlan(4, 32)
HELD = HeldPlan(4, 256, 1, 4, True)
RAGGED = HeldPlan(1, 64, 4, 16)
LONG = HeldPlan(4, 512, 1, 8, True)
DOUBLE = HeldPlan(2, 256, 1, 8, True)
AGAIN = HeldPlan(4, 512, 1, 0)
SHARED = HeldPlan(1, 512, 1, 16, False, False, 2, 4)
SINGLES = HeldPlan(1, 512, 1, 28, False, False, 2, 4)
CLUSTER = HeldPlan(4, 512, 1, 4, False, True, 1, 2)
PAIRS = HeldPlan(2, 512, 1, 4, False, True, 1, 2)
SHORT = HeldPlan(8, 32, 8, 3, True, True)

WIDE: dict[str, tuple[int, int, tuple[Any, ...]]] = {
    "copy": (1, 1, (ec.map_lines, 256, VECTOR, (VECTOR,), identity, SINGLE)),
    "gelu": (1, 1, (ec.map_lines, 256, VECTOR, (VECTOR,), f.gelu_erf, SINGLE)),
    "gelu_bf16": (
        1,
        1,
        (ec.map_lines, 256, NARROW, (NARROW,), f.gelu_erf, ec.LinePlan(8, 1, (False,))),
    ),
    "map_rows": (
        1,
        1,
        (ec.map_rows_wide, 256, F32, (F32,), f.relu, ec.LinePlan(4, 1, (False,), 16)),
    ),
    "sum": (4, 0, (rc.reduce_rows_wide, 256, F32, None, None, F32, *ONE, ADD, ROW, 8192)),
    "sum_bf16": (4, 0, (rc.reduce_rows_wide, 256, B16, None, None, F32, *ONE, ADD, WORDY, 8192)),
    "max_columns": (
        4,
        1,
        (rc.reduce_columns_wide, 256, CUBE, None, None, CUBE, *ONE, TOP, COLUMN, 64),
    ),
    "deviations": (4, 0, (rc.reduce_rows_wide, 256, F32, F32, None, F32, *ONE, SECOND, ROW, 8192)),
    "deviations_columns": (
        5,
        1,
        (rc.reduce_columns_wide, 256, CUBE, CUBE, None, CUBE, *ONE, SECOND, COLUMN, 64),
    ),
    "log_sum_exp": (5, 0, (log_sum_exp_online, 256, F32, F32[0], cb.f32, OnlinePlan(4, 256))),
    "variance": (4, 0, (reduce_rows_held, 256, F32, F32[0], VARIANCE, 1.0, cb.f32, HELD)),
    "arg_rows": (4, 0, (rc.reduce_rows_wide, 256, F32, None, F32, I32, *ONE, BEST, ROW, 8192)),
    "arg_rows_of_pieces": (
        8,
        0,
        (rc.reduce_rows_wide, 256, F32, I32, None, I64, *ONE, BEST, ROW, 64),
    ),
    "arg_columns": (
        4,
        1,
        (rc.reduce_columns_wide, 256, CUBE, None, CUBE, I32_3, *ONE, BEST, COLUMN, 64),
    ),
    "arg_columns_of_pieces": (
        2,
        0,
        (rc.reduce_columns_wide, 256, CUBE, I32_3, None, I64_3, *ONE, BEST, COLUMN, 64),
    ),
    "softmax": (4, 4, (nc.softmax_held, 256, F32, F32, cb.f32, HELD)),
    "softmax_ragged": (0, 0, (nc.softmax_held, 256, F32, F32, cb.f32, RAGGED)),
    "softmax_long": (8, 8, (nc.softmax_held, 512, F32, F32, cb.f32, LONG)),
    "softmax_narrow": (
        2,
        2,
        (nc.softmax_narrow, 256, B16, B16, cb.f32, HeldPlan(8, 256, 1, 2, True)),
    ),
    "softmax_again": (4, 1, (nc.softmax_again, 512, F32, F32, cb.f32, AGAIN)),
    "softmax_again_bf16": (4, 1, (nc.softmax_again, 512, B16, B16, cb.f32, HeldPlan(8, 512, 1, 0))),
    "layer_norm_f64": (
        24,
        8,
        (nm.layer_norm_held, 256, F64, F64[0], F64[0], F64, 1e-5, cb.f64, DOUBLE),
    ),
    "layer_norm": (12, 4, (nm.layer_norm_held, 256, F32, VECTOR, VECTOR, F32, 1e-5, cb.f32, HELD)),
    "layer_norm_ragged": (
        0,
        0,
        (nm.layer_norm_held, 256, F32, VECTOR, VECTOR, F32, 1e-5, cb.f32, RAGGED),
    ),
    "layer_norm_long": (
        24,
        8,
        (nm.layer_norm_held, 512, F32, VECTOR, VECTOR, F32, 1e-5, cb.f32, LONG),
    ),
    "layer_norm_short": (
        3,
        3,
        (nm.layer_norm_held, 256, B16, NARROW, NARROW, B16, 1e-5, cb.f32, SHORT),
    ),
    "layer_norm_cluster": (
        4,
        4,
        (nm.layer_norm_held, 512, F32, VECTOR, VECTOR, F32, 1e-5, cb.f32, CLUSTER),
    ),
    "group_norm": (
        4,
        4,
        (nm.group_norm_held, 256, F32, VECTOR, VECTOR, F32, 1e-5, 8, 64, True, cb.f32, HELD),
    ),
    "group_norm_cluster": (
        0,
        0,
        (nm.group_norm_held, 512, B16, NARROW, NARROW, B16, 1e-5, 8, 7, False, cb.f32, SHARED),
    ),
    "log_softmax_cluster": (0, 0, (nc.softmax_held, 512, F32, F32, cb.f32, SINGLES, True)),
    "softmax_narrow_cluster": (0, 0, (nc.softmax_narrow, 512, B16, B16, cb.f32, SINGLES)),
    "softmax_double_cluster": (4, 4, (nc.softmax_held, 512, F64, F64, cb.f64, PAIRS)),
    "layer_norm_singles_cluster": (
        0,
        0,
        (nm.layer_norm_held, 512, B16, NARROW, NARROW, B16, 1e-5, cb.f32, SINGLES),
    ),
    "layer_norm_again": (
        4,
        1,
        (nm.layer_norm_again, 512, F32, VECTOR, VECTOR, F32, 1e-5, cb.f32, AGAIN),
    ),
    "transpose": (4, 4, (mc.transpose_shared, 256, CUBE, CUBE, mc.TilePlan(64, 4, 4))),
    "transpose_pairs": (4, 4, (mc.transpose_pairs, 256, WORDS, WORDS, mc.PairPlan(128, 32))),
    "gather": (4, 4, (gather_gpu.gather_rows_wide, 256, I64[0], F32, F32, 4, 16, 4, False)),
    "gather_long": (4, 4, (gather_gpu.gather_rows_wide, 256, I64[0], F32, F32, 4, 256, 4, True)),
    "flip": (1, 1, (ml.reverse_lines, 256, F32, F32, 4, 256, True)),
    "scan_held": (
        8,
        8,
        (sp.scan_held, 512, F32, F32, f.add, 0, cb.f32, False, sp.ScanPlan(4, 8, 512, 32, 1, True)),
    ),
    "scan_chained": (
        8,
        8,
        (
            sp.scan_chained,
            512,
            F32,
            F32,
            WORDS[0, 0].astype(np.uint64),
            f.add,
            0,
            cb.f32,
            False,
            sp.ScanPlan(4, 8, 512, 32),
            128,
        ),
    ),
    "pool_last": (1, 1, (pc.pool_last, 256, IMAGE, IMAGE, *WINDOW, 4)),
    "pool_first": (0, 0, (pc.pool_first, 256, CUBE, CUBE, *WINDOW)),
}
"""Kernels of whole cubes: loads and stores of 16 bytes at least, units, arguments."""


def not_spilled(code: Any) -> str:
    """The machine code, which keeps everything in registers."""
    text = code.sass
    assert count(text, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    return str(text)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", some(UNCHANGED, 4, 5, 6))
def test_kernels_of_one_unit_compile_without_spilling(name: str, architecture: str) -> None:
    kernel, *args = UNCHANGED[name]
    not_spilled(compile_for(architecture, kernel, 1, *args))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", WIDE)
def test_kernels_of_cubes_read_and_write_16_bytes_at_once(name: str, architecture: str) -> None:
    loads, stores, (kernel, units, *args) = WIDE[name]
    if name.endswith("_cluster") and architecture == "sm_80":
        pytest.skip("it has no clusters")
    text = not_spilled(compile_for(architecture, kernel, units, *args, mode="unchecked"))
    assert len(re.findall(r"LDG[.A-Z]*\.128", text)) >= loads
    assert len(re.findall(r"STG[.A-Z]*\.128", text)) >= stores
