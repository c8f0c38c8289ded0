"""Attention on a GPU against float64: every routine, with masks, odd lengths and widths, grouped
heads, gradients.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
import cubepy.kernels as K
from cubepy.kernels.attention.gpu.flash_decoding_plan import Shape
from cubepy.kernels.attention.gradients import attention_forward, attention_gradients
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray, upload

HERE = Device("cuda")
BF16 = np.dtype(ml_dtypes.bfloat16)
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)
TOLERANCE = {BF16: 6e-3, F16: 1e-3, F32: 3e-6}


def draw(seed: int, dtype: Any, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def inputs(
    dtype: Any, b: int, h: int, g: int, length: int, seen: int, d: int, e: int | None = None
) -> list[np.ndarray]:
    return [
        draw(1, dtype, b, h, length, d),
        draw(2, dtype, b, g, seen, d),
        draw(3, dtype, b, g, seen, e or d),
    ]


def weights(
    q: np.ndarray, k: np.ndarray, causal: bool, mask: np.ndarray | None, scale: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """The matrix of weights and its log-sum-exp, in float64."""
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1).astype(np.float64)
    s = (
        q.astype(np.float64)
        @ k.swapaxes(2, 3)
        * (1 / math.sqrt(q.shape[3]) if scale is None else scale)
    )
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == np.bool_ else s + mask.astype(np.float64)
    if causal:
        s = np.where(np.tril(np.ones(s.shape[2:], np.bool_)), s, -np.inf)
    top = s.max(-1, keepdims=True)
    w = np.exp(s - np.where(np.isinf(top), 0, top))
    total = w.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return w / np.where(total == 0, 1, total), (top + np.log(total))[..., 0]


def expected(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    causal: bool = False,
    mask: Any = None,
    scale: Any = None,
) -> np.ndarray:
    w, _ = weights(q, k, causal, mask, scale)
    return w @ np.repeat(v, q.shape[1] // v.shape[1], axis=1).astype(np.float64)


def close(ours: Any, exact: np.ndarray, tolerance: float) -> None:
    """Compare by the norm of the difference; NaN fails."""
    got = ours.numpy().astype(np.float64)
    assert got.shape == exact.shape
    assert np.linalg.norm(got - exact) <= tolerance * np.linalg.norm(exact)


def on_device(arrays: list[np.ndarray]) -> list[DeviceArray]:
    return [upload(a, HERE) for a in arrays]


CASES = [
    (BF16, 2, 4, 4, 256, 256, 128), (BF16, 1, 4, 2, 300, 500, 128), (F16, 1, 2, 2, 1000, 777, 64),
    (BF16, 1, 3, 3, 190, 190, 256), (BF16, 2, 2, 1, 130, 64, 96), (F16, 1, 2, 2, 1, 700, 40),
    (F32, 1, 4, 2, 150, 200, 64), (F32, 1, 1, 1, 33, 17, 33), (BF16, 1, 2, 2, 70, 65, 30), (F32, 1, 1, 1, 100, 90, 256),
]  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: Any, causal: bool) -> None:
    arrays = inputs(*case)
    ours = K.attention(*on_device(arrays), is_causal=causal)
    assert isinstance(ours, DeviceArray)
    close(ours, expected(*arrays, causal), TOLERANCE[case[0]])


def test_other_widths_of_values_and_a_scale() -> None:
    arrays = inputs(BF16, 1, 2, 2, 128, 300, 64, 128)
    close(K.attention(*on_device(arrays), scale=0.3), expected(*arrays, scale=0.3), TOLERANCE[BF16])


def test_lengths_before_heads_in_memory() -> None:
    arrays = [draw(n, BF16, 2, 160, 3, 128) for n in range(3)]
    ours = K.attention(*(upload(a, HERE).transpose(0, 2, 1, 3) for a in arrays))
    close(ours, expected(*(a.transpose(0, 2, 1, 3) for a in arrays)), TOLERANCE[BF16])


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks(dtype: Any, kind: str) -> None:
    arrays = inputs(dtype, 2, 2, 2, 75, 90, 64)
    draws = np.random.default_rng(5).random((2, 1, 75, 90))
    mask: np.ndarray = draws < 0.6 if kind == "bool" else (draws * 4).astype(np.float32)
    ours = K.attention(*on_device(arrays), attn_mask=upload(mask, HERE))
    close(ours, expected(*arrays, mask=mask), TOLERANCE[dtype])


# dtype, shape (before queries and keys are 200 and 304), width, causal; blocks of nothing, of
# everything, of both
MASKS = [
    (np.bool_, (2, 1, 1, 304), 64, False), (np.bool_, (2, 1, 1, 304), 256, True), (F32, (1, 8, 1, 304), 128, True),
    (np.bool_, (1, 1, 200, 304), 64, True), (np.bool_, (2, 8, 200, 304), 128, False), (BF16, (1, 1, 200, 304), 128, True),
    (F16, (2, 8, 200, 304), 64, False), (F32, (2, 1, 200, 304), 64, False), (np.bool_, (2, 1, 200, 301), 64, False),
]  # fmt: skip


def hiding(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A mask, or numbers to be added, that hides the second block of keys and shows the first."""
    rng = np.random.default_rng(7)
    shown = rng.random(shape) < 0.6
    shown[..., :128] = True
    shown[..., 128:256] = False
    return (
        shown
        if dtype == np.bool_
        else np.where(shown, rng.standard_normal(shape), -np.inf).astype(dtype)
    )


