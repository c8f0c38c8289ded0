"""Random programs: op by op, as programs, and in array-api-strict they give the same."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
import cubepy.tensor as ours
from cubepy.tensor import Tensor
from tests.tensor.program.steps import EXACT, LONG, OTHERS, full

ANY = {**EXACT, **LONG, **OTHERS}
array_api_strict.set_array_api_strict_flags(api_version="2024.12")


def steps_of(names: Any, most: int) -> Any:
    """Steps, and which values they are given, counted from the latest."""
    one = st.tuples(st.sampled_from(sorted(names)), st.integers(0, 5), st.integers(0, 9))
    return st.lists(one, min_size=1, max_size=most)


SHAPES = st.sampled_from([(1, 1), (3, 5), (4, 17), (2, 64), (5, 130), (7, 3)])
SMALL = st.sampled_from([(1, 1), (3, 5), (2, 17)])
WANTED = st.lists(st.integers(0, 3), min_size=1, max_size=3)


def arrays(seed: int, shape: tuple[int, int]) -> list[np.ndarray]:
    """Two of the shape, and three that broadcast to it."""
    rng = np.random.default_rng(seed)
    shapes = [shape, shape, shape[1:], (shape[0], 1), ()]
    return [np.asarray(rng.standard_normal(s), np.float32) for s in shapes]


def results(xp: Any, steps: Any, wanted: list[int], inputs: Any) -> list[Any]:
    """What a program gives in a namespace; one that moves or sums is given (rows, columns)."""
    values = list(inputs)
    for name, i, j in steps:
        a, b = values[-1 - i % len(values)], values[-1 - j % len(values)]
        if name in OTHERS:
            a, b = full(xp, a, inputs[0]), full(xp, b, inputs[0])
        values.append(ANY[name](xp, a, b))
    made = values[len(inputs) :]
    return [made[-1 - w % len(made)] * 1.0 for w in wanted]


def numpy_of(array: Any) -> np.ndarray:
    return np.asarray(array._array)


def in_strict(steps: Any, wanted: list[int], given: list[np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        inputs = [array_api_strict.asarray(x) for x in given]
        return [numpy_of(y) for y in results(array_api_strict, steps, wanted, inputs)]


def both(steps: Any, wanted: list[int], given: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Op by op, and what a program gives: traced, recorded and replayed."""

    def function(*inputs: Tensor) -> list[Tensor]:
        return results(ours, steps, wanted, inputs)

    tensors = [cb.tensor(x) for x in given]
    program = cb.jit(function)
    return [[y.numpy() for y in run(*tensors)] for run in (function, program, program, program)]


@settings(max_examples=24)
@given(steps=steps_of(EXACT, 12), wanted=WANTED, shape=SHAPES, seed=st.integers(0, 1000))
def test_maps_agree_bit_by_bit(
    steps: Any, wanted: list[int], shape: tuple[int, int], seed: int
) -> None:
    given = arrays(seed, shape)
    want = in_strict(steps, wanted, given)
    for found in both(steps, wanted, given):
        for one, other in zip(found, want, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)


@settings(max_examples=8)
@given(steps=steps_of(EXACT, 8), wanted=WANTED, shape=SMALL, seed=st.integers(0, 1000))
def test_maps_agree_bit_by_bit_with_the_python_backend(
    steps: Any, wanted: list[int], shape: tuple[int, int], seed: int
) -> None:
    """Kernels that Python interprets: each op at once, programs, and NumPy."""
    given = arrays(seed, shape)
    want = in_strict(steps, wanted, given)
    with cb.use("python"), np.errstate(all="ignore"):
        interpreted = both(steps, wanted, given)
    for found in [*interpreted, *both(steps, wanted, given)]:
        for one, other in zip(found, want, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)


@settings(max_examples=14)
@given(
    steps=steps_of({**EXACT, **LONG}, 12), wanted=WANTED, shape=SHAPES, seed=st.integers(0, 1000)
)
def test_programs_of_maps_are_their_ops_bit_by_bit(
    steps: Any, wanted: list[int], shape: tuple[int, int], seed: int
) -> None:
    at_once, *programs = both(steps, wanted, arrays(seed, shape))
    for found in programs:
        for one, other in zip(found, at_once, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


SMOOTH = {
    n: step
    for n, step in ANY.items()
    if n
    not in "floor trunc round sign ints halves bits bytes booleans remainder both where "
    "copysign wide narrow any counted triangle".split()
} | {"triangle": OTHERS["triangle"]}
"""Steps whose results move a little where what they are given moves a little."""


@settings(max_examples=24)
@given(steps=steps_of(SMOOTH, 10), wanted=WANTED, shape=SHAPES, seed=st.integers(0, 1000))
def test_programs_of_all_kinds(
    steps: Any, wanted: list[int], shape: tuple[int, int], seed: int
) -> None:
    """In f64, where what is summed in another order shows nothing but its rounding."""
    given = [x.astype(np.float64) for x in arrays(seed, shape)]
    want = in_strict(steps, wanted, given)
    for found in both(steps, wanted, given):
        for one, other in zip(found, want, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            scale = np.abs(other[np.isfinite(other)]).max(initial=1.0)
            np.testing.assert_allclose(one, other, 1e-7, 1e-7 * scale)


@settings(max_examples=14)
@given(steps=steps_of(ANY, 10), wanted=WANTED, shape=SHAPES, seed=st.integers(0, 1000))
def test_programs_in_f32_run(
    steps: Any, wanted: list[int], shape: tuple[int, int], seed: int
) -> None:
    """Of all kinds of steps: dtypes, shapes, and the same in every call."""
    at_once, *programs = both(steps, wanted, arrays(seed, shape))
    strict = in_strict(steps, wanted, arrays(seed, shape))
    for found in [at_once, *programs]:
        for one, other in zip(found, strict, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
    for one, other in zip(programs[1], programs[2], strict=True):
        np.testing.assert_array_equal(one, other)


NARROW = {
    n: step for n, step in SMOOTH.items() if n in {*EXACT, *LONG, "softmax", "norm", "rms_norm"}
}


def off_by(found: np.ndarray, want: np.ndarray) -> float:
    return float(np.sqrt(np.mean((found.astype(np.float64) - want) ** 2)))


@settings(max_examples=14)
@given(
    steps=steps_of(NARROW, 10),
    dtype=st.sampled_from(["f16", "bf16"]),
    shape=SHAPES,
    seed=st.integers(0, 1000),
)
def test_fused_programs_of_16_bits_round_less(
    steps: Any, dtype: str, shape: tuple[int, int], seed: int
) -> None:
    """What stays f32 between ops is nearer to f64 than what is rounded at each."""
    narrow = [cb.tensor(x).astype(dtype) for x in arrays(seed, shape)]
    exact = results(ours, steps, [0], [x.astype("f64") for x in narrow])[0].numpy()

    def function(*inputs: Tensor) -> Tensor:
        return results(ours, steps, [0], inputs)[0]

    program = cb.jit(function)
    at_once = function(*narrow)
    limit = 2.0**-8 if dtype == "bf16" else 2.0**-11
    half_a_unit = limit * float(np.sqrt(np.mean(exact**2)))
    for _ in range(3):
        fused = program(*narrow)
        assert fused.dtype is at_once.dtype
        if np.isfinite(at_once.astype("f64").numpy()).all():
            found, one_by_one = (off_by(t.astype("f64").numpy(), exact) for t in (fused, at_once))
            assert found <= 1.05 * one_by_one + half_a_unit
