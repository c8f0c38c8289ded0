"""Random kernels over every dtype on a compiled backend beside the python backend."""

from __future__ import annotations

import math
import random
import warnings
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.lang.dtypes import dtype_named
from tests.conformance.random_kernels.typed_source import Case, TypedSource

SHAPES: tuple[tuple[Any, Any], ...] = (
    (1, 4), (2, 3), (3, 1), (2, 5), ((2, 1), (2, 2)), (1, (3, 1, 2)), ((1, 2, 1), 4), (1, 8), (2, (1, 7)), (1, 13),
)  # fmt: skip
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    3.7,
    -2.5,
    math.inf,
    -math.inf,
    math.nan,
    1e-8,
    6e4,
    -1e5,
    1e30,
    5e-324,
    0.1,
    255.5,
    -129.0,
    1e-40,
)


ZEROS_ALIKE = ("min(", "max(", "clamp(")
"""Which of 0.0 and -0.0 the larger is, is not said."""


def typed_case(seed: int, size: int = 5) -> Case:
    """The kernel of a seed and its launch."""
    rng = random.Random(seed)
    shape = rng.choice(SHAPES)
    return TypedSource(rng, size).case(shape)


def numbers(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Ordinary and special numbers of a dtype."""
    d = dtype_named(dtype)
    if d.kind == "b":
        return rng.integers(0, 2, count).astype(bool)
    if d.is_float:
        values = np.where(
            rng.random(count) < 0.35, rng.choice(SPECIAL, count), rng.standard_normal(count) * 4
        )
        with np.errstate(all="ignore"):
            return values.astype(d.numpy)
    low, high = (
        (0, (1 << d.bits) - 1) if d.kind == "u" else (-(1 << d.bits - 1), (1 << d.bits - 1) - 1)
    )
    edge = [low, high, 0, 1, high - 1, 2, 3] + ([-1, -2, low + 1] if low else [])
    values = [
        int(rng.choice(np.array(edge, object)))
        if rng.random() < 0.4
        else int(rng.integers(-9 if low else 0, 12))
        for _ in range(count)
    ]
    values = [min(max(v, low), high) for v in values]
    return np.array(values, np.int64 if low else np.uint64).astype(d.numpy)


def laid(rng: np.random.Generator, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The values in memory of some layout: whole, transposed, backwards, in steps, stretched."""
    count = math.prod(shape)
    whole = values[:count].reshape(shape)
    how = rng.integers(0, 5)
    if how == 1:
        return np.ascontiguousarray(whole.T).T
    if how == 2:
        return np.ascontiguousarray(whole[::-1])[::-1]
    if how == 3:
        wide = np.zeros((*shape[:-1], 2 * shape[-1]), values.dtype)
        wide[..., ::2] = whole
        return wide[..., ::2]
    if how == 4 and len(shape) > 1:
        return np.broadcast_to(whole[:1], shape)
    return whole


def arguments(
    case: Case, seed: int, count: int
) -> tuple[list[np.ndarray], list[np.ndarray], list[Any]]:
    rng = np.random.default_rng(seed)
    reads = []
    for dtype, rank in case.inputs:
        shape = tuple(int(n) for n in rng.integers(2, 7, rank))
        reads.append(laid(rng, numbers(rng, dtype, math.prod(shape)), shape))
    writes = [np.zeros((count, 2), dtype_named(d).numpy) for d in case.outputs]
    if seed % 2:
        writes = [np.zeros((2, count), w.dtype).T for w in writes]
    writes.append(np.zeros(count * case.line[1], dtype_named(case.line[0]).numpy))
    writes.append(np.zeros((count, 2), dtype_named(case.math).numpy))
    writes += [np.arange(6).astype(dtype_named(d).numpy) for d in case.sums]
    scalars = [numbers(rng, d, 1)[0] for d in case.scalars]
    return reads, writes, scalars


def check(module: Any, device: str, case: Case, seeds: tuple[int, ...] = (0, 1, 2)) -> str:
    """Launch on a compiled backend and on the python backend; gives how they differ."""
    cubes, units = case.shape
    count = int(np.prod(cubes)) * int(np.prod(units))
    for seed in seeds:
        results = []
        module.OUTSIDE = seed % 2 if case.changing else 5
        for where in (device, "python"):
            reads, writes, scalars = arguments(case, seed, count)
            rng = np.random.default_rng(seed + 100)
            fields = {n: numbers(rng, d, 1)[0] for n, d in zip("abc", case.fields, strict=True)}
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                module.random_kernel[cubes, units](
                    *reads,
                    *writes,
                    *scalars,
                    module.Record(**fields, code=case.code),
                    conf=case.settings,
                    device=where,
                )
            cb.sync(where)
            results.append(writes)
        for k, (have, want) in enumerate(zip(*results, strict=True)):
            near = k == len(case.outputs) + 1
            found = differs(have, want, near, any(w in case.source for w in ZEROS_ALIKE))
            if found:
                names = [f"o{n}" for n in range(len(case.outputs))] + ["ol", "om", "c0", "c1"]
                return f"input {seed}: {names[k]}: {found}"
    return ""


def differs(have: np.ndarray, want: np.ndarray, near: bool, zeros_alike: bool = False) -> str:
    """How two arrays differ, zeros by their sign too unless they are alike; NaN is NaN."""
    if have.dtype.kind in "biu" and not near:
        wrong = have != want
    elif have.dtype.name in ("int4", "uint4"):
        wrong = have.astype(np.int8) != want.astype(np.int8)
    else:
        with np.errstate(all="ignore"):
            a, b = have.astype(np.float64), want.astype(np.float64)
            wrong = ~((a != a) & (b != b)) & ((a != b) | (np.signbit(a) != np.signbit(b)))
            if zeros_alike:
                wrong &= a != b
            if near:
                size = (
                    2.0
                    ** -{2: 7 if have.dtype.name == "bfloat16" else 10, 4: 20, 8: 46}[
                        have.dtype.itemsize
                    ]
                )
                least = {"float16": 6e-8, "bfloat16": 1e-40, "float32": 2e-45}.get(
                    have.dtype.name, 5e-324
                )
                wrong &= ~(np.abs(a - b) <= size * np.abs(b) + 4 * least)
    at = np.argwhere(wrong)
    if not len(at):
        return ""
    place = tuple(map(int, at[0]))
    return f"{len(at)} differ, at {list(place)} is {have[place]!r}, not {want[place]!r}"