@pytest.mark.parametrize(("dtype", "shape", "width", "causal"), MASKS)
def test_masks_by_tiles(dtype: Any, shape: tuple[int, ...], width: int, causal: bool) -> None:
    arrays = inputs(BF16, 2, 8, 2, 200, shape[3], width)
    mask = hiding(dtype, shape)
    ours = K.attention(*on_device(arrays), attn_mask=upload(mask, HERE), is_causal=causal)
    close(ours, expected(*arrays, causal, mask), TOLERANCE[BF16])


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    arrays = inputs(BF16, 1, 1, 1, 40, 40, 64)
    mask = np.ones((40, 40), np.bool_)
    mask[7] = False
    ours = K.attention(*on_device(arrays), attn_mask=upload(mask, HERE))
    assert not ours.numpy()[0, 0, 7].any()
    close(ours, expected(*arrays, mask=mask), TOLERANCE[BF16])


def test_large_scores_stay_finite() -> None:
    arrays = inputs(BF16, 1, 1, 1, 256, 256, 128)
    close(
        K.attention(*on_device(arrays), is_causal=True, scale=30.0),
        expected(*arrays, True, None, 30.0),
        3e-2,
    )


def test_results_do_not_vary() -> None:
    arrays = on_device(inputs(BF16, 1, 4, 4, 500, 500, 128))
    first = K.attention(*arrays, is_causal=True).numpy()
    for _ in range(5):
        assert np.array_equal(first, K.attention(*arrays, is_causal=True).numpy())


# dtype, batch, query heads, key heads, queries, keys, width
WORDS = [
    (BF16, 1, 8, 2, 1, 5000, 128), (F16, 3, 4, 4, 1, 900, 64), (BF16, 1, 16, 1, 5, 3001, 64),
    (BF16, 2, 12, 4, 1, 1, 128), (F16, 1, 6, 3, 17, 700, 80), (BF16, 1, 4, 4, 3, 2000, 33), (F32, 1, 4, 2, 2, 900, 64),
    (BF16, 1, 2, 2, 60, 4000, 256),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["none", "bool", "float", "causal"])
@pytest.mark.parametrize("case", WORDS, ids=str)
def test_few_queries_with_long_keys(case: Any, kind: str) -> None:
    arrays = inputs(*case)
    draws = np.random.default_rng(5).random((case[1], 1, case[4], case[5]))
    mask: Any = {"bool": draws < 0.6, "float": (draws * 4).astype(np.float32)}.get(kind)
    far = None if mask is None else upload(mask, HERE)
    with cb.tune.force("attention", "split"):
        ours = K.attention(*on_device(arrays), attn_mask=far, is_causal=kind == "causal")
    close(ours, expected(*arrays, kind == "causal", mask), TOLERANCE[case[0]])


def test_splitting_keys_does_not_vary_and_any_parts_agree() -> None:
    arrays = inputs(BF16, 1, 8, 2, 1, 4000, 128)
    far, right = on_device(arrays), expected(*arrays)
    for splits in (1, 2, 7, 63):
        with cb.tune.force("attention", "split", Shape(splits=splits)):
            first = K.attention(*far).numpy()
            assert all(np.array_equal(first, K.attention(*far).numpy()) for _ in range(5))
        assert np.linalg.norm(first.astype(np.float64) - right) <= TOLERANCE[BF16] * np.linalg.norm(
            right
        )


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_planes_without_keys_wait_for_those_that_have_some(dtype: Any) -> None:
    """Of four teams one has keys; the others' sums go where its keys were."""
    arrays = inputs(dtype, 2, 3, 3, 3, 20, 32)
    there = on_device(arrays)
    with cb.tune.force("attention", "split"):
        found = [K.attention(*there) for _ in range(2000)]
    assert len({one.numpy().tobytes() for one in found}) == 1
    close(found[0], expected(*arrays), TOLERANCE[dtype])


