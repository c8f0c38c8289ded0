"""What keeps images with their channels last in memory: maps, joining, softmax, whole programs."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.kernels as K
from cubepy import nn, tensor
from cubepy.kernels.entry.shapes import empty_as, lies_channels_last
from cubepy.kernels.movement.concat import side_by_side
from tests.staging import WHERE

RNG = np.random.default_rng(0)


def last(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    """An image (N, C, ...) with its channels last."""
    n, c, *size = shape
    return np.moveaxis(RNG.standard_normal((n, *size, c)).astype(dtype), -1, 1)


def test_what_lies_channels_last() -> None:
    x = last(2, 5, 4, 3)
    assert lies_channels_last(x) and lies_channels_last(x[:, 1:3]) and lies_channels_last(x[1:])
    assert lies_channels_last(last(1, 6, 7)) and lies_channels_last(last(2, 3, 4, 5, 2))
    for other in (
        x.copy(),
        x.swapaxes(2, 3),
        x[:, ::2],
        x[:, :1],
        last(2, 6, 1, 1),
        x[0],
        x[..., 0, 0],
    ):
        assert not lies_channels_last(other)


def test_maps_of_such_images_give_such_ones() -> None:
    x, y = last(2, 5, 4, 3), last(2, 5, 4, 3)
    channel, first = RNG.standard_normal((5, 1, 1)).astype(np.float32), np.ascontiguousarray(y)
    for given in ((x, y), (x, channel), (x[:, :5], np.float32(2)), (x, y[:, :1])):
        found = K.map(K.functions.add, *given)
        np.testing.assert_array_equal(found, given[0] + given[1])
        assert found.transpose(0, 2, 3, 1).flags.c_contiguous
    for given in ((x, first), (first, channel), (channel, channel)):
        found = K.map(K.functions.add, *given)
        np.testing.assert_array_equal(found, given[0] + given[1])
        assert found.flags.c_contiguous
    assert empty_as([x, x[:, :2]], (2, 7, 4, 3), np.float32).strides[1] == 4


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("there", [False, True])
def test_joined_arrays_of_any_layout(seed: int, there: bool) -> None:
    """On the host, and by units of a GPU: with whole lines, parts of lines, gaps, turned axes."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 5))
    shape = rng.integers(1, 9, rank)
    axis = int(rng.integers(rank))
    order = rng.permutation(rank)
    dtype = rng.choice([np.float32, np.float16, np.int8, np.float64])
    arrays = []
    for _ in range(int(rng.integers(1, 10))):
        own = shape.copy()
        own[axis] = rng.choice([0, 1, 3, 8, 16])
        made = (rng.standard_normal(own[order]) * 9).astype(dtype).transpose(np.argsort(order))
        if rng.random() < 0.3:
            wide = np.concatenate([made, made], -1)
            made = wide[..., : made.shape[-1]]
        arrays.append(made)
    want = np.concatenate(arrays, axis)
    if not there and WHERE:
        np.testing.assert_array_equal(K.concat(arrays, axis), want)
        return
    if not there:
        np.testing.assert_array_equal(side_by_side(arrays, np.dtype(dtype), axis), want)
        np.testing.assert_array_equal(K.concat(arrays, axis), want)
        return
    pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
    if WHERE:
        pytest.skip("emulated")
    from tests.backends.cuda.emulator.device import emulated

    with emulated() as gpu:
        on = [cb.tensor(np.ascontiguousarray(a), device=gpu).storage.dense() for a in arrays]
        np.testing.assert_array_equal(side_by_side(on, np.dtype(dtype), axis).numpy(), want)
        ends = [0, *accumulate(a.shape[axis] for a in arrays)]
        whole = cb.tensor(want, device=gpu).storage.dense()
        lead = (slice(None),) * axis
        parts = [whole[(*lead, slice(*e))] for e in pairwise(ends)]
        rng.shuffle(parts)
        want = np.concatenate([p.numpy() for p in parts], axis)
        np.testing.assert_array_equal(side_by_side(parts, np.dtype(dtype), axis).numpy(), want)


@pytest.mark.parametrize("seed", range(4))
def test_softmax_along_any_axis_of_any_layout(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for shape in ((2, 3, 4, 5), (2, 7, 3), (4, 6), (2, 1, 3, 4), (1, 16, 2, 2)):
        order = rng.permutation(len(shape))
        x = rng.standard_normal([shape[d] for d in order]).astype(np.float32)
        x = x.transpose(np.argsort(order))
        for axis in range(len(shape)):
            e = np.exp(x.astype(np.float64))
            want = e / e.sum(axis, keepdims=True)
            np.testing.assert_allclose(K.softmax(x, axis), want, rtol=1e-5, atol=1e-7)
            out = np.empty(shape, np.float32)
            np.testing.assert_allclose(K.softmax(x, axis, out=out), want, rtol=1e-5, atol=1e-7)
    assert lies_channels_last(K.softmax(last(2, 5, 4, 3), 1))


class Cross(nn.Module):
    """A block as detectors have them: halves, residuals, pools, upsampling, all joined again."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(16, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.SiLU())
        self.one, self.two = nn.Conv2d(32, 32, 3, 1, 1), nn.Conv2d(96, 32, 1)
        self.pool, self.down = nn.MaxPool2d(3, 1, 1), nn.Conv2d(32, 32, 3, 2, 1)
        self.end = nn.Conv2d(64, 32, 1)

    def forward(self, x: Any) -> Any:
        a, b = self.first(x).chunk(2, 1)
        c = b + nn.functional.silu(self.one(b))
        y = self.two(tensor.concat([a, b, c], axis=1))
        small = nn.functional.interpolate(self.down(y), scale_factor=2, mode="nearest")
        y = self.end(tensor.concat([self.pool(y), small], axis=1))
        return y.softmax(1) * y


@pytest.mark.day(1, 3)  # tests/tensor/fusion/test_convolutions.py has others there daily
def test_a_program_of_such_images_on_a_gpu() -> None:
    pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
    if WHERE:
        pytest.skip("beside the host")
    from tests.backends.cuda.emulator.device import emulated

    net = Cross().eval()
    x = cb.tensor(RNG.standard_normal((1, 16, 4, 4)).astype(np.float32))
    with cb.no_grad():
        want = net(x).numpy()
        with emulated() as gpu:
            net.to(gpu)
            given = x.to(gpu)
            found = cb.jit(net)(given)
            assert lies_channels_last(found.storage.dense())
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-5)
