"""The Hopper convolution compiles to the instructions that it is written for; what runs a
convolution. No GPU is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.kernels.convolution import routines_gpu
from cubepy.kernels.convolution.gpu.fold import FOLDERS, fold_taps
from cubepy.kernels.convolution.problem import Problem
from cubepy.kernels.convolution.sm90.implicit_gemm import HopperWindow, hopper_convolution
from cubepy.kernels.convolution.sm90.implicit_gemm_plan import TILES, box_for, prepared, tile_for
from cubepy.kernels.convolution.sm90.operand_layout import laid_out
from cubepy.kernels.convolution.sm90.split_k import UNITS as ADDERS
from cubepy.kernels.convolution.sm90.split_k import add_ranges
from cubepy.kernels.matmul.sm90.persistent import UNITS
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.kernels.primitives.pipeline import BLOCK
from cubepy.runtime import device as devices
from cubepy.runtime.memory import device_array
from cubepy.tune import force

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.backend import offline
from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.recording import recording
from tests.backends.cuda.thorough import some

H = np.float16


@needs_sass
@pytest.mark.parametrize("plan", some(TILES, 0, 1), ids=lambda p: f"{p.rows}x{p.columns}")
def test_every_tile_keeps_its_sums_in_registers(plan: HopperWindow) -> None:
    stride, function = (
        1 if plan.rows == 128 else 2,
        ACTIVATIONS["relu" if plan.pingpong else "gelu"],
    )
    x, w, out = (
        np.zeros(s, H)
        for s in ((4, 16, 16, 64), (256, 64, 3, 3), (4, 16 // stride, 16 // stride, 256))
    )
    problem = Problem(
        (1, 16, 16), (1, 3, 3), (1, stride, stride), (0, 1, 1), (1, 1, 1), (1, *out.shape[1:3])
    )
    _, arguments = prepared(
        *laid_out(x, w, problem)[:2], np.zeros(256, H), out, problem, function, 1, plan
    )
    code = compile_for("sm_90a", hopper_convolution, UNITS, *arguments, mode="unchecked")
    assert count(code.sass, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    for name, least in {
        "HGMMA": 4 * plan.share // BLOCK,
        "UTMALDG": 2,
        "UTMASTG": 1,
        "USETMAXREG": 2,
        "STSM": 4,
    }.items():
        assert count(code.sass, name)[name] >= least, name
    assert code.text.shared_bytes <= offline("sm_90a").max_shared_memory


@needs_sass
@pytest.mark.parametrize("channels", [64, 12, 3])
@pytest.mark.parametrize("tile", some([(64, 64, 4), (128, 128, 3)], 0), ids=str)
def test_tiles_that_are_gathered_spill_nothing(
    tile: tuple[int, int, int], channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routines_gpu, "ASIDE", math.inf)
    monkeypatch.setattr(routines_gpu, "LAID", {True: math.inf, False: math.inf})
    x, w = zeros(2, 28, 28, channels), zeros(64, channels, 5, 5)
    plan = dict(zip(("rows", "columns", "stages"), tile, strict=True))
    with recording("sm_90a") as launches, force("convolution", "mma", **plan):
        given = (device_array.upload(a, devices.current()) for a in (x, w))
        K.conv2d(*given, padding=2, layout="NHWC")
    ((code,),) = [[c for kernel, c in launches if kernel.__name__ == "mma_convolution"]]
    assert count(code.sass, "LDL", "STL") == {"LDL": 0, "STL": 0} and not usage(code.cubin).stack
    assert (count(code.sass, "LDGSTS")["LDGSTS"] > 0) == (channels == 64)


def zeros(*shape: int, dtype: Any = H) -> np.ndarray:
    return np.zeros(shape, dtype)


IMAGE, LAST, FILTERS = zeros(2, 64, 14, 16), zeros(2, 14, 16, 64), zeros(64, 64, 3, 3)
ONE, BIAS = zeros(64, 64, 1, 1), zeros(64)
ROUTES: dict[str, tuple[Any, tuple[np.ndarray, ...], list[str]]] = {
    "channels last": (lambda x, w: K.conv2d(x, w, padding=1, layout="NHWC"), (LAST, FILTERS), ["hopper_convolution"]),
    "a view of channels last": (
        lambda x, w: K.conv2d(x.transpose(0, 3, 1, 2), w, padding=1), (LAST, FILTERS), ["hopper_convolution"],
    ),
    "stride": (lambda x, w: K.conv2d(x, w, stride=2, layout="NHWC"), (LAST, FILTERS), ["hopper_convolution"]),
    "channels first": (
        lambda x, w: K.conv2d(x, w), (IMAGE, FILTERS), ["transpose_pairs", "hopper_convolution", "transpose_pairs"],
    ),
    "one place": (lambda x, w, b: K.conv2d(x, w, b, layout="NHWC"), (LAST, ONE, BIAS), ["hopper_product"]),
    "one place, channels first": (lambda x, w: K.conv2d(x, w), (IMAGE, ONE), ["hopper_product"]),
    "one place in four": (lambda x, w: K.conv2d(x, w, stride=2, layout="NHWC"), (LAST, ONE), ["hopper_convolution"]),
    "a line": (lambda x, w: K.conv1d(x, w, layout="NLC"), (zeros(2, 40, 24), zeros(8, 24, 3)), ["hopper_convolution"]),
    "a line of few channels": (
        lambda x, w: K.conv1d(x, w, layout="NLC"), (zeros(2, 40, 8), zeros(8, 8, 15)), ["lay_filters", "hopper_convolution"],
    ),
    "a volume": (
        lambda x, w: K.conv3d(x, w, layout="NDHWC"), (zeros(2, 4, 5, 6, 8), zeros(8, 8, 3, 3, 3)), ["hopper_convolution"],
    ),
    "odd filters": (lambda x, w: K.conv2d(x, w, layout="NHWC"), (LAST, zeros(6, 64, 3, 3)), ["lay_filters", "hopper_convolution"]),
    "few channels": (
        lambda x, w: K.conv2d(x, w, stride=2, padding=3, layout="NHWC"), (zeros(2, 40, 40, 3), zeros(64, 3, 7, 7)),
        ["fold", "fold_filters", "hopper_convolution"],
    ),
    "few channels, every place": (
        lambda x, w: K.conv2d(x, w, padding=3, layout="NHWC"), (zeros(2, 40, 40, 3), zeros(64, 3, 7, 7)),
        ["widen", "lay_filters", "hopper_convolution"],
    ),
    "every channel has its own filter": (
        lambda x, w: K.conv2d(x, w, padding=1, groups=64, layout="NHWC"), (LAST, zeros(64, 1, 3, 3)), ["channelwise_boxes"],
    ),
    "every channel has its own filter, channels first": (
        lambda x, w: K.conv2d(x, w, padding=1, groups=64), (IMAGE, zeros(64, 1, 3, 3)), ["channelwise_planes"],
    ),
    "every channel has two filters": (
        lambda x, w: K.conv2d(x, w, padding=1, groups=64, layout="NHWC"), (LAST, zeros(128, 1, 3, 3)), ["channelwise_last"],
    ),
    "the gradient by the input of channels": (
        lambda g, w: K.conv_input((2, 64, 28, 32), w, g.transpose(0, 3, 1, 2), 2, 1, groups=64),
        (LAST, zeros(64, 1, 3, 3)), ["channelwise_boxes"],
    ),
    "the gradient by the input of channels, channels first": (
        lambda g, w: K.conv_input((2, 64, 28, 32), w, g, 2, 1, groups=64), (IMAGE, zeros(64, 1, 3, 3)), ["channelwise_planes"],
    ),
    "groups": (
        lambda x, w: K.conv2d(x, w, padding=1, groups=16, layout="NHWC"), (LAST, zeros(64, 4, 3, 3)),
        ["lay_blocks", "hopper_convolution"],
    ),
    "the gradient by the input": (
        lambda g, w: K.conv_input((2, 64, 28, 32), w, g, 2, 1), (IMAGE, FILTERS),
        ["transpose_pairs", "hopper_convolution", "transpose_pairs"],
    ),
    "the gradient by the filters": (
        lambda x, g: K.conv_weight(x.transpose(0, 3, 1, 2), (64, 64, 3, 3), g.transpose(0, 3, 1, 2), 1, 1),
        (LAST, LAST), ["hopper_weight", "fold_ranges"],
    ),
    "the gradient by filters of channels": (
        lambda x, g: K.conv_weight(x.transpose(0, 3, 1, 2), (64, 1, 3, 3), g.transpose(0, 3, 1, 2), 1, 1, 1, 64),
        (LAST, LAST), ["channelwise_tiles", "add_columns"],
    ),
    "long strides": (lambda x, w: K.conv2d(x, w, stride=3, layout="NHWC"), (LAST, FILTERS), ["mma_split_k"]),
    "a residual": (
        lambda x, w, b, r: K.conv2d(x, w, b, padding=1, layout="NHWC", add=r, activation="relu"),
        (LAST, FILTERS, BIAS, LAST), ["hopper_convolution"],
    ),
    "a residual, one place": (
        lambda x, w, b, r: K.conv2d(x, w, b, layout="NHWC", add=r, activation="relu"),
        (LAST, ONE, BIAS, LAST), ["hopper_product"],
    ),
    "a residual, single": (
        lambda x, w, b, r: K.conv2d(x, w, b, padding=1, layout="NHWC", add=r, activation="relu"),
        tuple(v.astype(np.float32) for v in (LAST, FILTERS, BIAS, LAST)), ["fma_convolution"],
    ),
    "a residual, channels first": (
        lambda x, w, r: K.conv2d(x, w, padding=1, add=r, activation="relu"), (IMAGE, FILTERS, IMAGE),
        ["transpose_pairs", "hopper_convolution", "transpose_pairs"],
    ),
    "single": (
        lambda x, w: K.conv2d(x, w, layout="NHWC"), (LAST.astype(np.float32), FILTERS.astype(np.float32)),
        ["fma_convolution"],
    ),
    "single, rounded": (
        lambda x, w: K.conv2d(x, w, layout="NHWC", precision="tf32"),
        (LAST.astype(np.float32), FILTERS.astype(np.float32)), ["hopper_convolution"],
    ),
    "the gradient by filters of groups": (
        lambda x, g: K.conv_weight(x.transpose(0, 3, 1, 2), (64, 32, 3, 3), g.transpose(0, 3, 1, 2), 1, 1, 1, 2),
        (LAST.astype(np.float32), LAST.astype(np.float32)), ["window_weight", "fold_ranges"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
def test_what_runs_a_convolution(route: str) -> None:
    """Beside copies of other layouts."""
    function, arrays, wanted = ROUTES[route]
    with recording("sm_90a") as launches, force("convolution", "boxes"):
        function(*(device_array.upload(a, devices.current()) for a in arrays))
    found = [kernel.__name__ for kernel, _ in launches]
    copies = {
        "add_ranges",
        "map_rows_wide",
        "map_lines",
        "pad_rows",
        "lines_of",
        "rows_of",
        "transpose_shared",
    }
    assert [name for name in found if name not in copies] == wanted


SPILLS = [
    "single",
    "a residual",
    "a residual, single",
    "few channels",
    "few channels, every place",
    "every channel has its own filter",
    "every channel has its own filter, channels first",
    "every channel has two filters",
    "the gradient by the filters",
    "the gradient by the input",
    "the gradient by filters of channels",
]


@needs_sass
@pytest.mark.parametrize("route", SPILLS)
def test_nothing_spills(route: str) -> None:
    function, arrays, names = ROUTES[route]
    with recording("sm_90a") as launches, force("convolution", "boxes"):
        function(*(device_array.upload(a, devices.current()) for a in arrays))
    stacks = {kernel.__name__: usage(code.cubin).stack for kernel, code in launches}
    assert set(names) <= set(stacks) and not any(stacks.values())


@needs_sass
def test_sums_of_all_taps_and_of_ranges_stay_in_registers() -> None:
    sums, out = np.zeros((3, 64, 9 * 64), np.float32), zeros(64, 9 * 64)
    code = compile_for("sm_90a", fold_taps, FOLDERS, sums, out, 64, 9, mode="unchecked")
    assert usage(code.cubin).stack == 0
    code = compile_for(
        "sm_90a",
        add_ranges,
        ADDERS,
        sums,
        out[0],
        out,
        out,
        3,
        ACTIVATIONS["gelu"],
        mode="unchecked",
    )
    assert usage(code.cubin).stack == 0


@pytest.mark.parametrize("batch", [8, 32, 64, 128])
@pytest.mark.parametrize(("side", "filters"), [(56, 64), (28, 128), (14, 256), (7, 512)])
def test_tiles_are_full(batch: int, side: int, filters: int) -> None:
    """Of the rows of all tiles 7 in 8 or more are pixels."""
    out_size = (1, side, side)
    plan = tile_for(batch, out_size, filters, 9 * filters // 64, 132)
    box, counts = box_for(batch, out_size, plan.rows)
    assert math.prod(box) <= plan.rows
    assert batch * side * side >= 0.87 * math.prod(counts) * plan.rows
