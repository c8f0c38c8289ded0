"""Largest values of windows by the copy engine, run by the emulator, against their definition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.pooling.sm90 import max_tma_plan
from cubepy.kernels.pooling.sm90 import max_tma_routine as max_tma
from cubepy.kernels.windows.rows_gpu import Steps
from cubepy.runtime.memory.device_array import upload

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated

F32, F16, BF16 = np.float32, np.float16, np.dtype(ml_dtypes.bfloat16)


def drawn(*shape: int, dtype: Any = F32) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x[0, 0, 2, 3], x[0, -1, 1:5, :7] = np.nan, -np.inf
    return x


def largest(x: np.ndarray, kernel: Any, stride: Any, pad: Any, dilation: Any) -> np.ndarray:
    wide = np.pad(x.astype(F32), ((0, 0), (0, 0), *((p, p) for p in pad)), constant_values=-np.inf)
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    views = np.lib.stride_tricks.sliding_window_view(wide, reach, (2, 3))
    views = views[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    with np.errstate(invalid="ignore"):
        return views.max((4, 5))


def check(
    x: np.ndarray,
    kernel: Any,
    stride: Any,
    pad: Any,
    dilation: Any,
    last: bool,
    pieces: int,
    **plan: Any,
) -> None:
    """All of `launch`, with some of the blueprint as given."""
    down, across = (
        Steps(1, s, (-p,), k, d) for k, s, p, d in zip(kernel, stride, pad, dilation, strict=True)
    )
    want = largest(x, kernel, stride, pad, dilation)
    planes = x.transpose(0, 2, 3, 1) if last else x.reshape(-1, *x.shape[2:])
    shape = (x.shape[0], *want.shape[2:], x.shape[1]) if last else (len(planes), *want.shape[2:])
    with emulated() as gpu:
        whole, out = (
            upload(np.ascontiguousarray(planes), gpu),
            upload(np.zeros(shape, x.dtype), gpu),
        )
        far, made, pairs = max_tma.by_words(whole, out, across, last, cb.device_properties_of())
        make = max_tma_plan.last_plan if last else max_tma_plan.first_plan
        sides = {"columns": 4} | plan
        counts = {"stages": sides.pop("stages", 3), "cubes": sides.pop("cubes", 2)}
        blueprint = make(far.shape, made.shape, far.itemsize, down, across, **sides, pairs=pairs)
        blueprint = replace(blueprint, **counts)
        max_tma.launch(far, made, down, -float("inf"), blueprint, pieces)
        got = out.numpy().astype(F32)
    got = got.transpose(0, 3, 1, 2) if last else got.reshape(want.shape)
    np.testing.assert_array_equal(got, want)


FIRST = {  # shape, kernel, stride, padding, dilation, dtype, planes and columns, pieces
    "two planes of a cube": ((1, 3, 14, 16), (7, 7), (1, 1), (3, 3), (1, 1), F32, 2, 4, 1),
    "stride, two pieces": ((1, 2, 15, 16), (5, 6), (2, 3), (2, 3), (1, 1), F32, 2, 4, 2),
    "gaps": ((1, 5, 12, 16), (3, 2), (1, 1), (1, 1), (3, 2), F32, 4, 4, 2),
    "results that are no lines": ((1, 3, 12, 16), (4, 4), (1, 1), (0, 0), (1, 1), F32, 5, 4, 1),
    "rows of several boxes": ((1, 3, 9, 300), (5, 5), (1, 1), (2, 2), (1, 1), F32, 2, 4, 1),
    "lines of eight in pairs": ((1, 2, 9, 16), (6, 6), (1, 1), (3, 3), (1, 1), F16, 2, 8, 1),
    "lines for each other": ((1, 3, 24, 32), (20, 21), (1, 1), (9, 10), (1, 1), F32, 3, 4, 1),
    "lines for each other, no padding": ((1, 2, 26, 36), (20, 19), (1, 1), (0, 0), (1, 1), F32, 2, 4, 1),
    "lines for each other, in boxes": ((1, 2, 8, 300), (3, 17), (1, 1), (1, 8), (1, 1), F32, 2, 4, 1),
    "lines for each other, in pairs": ((1, 3, 14, 48), (5, 35), (1, 1), (2, 17), (1, 1), F16, 2, 8, 1),
    "lines for each other, in pairs, no padding": ((1, 2, 14, 56), (5, 33), (1, 1), (2, 0), (1, 1), BF16, 2, 8, 1),
    "pairs with a stride": ((1, 2, 11, 32), (5, 6), (1, 2), (2, 3), (1, 1), BF16, 2, 8, 1),
    "pairs that are no lines": ((1, 2, 9, 24), (7, 7), (1, 1), (2, 2), (1, 1), F16, 2, 8, 1),
    "gaps in 16 bits": ((1, 2, 12, 16), (3, 2), (1, 1), (1, 1), (3, 2), F16, 2, 8, 2),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRST)
def test_channels_first(case: str) -> None:
    shape, kernel, stride, pad, dilation, dtype, planes, columns, pieces = FIRST[case]
    check(
        drawn(*shape, dtype=dtype),
        kernel,
        stride,
        pad,
        dilation,
        False,
        pieces,
        planes=planes,
        columns=columns,
    )


LAST = {  # shape, kernel, stride, padding, dilation, dtype, tile and columns and channels, pieces
    "an odd number of columns before a tile": ((1, 32, 12, 24), (7, 7), (1, 1), (3, 3), (1, 1), F32, 8, 4, 32, 1),
    "stride, channels behind the end": ((1, 36, 12, 10), (5, 5), (2, 2), (2, 2), (1, 1), F32, 4, 4, 32, 2),
    "gaps": ((1, 32, 12, 11), (3, 3), (1, 1), (1, 1), (2, 4), F32, 4, 4, 32, 2),
    "a tile as wide as the image": ((2, 32, 9, 6), (5, 3), (1, 1), (2, 1), (1, 1), F32, 32, 4, 32, 1),
    "pairs of channels": ((1, 64, 9, 14), (6, 6), (1, 1), (3, 3), (1, 1), BF16, 8, 8, 32, 1),
    "pairs of channels behind the end": ((1, 72, 9, 14), (3, 5), (1, 1), (1, 2), (2, 1), F16, 8, 4, 32, 1),
}  # fmt: skip


@pytest.mark.parametrize("case", LAST)
def test_channels_last(case: str) -> None:
    shape, kernel, stride, pad, dilation, dtype, tile, columns, channels, pieces = LAST[case]
    x = drawn(*shape, dtype=dtype)
    check(
        x,
        kernel,
        stride,
        pad,
        dilation,
        True,
        pieces,
        tile=tile,
        columns=columns,
        channels=channels,
    )


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_library_takes_it_where_it_is_fast(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Any] = []
    run = max_tma.run
    monkeypatch.setattr(max_tma, "run", lambda *args: (ran.append(args), run(*args)))
    monkeypatch.setattr(max_tma, "LEAST_SIZE", 1)
    x = drawn(1, 64, 10, 12)
    with emulated() as gpu:
        far = upload(np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if layout == "NHWC" else x, gpu)
        got = K.max_pool2d(far, 9, 1, 4, layout=layout).numpy()
        K.max_pool2d(
            far, 3, 1, 1, layout=layout
        )  # short windows are left to units that read for themselves
    assert len(ran) == 1
    got = got.transpose(0, 3, 1, 2) if layout == "NHWC" else got
    np.testing.assert_array_equal(got, largest(x, (9, 9), (1, 1), (4, 4), (1, 1)))


def test_blueprints_find_room_and_have_rows_on_their_way() -> None:
    for kernel in (7, 9, 13, 20):
        steps = Steps(1, 1, (-(kernel // 2),), kernel)
        for last in (False, True):
            size, made = ((4, 256, 256, 64) if last else (256, 256, 256),) * 2
            plan = max_tma_plan.plan_of(size, made, 4, steps, steps, last)
            assert plan is not None and plan.stages > 2
            assert plan.cubes * plan.nbytes(4) <= max_tma_plan.SHARED
            fewer = replace(plan, stages=1)
            assert max_tma_plan.worth(plan, size, made, 4) > max_tma_plan.worth(
                fewer, size, made, 4
            )


def test_boxes_are_no_larger_than_the_copy_engine_takes() -> None:
    narrow, wide = Steps(1, 1, (-4,), 9), Steps(1, 5, (0,), 30)
    plan = max_tma_plan.plan_of((1 << 16, 64, 8), (1 << 16, 64, 8), 4, narrow, narrow, False)
    assert plan is not None and plan.planes <= 256
    for plan in max_tma_plan.plans((4, 2000, 2000, 32), (4, 395, 395, 32), 4, wide, wide, True):
        assert wide.positions(plan.tile) == plan.box <= 256


def test_windows_and_arrays_that_others_are_faster_for_or_that_have_no_boxes() -> None:
    def taken(
        shape: Any,
        kernel: int,
        stride: int = 1,
        dilation: int = 1,
        dtype: Any = F32,
        pad: int | None = None,
    ) -> bool:
        pad = kernel // 2 if pad is None else pad
        steps = Steps(1, stride, (-pad,), kernel, dilation)
        made = (
            shape[0],
            *((n + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1 for n in shape[1:]),
        )
        with emulated() as gpu:
            x, out = upload(np.zeros(shape, dtype), gpu), upload(np.zeros(made, dtype), gpu)
            return max_tma.fits(x, out, steps, steps, False, cb.device_properties_of())

    shape = (100, 256, 256)
    assert (
        taken(shape, 9)
        and taken(shape, 5, 1, 4)
        and taken(shape, 11, 1, 1, F16)
        and taken(shape, 41)
    )
    assert (
        not taken(shape, 5) and not taken(shape, 13, 3) and not taken(shape, 65)
    )  # short, few shared positions, many
    assert not taken(shape, 9, 1, 1, F16)  # two at a time other units are fast, too
    assert taken(shape, 5, 1, 1, F16, pad=0) and not taken(
        shape, 20, 1, 1, F16, pad=0
    )  # an odd number of results
    assert not taken((100, 255, 255), 9) and not taken(
        (4, 256, 256), 9
    )  # rows of no whole lines, small
    assert taken(shape, 20, pad=0) and not taken(shape, 7, pad=0)  # results that are no whole lines
    assert (
        not taken(shape, 9, 1, 1, F16)
        and not taken(shape, 5, 2, 4)
        and not taken(shape, 9, 1, 1, np.int32)
    )
