"""What measuring an attention needs: arguments, a reference, tolerance and work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cubepy.kernels.attention.problem import Attention, Units
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import as_device, device_properties, gpu_of
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import TunedOp, Work

CHECKED = 24  # queries whose results are compared


class Attend(TunedOp):
    """Attention, as it is measured."""

    problem = Attention

    def outputs(self, args: tuple[Any, ...]) -> Sequence[Any]:
        """The result."""
        return args[4:5]

    def make(self, p: Attention, seed: int) -> tuple[Any, ...]:
        """query, key, value, mask, out, log-sum-exp, factor, as the routines take them."""
        rng, dtype = np.random.default_rng(seed), as_dtype(p.dtype).numpy
        groups, width = p.groups or p.heads, p.width or p.depth
        shapes = (
            (p.heads, p.length, p.depth),
            (groups, p.keys, p.depth),
            (groups, p.keys, width),
            (p.heads, p.length, width),
        )
        arrays: list[Any] = [
            rng.standard_normal((p.batch, *s), np.float32).astype(dtype) for s in shapes
        ]
        mask: Any = None
        if p.mask != "none":
            mask = rng.random((p.batch, 1, p.length, p.keys), np.float32)
            mask = mask < 0.75 if p.mask == "bool" else mask.astype(dtype)
        device = as_device(p.device)
        if gpu_of(device) is not None:
            arrays = [upload(a, device) for a in arrays]
            mask = None if mask is None else upload(mask, device)
        if mask is not None:
            mask = np.broadcast_to(mask, (p.batch, p.heads, p.length, p.keys))
        q, k, v, out = arrays
        return q, k, v, mask, out, None, p.depth**-0.5

    def reference(self, p: Attention, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
        """Some queries' results in float64."""
        q, k, v = (_host(a) for a in args[:3])
        shared = p.heads // (p.groups or p.heads)
        found = []
        for b, h, i in zip(*_checked(p), strict=True):
            scores = k[b, h // shared].astype(np.float64) @ q[b, h, i].astype(np.float64) * args[6]
            if p.mask != "none":
                row = _host(args[3])[b, h, i]
                scores = (
                    np.where(row, scores, -np.inf)
                    if p.mask == "bool"
                    else scores + row.astype(np.float64)
                )
            if p.causal:
                scores[i + 1 :] = -np.inf
            weights = np.exp(scores - max(scores.max(), -1e300))
            found.append(
                weights / max(weights.sum(), 1e-300) @ v[b, h // shared].astype(np.float64)
            )
        return [np.stack(found)]

    def results(self, p: Attention, args: tuple[Any, ...]) -> Sequence[np.ndarray]:
        """The same of what a routine wrote."""
        return [_host(args[4])[_checked(p)]]

    def tolerance(self, p: Attention) -> tuple[float, float]:
        """Relative and absolute: weights of 16 bits are rounded, and so are results."""
        unit = {"bf16": 3e-2, "f16": 5e-3}.get(p.dtype, 1e-4 if p.units else 2e-5)
        return unit, unit

    def work(self, p: Attention) -> Work:
        """Queries, keys and values are read once, results are written once; half of the products
        where it is causal.
        """
        size, width, groups = as_dtype(p.dtype).itemsize, p.width or p.depth, p.groups or p.heads
        moved = p.batch * (p.depth + width) * (p.heads * p.length + groups * p.keys)
        flops = 2 * p.batch * p.heads * p.length * p.keys * (p.depth + width)
        return Work(
            size * moved,
            flops // 2 if p.causal else flops,
            "f32" if p.device.startswith("cpu") else p.dtype,
        )

    def typical(self, device: str) -> Sequence[Attention]:
        """Heads of 64 and 128 as language models have them, and a single query."""
        features = device_properties(device).features
        units: Units = ""
        if "mma" in features:
            units = "wgmma" if {"wgmma", "tma"} <= features else "mma"
        elif {"mfma", "wmma"} & features:
            units = "fragments"
        dtype = "f16" if units else "f32"
        shapes = [
            (8, 12, 128, 128, 64),
            (1, 12, 512, 512, 64),
            (1, 8, 1024, 1024, 64),
            (1, 8, 512, 512, 128),
            (1, 12, 1, 1024, 64),
        ]
        found = [Attention(device, *s, dtype=dtype, units=units) for s in shapes]
        return [
            *found,
            Attention(device, 1, 8, 1024, 1024, 64, dtype=dtype, causal=True, units=units),
        ]


def _checked(p: Attention) -> tuple[np.ndarray, ...]:
    """Batch, head and place of some queries, the first and the last among them."""
    shape = p.batch, p.heads, p.length
    return np.unravel_index(
        np.unique(np.linspace(0, p.batch * p.heads * p.length - 1, CHECKED).astype(int)), shape
    )


def _host(a: Any) -> np.ndarray:
    return a if isinstance(a, np.ndarray) else a.numpy()  # type: ignore[no-any-return]