@pytest.mark.parametrize("seed", range(12))
def test_random_shapes(seed: int) -> None:
    """By whatever the rules choose: few queries and many, heads of one key head, lengths that fill
    no tile.
    """
    rng = np.random.default_rng(seed)
    dtype = (BF16, F16, F32)[seed % 3]
    groups, length = int(rng.choice([1, 2, 3])), int(rng.choice([1, 2, 16, 77, 130, 197, 260]))
    heads, seen = groups * int(rng.choice([1, 2, 4])), int(rng.integers(1, 1500))
    arrays = inputs(
        dtype, int(rng.integers(1, 4)), heads, groups, length, seen, int(rng.choice([40, 64, 128]))
    )
    causal = bool(rng.random() < 0.4)
    close(
        K.attention(*on_device(arrays), is_causal=causal),
        expected(*arrays, causal),
        TOLERANCE[dtype],
    )


GRADIENTS = [
    (BF16, 1, 2, 2, 256, 256, 128), (BF16, 2, 4, 2, 200, 333, 128), (F16, 1, 2, 1, 300, 140, 64),
    (BF16, 2, 4, 2, 200, 333, 256), (BF16, 1, 2, 2, 100, 130, 80), (F32, 1, 4, 2, 60, 70, 33),
    (F16, 1, 8, 1, 300, 140, 192),
]  # fmt: skip


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_gradients(case: Any, causal: bool) -> None:
    check_gradients(case, causal, None)


@pytest.mark.parametrize("dtype", [np.bool_, F32])
@pytest.mark.parametrize("case", GRADIENTS[1:4], ids=str)
def test_gradients_with_padding(case: Any, dtype: Any) -> None:
    check_gradients(case, dtype == np.bool_, hiding(dtype, (case[1], 1, 1, case[5])))


def check_gradients(case: Any, causal: bool, mask: np.ndarray | None) -> None:
    dtype, g, h = case[0], case[3], case[2]
    q, k, v = arrays = inputs(*case)
    grad = draw(4, dtype, *q.shape)
    far_mask = None if mask is None else upload(mask, HERE)
    out, lse = attention_forward(*on_device(arrays), is_causal=causal, attn_mask=far_mask)
    ours = attention_gradients(
        upload(grad, HERE), *on_device(arrays), out, lse, is_causal=causal, attn_mask=far_mask
    )
    w, exact_lse = weights(q, k, causal, mask, None)
    assert np.abs(lse.numpy() - exact_lse).max() < 1e-4
    do, scale = grad.astype(np.float64), 1 / math.sqrt(q.shape[3])
    wide_k, wide_v = (np.repeat(a, h // g, axis=1).astype(np.float64) for a in (k, v))
    dp = do @ wide_v.swapaxes(2, 3)
    ds = w * (dp - (w * dp).sum(-1, keepdims=True)) * scale
    together = lambda a: a.reshape(a.shape[0], g, h // g, *a.shape[2:]).sum(2)
    close(ours[0], ds @ wide_k, 8e-3)
    close(ours[1], together(ds.swapaxes(2, 3) @ q.astype(np.float64)), 8e-3)
    close(ours[2], together(w.swapaxes(2, 3) @ do), 8e-3)


def test_gradients_of_one_projection_lie_as_it_does() -> None:
    """Queries, keys and values of one array: so are the gradients, on it as on arrays of each."""
    for b, length, heads, groups in ((2, 130, 3, 3), (1, 77, 4, 2)):
        row = (heads + 2 * groups) * 64
        whole = draw(1, BF16, b, length, row)
        there = upload(whole, HERE).reshape(b, length, row // 64, 64).transpose(0, 2, 1, 3)
        cuts = (0, heads, heads + groups, heads + 2 * groups)
        joined = [there[:, i:j] for i, j in pairwise(cuts)]
        apart = [x.copy() for x in joined]
        grad = upload(draw(2, BF16, b, heads, length, 64), HERE)
        found = []
        for given in (joined, apart):
            result, lse = attention_forward(*given)
            found.append(attention_gradients(grad, *given, result, lse))
        assert result.strides[1] > result.strides[2]
        dq, dk, dv = found[0]
        assert dq.strides == dk.strides == dv.strides == joined[0].strides
        assert dk.address - dq.address == heads * 128
        assert dv.address - dk.address == groups * 128
        for one, other in zip(*found, strict=True):
            a, b_ = (x.copy().numpy().astype(np.float64) for x in (one, other))
            assert np.linalg.norm(a - b_) <= 4e-3 * np.linalg.norm(b_)
