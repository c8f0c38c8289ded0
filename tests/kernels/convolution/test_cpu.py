"""The CPU's kernels for convolutions of few channels or filters, of windows of one pixel, and calls
that repeat.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.convolution import conv, transposed
from cubepy.kernels.convolution.cpu import (
    depthwise_nhwc,
    implicit_gemm_plan,
    pointwise,
    register_tile,
)
from cubepy.kernels.convolution.cpu.input_tile import Geometry
from cubepy.kernels.convolution.problem import Problem
from cubepy.runtime import recording
from cubepy.runtime.memory import pool
from tests.backends.cuda.thorough import some
from tests.kernels.convolution.test_conv import close, defined, draw
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="kernels of the CPU")
F = np.float32

CASES = [  # input, filters, stride, padding, dilation, groups
    ((2, 6, 13, 37), (9, 2, 3, 3), 1, 1, 2, 3),  # three filters to a tile
    ((1, 4, 9, 97), (8, 2, 1, 2), (1, 5), (0, 2), 1, 2),  # columns too far apart for lines
    ((2, 3, 23, 40), (20, 3, 3, 3), 2, 1, 1, 1),  # an image
    ((2, 3, 15, 19), (33, 3, 5, 5), 2, 2, 1, 1),  # channels are mixed while they are copied
    ((1, 5, 9, 5), (40, 5, 3, 3), 1, 1, 1, 1),  # in rows shorter than a line
    (
        (1, 6, 3, 90),
        (6, 1, 2, 9),
        1,
        (0, 20),
        1,
        6,
    ),  # a window wider than what is written out, padding than a line
    ((2, 5, 20, 20), (11, 5, 1, 1), 1, 0, 1, 1),  # lines of pixels, the last one alone
    ((1, 160, 4, 100), (160, 5, 1, 1), 1, 0, 1, 32),
    ((1, 40, 2, 600), (40, 20, 3, 3), 1, 1, 1, 2),  # rows too long for a cube
    ((2, 17, 7, 9), (17, 1, 3, 3), 1, 1, 1, 17),  # rows shorter than a line
    (
        (1, 19, 11, 70),
        (19, 1, 3, 3),
        2,
        1,
        1,
        19,
    ),  # the first line of a row, the last, and one between them
    ((1, 32, 9, 9), (32, 16, 3, 3), 1, 1, 1, 2),  # a line of filters
]


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("shape", "filters", "stride", "padding", "dilation", "groups"), CASES, ids=str
)
def test_few_channels_or_filters(
    shape: Any, filters: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    x, w, b = draw(*shape), draw(*filters), draw(filters[0])
    rest = (b, stride, padding, dilation, groups)
    want = np.maximum(defined(x, w, *rest[1:]) + b[:, None, None], 0)
    close(K.conv2d(x, w, *rest, activation="relu"), want)
    packed = K.prepack_filter(w, groups)
    close(K.conv2d(x, packed, *rest, activation="relu"), want)
    if groups > 1:
        last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        close(
            K.conv2d(last, packed, *rest, layout="NHWC", activation="relu").transpose(0, 3, 1, 2),
            want,
        )


def test_few_channels_are_neighbours_in_a_cubes_copy() -> None:
    """A row of a window is one run then, of as many products as it has columns times channels."""
    problem = Problem((1, 40, 40), (1, 7, 7), (1, 2, 2), (0, 3, 3), (1, 1, 1), (1, 20, 20))
    rest = (1, 64, 3, (1, 4, 16))
    for last in (False, True):
        _, geometry, plan = implicit_gemm_plan.plan_of(
            problem,
            *rest,
            implicit_gemm_plan.Memory(last, last),
            implicit_gemm_plan.Ending(),
            cb.device_properties_of("cpu"),
        )
        assert plan.mixed == (0 if last else 3)
        assert (Geometry(*geometry).run, Geometry(*geometry).run_step) == (21, 1)


def test_three_axes_narrow_floats_and_long_activations() -> None:
    x, w = draw(1, 6, 4, 5, 20).astype(np.float16), draw(6, 1, 2, 3, 3).astype(np.float16)
    want = defined(x, w, (1, 2, 1), 1, 1, 6)
    want = want / (1 + np.exp(-want))
    settings = (None, (1, 2, 1), 1, 1, 6)
    close(K.conv3d(x, w, *settings, activation="silu"), want, 2e-3)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 4, 1))
    close(
        K.conv3d(last, w, *settings, layout="NDHWC", activation="silu").transpose(0, 4, 1, 2, 3),
        want,
        2e-3,
    )


ADDED = [  # input, filters, groups
    ((2, 19, 9, 11), (70, 19, 3, 3), 1),  # more than a panel
    ((2, 8, 20, 20), (11, 8, 1, 1), 1),  # lines of pixels
    ((1, 8, 9, 9), (8, 1, 3, 3), 8),
]


@pytest.mark.parametrize(("shape", "filters", "groups"), some(ADDED, 0, 2), ids=str)
def test_what_is_added_before_the_activation(shape: Any, filters: Any, groups: int) -> None:
    activation = "relu" if groups == 1 else "silu"
    x, w, b = draw(*shape), draw(*filters), draw(filters[0])
    padding = filters[2] // 2
    want = defined(x, w, 1, padding, 1, groups) + b[:, None, None]
    more = draw(*want.shape)
    want = want + more
    want = np.maximum(want, 0) if activation == "relu" else want / (1 + np.exp(-want))
    settings = {"padding": padding, "groups": groups, "activation": activation}
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    more_last = np.ascontiguousarray(more.transpose(0, 2, 3, 1))
    for _ in range(3):  # later calls repeat the launches
        close(K.conv2d(x, w, b, add=more, **settings), want)
        close(
            K.conv2d(last, w, b, add=more_last, layout="NHWC", **settings).transpose(0, 3, 1, 2),
            want,
        )
        close(K.conv2d(last.transpose(0, 3, 1, 2), w, b, add=more, **settings), want)
        out = more.copy()
        assert K.conv2d(x, w, b, add=out, out=out, **settings) is out
        close(out, want)


def test_filters_are_laid_out_in_panels() -> None:
    for shape, groups in (((70, 19, 3, 3), 1), ((66, 2, 1, 1), 1), ((80, 3, 2, 2), 2)):
        for dtype in (np.float32, np.float16):
            w = draw(*shape).astype(dtype)
            panels = K.prepack_filter(w, groups).panels
            wide = panels.reshape(groups, panels.shape[1], -1, shape[1], panels.shape[3]).transpose(
                0, 1, 4, 3, 2
            )
            seen = wide.reshape(groups, -1, *wide.shape[3:])[:, : shape[0] // groups]
            np.testing.assert_array_equal(seen.reshape(shape), w.astype(np.float32))


def test_nan_and_infinity_reach_what_sees_them_only() -> None:
    x = np.ones((1, 17, 12, 12), F)
    x[0, 3, 0, 0], x[0, 5, 11, 11] = np.nan, np.inf
    w = np.ones((17, 1, 3, 3), F)
    for got in (
        K.conv2d(x, w, padding=1, groups=17),
        K.conv2d(x.transpose(0, 2, 3, 1), w, padding=1, groups=17, layout="NHWC").transpose(
            0, 3, 1, 2
        ),
    ):
        assert np.isnan(got[0, 3, :2, :2]).all() and np.isinf(got[0, 5, -2:, -2:]).all()
        assert np.isfinite(np.delete(got, (3, 5), 1)).all() and np.isfinite(got[0, :, 2:-2]).all()


def test_later_calls_repeat_the_launches_with_other_arrays() -> None:
    w = draw(12, 8, 3, 3)
    for _ in range(4):
        x = draw(1, 8, 9, 10)
        want = defined(x, w, 1, 1)
        close(K.conv2d(x, w, padding=1), want)
        seen = K.conv2d(
            np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), w, padding=1
        )
        close(seen, want)
        assert seen.transpose(0, 2, 3, 1).flags.c_contiguous
        out = np.zeros(12 * 90 + 1, F)[1:].reshape(1, 12, 9, 10)
        assert K.conv2d(x, w, padding=1, out=out) is out
        close(out, want)


def _last(x: np.ndarray) -> np.ndarray:
    """The array as a view of channels-last memory."""
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


@pytest.mark.parametrize("call", [
    lambda x, w, g: K.conv2d(x, w, w[0, :, 0, 0].copy(), padding=1, activation="relu", add=g),
    lambda x, w, g: K.conv2d(_last(x), w, padding=1, add=_last(g)), lambda x, w, g: K.conv_transpose2d(x, w, padding=1),
    lambda x, w, g: K.conv2d(x, K.prepack_filter(w), padding=1), lambda x, w, g: K.conv_input(x.shape, w, g, padding=1),
    lambda x, w, g: K.conv_transpose2d(_last(x), w, stride=2), lambda x, w, g: K.conv_weight(x, w.shape, g, padding=(1, 1)),
])  # fmt: skip
def test_the_third_call_is_a_repetition(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "POOLED", 0)  # all results begin at a line of the cache

    def drawn() -> tuple[np.ndarray, ...]:
        return draw(1, 8, 48, 48), draw(8, 8, 3, 3), draw(1, 8, 48, 48)

    for _ in range(3):
        call(*drawn())
    given = drawn()
    recording.detour(1)
    right = call(*given)
    recording.detour(-1)
    for module in (conv, transposed):
        monkeypatch.setattr(module, "on_three_axes", None)  # what the long way comes through
    np.testing.assert_array_equal(call(*given), right)


def test_channels_first_are_turned_whatever_their_number() -> None:
    """Squares of a cache line, of which the last may be cut, in rows and planes of which some are
    padding.
    """
    for shape, window, padding in (
        ((2, 24, 7, 19), (3, 3), 1),  # a line of channels and a half
        ((1, 37, 3, 6), (3, 3), (2, 1)),  # fewer pixels than lanes; rows above and below
        ((1, 17, 2, 4, 9), (2, 3, 3), (1, 1, 0)),
    ):
        x, w = draw(*shape), draw(9, shape[1], *window)
        run = K.conv2d if len(window) == 2 else K.conv3d
        close(run(x, w, padding=padding), defined(x, w, 1, padding), 1e-5)


def test_large_results_go_past_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (depthwise_nhwc, implicit_gemm_plan, pointwise):
        monkeypatch.setattr(module, "STREAM", 1 << 16)
    monkeypatch.setattr(depthwise_nhwc, "OUT_OF_CACHE", 1 << 16)
    x = draw(2, 64, 9, 32)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    for filters, padding, groups, layout in (
        ((64, 64, 1, 3), (0, 1), 1, "NCHW"),
        ((64, 64, 1, 1), 0, 1, "NCHW"),
        ((64, 1, 3, 3), 1, 64, "NHWC"),
    ):
        w = draw(*filters)
        want = defined(x, w, 1, padding, 1, groups)
        if layout == "NHWC":
            want = want.transpose(0, 2, 3, 1)
        given = last if layout == "NHWC" else x
        close(K.conv2d(given, w, None, 1, padding, 1, groups, layout=layout), want, 1e-5)
    out = np.zeros(want.size + 1, F)[1:].reshape(want.shape)  # begins within a cache line
    for _ in range(3):
        close(K.conv2d(last, w, None, 1, 1, 1, 64, layout="NHWC", out=out), want, 1e-5)


def test_on_the_python_backend() -> None:
    x, w, b = draw(1, 4, 3, 5), draw(4, 1, 3, 3), draw(4)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    with cb.use("python"):
        want = defined(x, w, 1, 1, 1, 4) + b[:, None, None]
        close(K.conv2d(x, w, b, padding=1, groups=4), want)
        close(K.conv2d(last, w, b, padding=1, groups=4, layout="NHWC").transpose(0, 3, 1, 2), want)
        x, w, more = draw(1, 2, 3, 40), draw(3, 2, 1, 1), draw(1, 3, 3, 40)
        close(K.conv2d(x, w), defined(x, w))
        close(K.conv2d(x, w, add=more, activation="relu"), np.maximum(defined(x, w) + more, 0))


@pytest.mark.parametrize(("register_bytes", "registers"), [(16, 16), (32, 16), (64, 32)])
def test_what_a_cube_keeps_fits_and_is_of_few_sizes(register_bytes: int, registers: int) -> None:
    """The copy of the input and the tile of sums, for plans of CPUs with other registers, too."""
    given = replace(
        cb.device_properties_of("cpu"), register_bytes=register_bytes, vector_registers=registers
    )
    rng, rooms = np.random.default_rng(0), []
    for _ in range(300):
        window, stride, channels = (
            int(rng.choice([3, 5])),
            int(rng.integers(1, 3)),
            int(rng.choice([3, 16, 64, 256])),
        )
        height, width = (int(rng.integers(9, most)) for most in (200, 460))
        pad, filters = window // 2, int(rng.choice([16, 64, 512]))
        out = tuple((n + 2 * pad - window) // stride + 1 for n in (height, width))
        problem = Problem(
            (1, height, width),
            (1, window, window),
            (1, stride, stride),
            (0, pad, pad),
            (1, 1, 1),
            (1, *out),
        )
        if not implicit_gemm_plan.to_widen(problem, channels, given, filters):
            _, lines, lanes = register_tile.tile_for(filters, given)
            counts = (1, -(-filters // (lines * lanes)), lines * lanes)
            how = (implicit_gemm_plan.Memory(False, False), implicit_gemm_plan.Ending(), given)
            plan = implicit_gemm_plan.plan_of(problem, 1, filters, channels, counts, *how)[2]
            rooms.append((plan.room, plan.acc_tile))
            assert (
                4 * (plan.room + 64 + plan.acc_tile * lines * lanes) <= given.max_shared_memory
            ), problem
    assert len(rooms) > 150
    assert Counter(rooms).most_common(1)[0][1] > 25


@pytest.mark.parametrize(
    ("shape", "filters", "stride"),
    [
        ((1, 1, 900), (1, 1, 70), 61),
        ((2, 1, 2000), (9, 1, 300), 257),
        ((2, 4, 700), (4, 1, 3), 97),
        ((1, 2, 5, 300), (2, 2, 3, 4), (1, 83)),
    ],
)
def test_long_strides_are_no_more_code(
    shape: Any, filters: Any, stride: Any, tmp_path: Path
) -> None:
    """Each phase of a stride is a copy of columns: a loop, where there are many."""
    rng, groups = np.random.default_rng(0), shape[1] // filters[1]
    x, w = (rng.standard_normal(s).astype(F) for s in (shape, filters))
    function = K.conv1d if len(shape) == 3 else K.conv2d
    recording.forget()
    with cb.config.override(cache_dir=str(tmp_path), cache=True, compile_workers=1):
        y = function(x, w, None, stride, 0, 1, groups)
    close(y, defined(x, w, stride, 0, 1, groups))
    sizes = [path.stat().st_size for path in tmp_path.rglob("*.bin")]
    assert sizes and max(sizes) < 40_000


@pytest.mark.parametrize("seed", range(24))
def test_a_filter_for_each_channel_in_f64(seed: int) -> None:
    """Of any shape and layout, summed in f64."""
    rng = np.random.default_rng(seed)
    axes, channels = int(rng.integers(1, 4)), int(rng.integers(1, 20))
    size = [int(n) for n in rng.integers(5, 40 if axes < 3 else 12, axes)]
    window = [int(n) for n in rng.integers(1, 6, axes)]
    padding = tuple(int(rng.integers(0, k // 2 + 1)) for k in window)
    stride, dilation = int(rng.integers(1, 3)), int(rng.random() < 0.3) + 1
    fits = all(
        n + 2 * p > dilation * (k - 1) for n, p, k in zip(size, padding, window, strict=True)
    )
    dilation = dilation if fits else 1
    x = rng.standard_normal((int(rng.integers(1, 4)), channels, *size))
    w = rng.standard_normal((channels, 1, *window))
    want = defined(x, w, stride, padding, dilation, channels)
    bias = rng.standard_normal(channels) if rng.random() < 0.5 else None
    add = rng.standard_normal(want.shape) if rng.random() < 0.3 else None
    activation = "relu" if rng.random() < 0.5 else None
    want = want if bias is None else want + bias.reshape(-1, *(1,) * axes)
    want = want if add is None else want + add
    want = np.maximum(want, 0) if activation else want
    if rng.random() < 0.5:
        x = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    if rng.random() < 0.3:
        w = w.astype(F)
        return close(
            getattr(K, f"conv{axes}d")(x, w, None, stride, padding, dilation, channels),
            defined(x, w, stride, padding, dilation, channels),
            1e-14,
        )
    got = getattr(K, f"conv{axes}d")(
        x, w, bias, stride, padding, dilation, channels, activation=activation, add=add
    )
    close(got, want, 1e-14)
