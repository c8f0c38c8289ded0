"""Launches of kernels of one's own that come again: new arrays and numbers, and the same rules."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy import errors
from cubepy.config import config


@cb.kernel
def annotated(a: cb.f32, n: cb.u8, flag: cb.bool_, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * a + n if flag else x[i]


@cb.kernel
def of_any(a, n, x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * cb.cast(a, cb.f64) + cb.cast(n, cb.f64)


@cb.kernel
def pairs(both, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = both[0][i] - both[1][i] * both[2]


@cb.kernel
def beyond(at, out: cb.Array):
    if cb.ABSOLUTE_POS == 0:
        out[at] = 1.0


FLOATS = st.floats(-1e300, 1e300) | st.sampled_from([0.1, float("inf"), 1e39, -0.0, 2**24 + 1.0])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(FLOATS, st.integers(0, 255), st.booleans()), min_size=3, max_size=6),
    st.sampled_from([float, np.float32, np.float64, np.float16]),
    st.sampled_from([int, np.int64, np.uint8]),
    st.integers(1, 70),
)
def test_numbers_are_converted_for_their_parameters(
    calls: list[Any], kind: Any, integer: Any, length: int
) -> None:
    with np.errstate(all="ignore"):
        for a, n, flag in calls:
            x, out = np.arange(length, dtype=np.float32), np.zeros(length, np.float32)
            annotated[cb.over(out)](kind(a), integer(n), flag, x, out)
            expected = x * np.float32(kind(a)) + np.float32(n) if flag else x
            np.testing.assert_array_equal(out, expected)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(FLOATS, st.integers(-(2**62), 2**62)), min_size=3, max_size=6),
    st.sampled_from([float, np.float32, np.float64]),
    st.sampled_from([int, np.int64]),
)
def test_numbers_of_any_type_are_taken(calls: list[Any], kind: Any, integer: Any) -> None:
    with np.errstate(all="ignore"):
        for a, n in calls:
            x, out = np.arange(5, dtype=np.float64), np.zeros(5)
            of_any[cb.over(out)](kind(a), integer(n), x, out)
            np.testing.assert_array_equal(out, x * np.float64(kind(a)) + np.float64(n))


def test_a_tuple_of_arrays_and_numbers_may_change() -> None:
    for k in range(5):
        x, y, out = np.arange(9.0), np.full(9, 2.0), np.zeros(9)
        pairs[cb.over(out)]((x, y, float(k)), out)
        assert out.tolist() == (x - y * k).tolist()


def test_a_number_that_does_not_fit_is_refused_however_often_it_was_launched() -> None:
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    for _ in range(4):
        annotated[cb.over(out)](1.0, 255, True, x, out)
    for bad in (256, -1, np.int64(300)):
        with pytest.raises(errors.DTypeError, match="which cannot hold"):
            annotated[cb.over(out)](1.0, bad, True, x, out)
    with pytest.raises(errors.KernelTypeError, match="f32 but is given"):
        annotated[cb.over(out)]("1", 1, True, x, out)


def test_memory_is_looked_at_however_often_it_was_launched() -> None:
    room = np.arange(40, dtype=np.float32)
    for _ in range(4):
        annotated[cb.over(10)](2.0, 1, True, room[:10], room[20:30])
    with pytest.raises(errors.AliasError, match="overlaps"):
        annotated[cb.over(10)](2.0, 1, True, room[:10], room[5:15])
    before = room[:10].copy()
    annotated[cb.over(10)](2.0, 1, True, room[:10], room[:10])  # exactly in place is allowed
    assert room[:10].tolist() == (before * 2 + 1).tolist()
    fixed = room[20:30]
    fixed.flags.writeable = False
    with pytest.raises(errors.ReadOnlyError, match="read-only"):
        annotated[cb.over(10)](2.0, 1, True, room[:10], fixed)


def test_a_fault_is_reported_each_time_and_once() -> None:
    out = np.zeros(8)
    for k in range(6):
        if k % 2:
            with pytest.raises(errors.OutOfBoundsError, match="index 8 of 'out'"):
                beyond[1, 1](8, out, mode="validate")
        else:
            beyond[1, 1](k, out, mode="validate")
    assert out.tolist() == [1, 0, 1, 0, 1, 0, 0, 0]


def test_settings_count_however_often_it_was_launched() -> None:
    x, out = np.ones(100_000, np.float32), np.zeros(100_000, np.float32)
    for threads in (1, 2, 1, 3):
        with config.override(num_threads=threads, serial_elements=1):
            for k in range(6):
                annotated[cb.over(out)](float(k), threads, True, x, out)
                assert (out == k + threads).all()


def test_a_setting_that_changes_prepares_no_launch_again() -> None:
    x, out = np.ones(50_000, np.float32), np.zeros(50_000, np.float32)
    for threads in (1, 2) * 10:
        with config.override(num_threads=threads):
            annotated[cb.over(out)](2.0, threads, True, x, out)
            assert (out == 2 + threads).all()
        if threads == 1:
            known = len(annotated.launches.local.table)
    assert len(annotated.launches.local.table) == known


def test_a_launch_that_came_before_passes_few_functions() -> None:
    x, out = np.ones(3, np.float32), np.zeros(3, np.float32)
    launch = lambda: annotated[cb.over(out)](1.5, 2, True, x, out)
    for _ in range(5):
        launch()
    entered: list[str] = []
    sys.setprofile(
        lambda frame, event, _: entered.append(frame.f_code.co_name) if event == "call" else None
    )
    try:
        launch()
    finally:
        sys.setprofile(None)
    assert "quick" in entered, "the launch is not repeated by machine code"
    assert len(entered) <= 40, " ".join(entered)
