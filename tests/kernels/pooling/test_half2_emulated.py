"""Largest values of 16-bit floats, two in a word, run by the emulator, against their definition."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.pooling.gpu import half2
from cubepy.runtime.memory.device_array import upload

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.kernels.pooling.test_tma_emulated import largest

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


@cb.kernel
def larger_pairs(a: cb.Array, b: cb.Array, out: cb.Array, dtype: cb.Comptime):
    """out = the larger of words that hold pairs, as lines and one by one."""
    k = cb.UNIT_POS * 4
    out.store((k,), cb.packed_max(a.load((k,), 2), b.load((k,), 2), dtype))
    for q in cb.unroll(range(2, 4)):
        out[k + q] = cb.packed_max(a[k + q], b[k + q], dtype)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
def test_each_half_of_a_word_is_the_larger_or_nan(dtype: Any) -> None:
    some = np.array([1, -1, 0.5, -0.0, 6e4, np.inf, -np.inf, np.nan], np.float32).astype(dtype)
    a, b = (np.ascontiguousarray(v).reshape(-1) for v in np.meshgrid(some, some))
    with emulated() as gpu:
        words = [upload(v.view(np.uint32), gpu) for v in (a, b, np.zeros_like(a))]
        larger_pairs[1, 8](*words, cb.as_dtype(dtype))
        got = words[2].numpy().view(dtype)
    wanted = np.maximum(*(v.astype(np.float32) for v in (a, b)))
    np.testing.assert_array_equal(got.astype(np.float32), wanted)


CASES = {  # shape, kernel, stride, padding, dilation, layout, dtype
    "lines of eight": ((1, 2, 9, 24), (3, 3), (1, 1), (1, 1), (1, 1), "NCHW", F16),
    "windows far from each other": ((1, 2, 9, 32), (2, 2), (2, 2), (0, 0), (1, 1), "NCHW", BF16),
    "a stride": ((1, 2, 9, 32), (3, 3), (2, 2), (1, 1), (1, 1), "NCHW", F16),
    "results that are no lines": ((1, 2, 9, 23), (5, 5), (1, 1), (2, 2), (1, 1), "NCHW", BF16),
    "one result in a row": ((1, 2, 9, 5), (3, 5), (1, 1), (1, 0), (1, 1), "NCHW", F16),
    "gaps": ((1, 2, 9, 24), (3, 3), (1, 1), (1, 1), (2, 2), "NCHW", F16),
    "gaps down": ((1, 2, 9, 24), (3, 3), (1, 1), (1, 1), (2, 1), "NCHW", BF16),
    "words of channels": ((1, 16, 6, 7), (3, 3), (1, 1), (1, 1), (1, 1), "NHWC", BF16),
    "words that are no lines": ((1, 6, 6, 7), (3, 2), (2, 1), (1, 0), (1, 1), "NHWC", F16),
    "an odd number of channels": ((1, 5, 6, 7), (3, 3), (1, 1), (1, 1), (1, 1), "NHWC", F16),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_windows_of_16_bit_floats(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, kernel, stride, pad, dilation, layout, dtype = CASES[case]
    found = []
    words_of = half2.words_of
    monkeypatch.setattr(
        "cubepy.kernels.pooling.gpu.max_sliding.words_of",
        lambda *a: found.append(words_of(*a)) or found[-1],
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    x[0, 0, 2, 3], x[0, -1, 1:5] = np.nan, -np.inf
    with emulated() as gpu:
        far = upload(np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if layout == "NHWC" else x, gpu)
        got = (
            K.max_pool2d(far, kernel, stride, pad, dilation, layout=layout)
            .numpy()
            .astype(np.float32)
        )
    got = got.transpose(0, 3, 1, 2) if layout == "NHWC" else got
    np.testing.assert_array_equal(got, largest(x, kernel, stride, pad, dilation))
    assert [pairs is not None for *_, pairs in found] == [layout == "NCHW" or shape[1] % 2 == 0]


def test_a_volume_of_16_bit_floats() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 5, 6, 16)).astype(F16)
    x[0, 0, 1, 2, 3] = np.nan
    wide = np.pad(
        x.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1)), constant_values=-np.inf
    )
    want = np.lib.stride_tricks.sliding_window_view(wide, (3, 3, 3), (2, 3, 4)).max((5, 6, 7))
    with emulated() as gpu:
        got = K.max_pool3d(upload(x, gpu), 3, 1, 1).numpy()
    np.testing.assert_array_equal(got.astype(np.float32), want)
