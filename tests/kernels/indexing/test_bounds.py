"""Indices outside: one rule for every function that takes some, on the host, on a device with its
own memory, and in validate mode.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import OutOfBoundsError
from cubepy.runtime.device import as_device
from cubepy.runtime.memory.device_array import upload
from tests.pretend import NAME, pretend
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(
    bool(WHERE), reason="devices are chosen here; tests/device has the same for a GPU"
)
F = np.float32
N = 5  # the length of the axis


def places(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape) % N


def first(like: Any) -> Any:
    """Zeros where the others are."""
    zeros = np.zeros(like.shape, np.int64)
    return zeros if isinstance(like, np.ndarray) else upload(zeros, like.device)


CALLS: dict[
    str, tuple[Callable[..., Any], np.ndarray, bool]
] = {  # by an index, an index, does it count from the end
    "gather": (lambda x, i: K.gather(x, 1, i), places(4, 3), False),
    "gather of one column": (lambda x, i: K.gather(x[0], 0, i), places(3), False),
    "take_along_axis": (lambda x, i: K.take_along_axis(x, i, 1), places(4, 3), True),
    "select": (lambda x, i: K.select(x, 1, i), places(3), False),
    "select of one column": (lambda x, i: K.select(x[:1, :], 1, i), places(3), False),
    "embedding": (lambda x, i: K.embedding(i, x.T), places(2, 3), False),
    "scatter": (lambda x, i: K.scatter(x, 1, i, x[:, :3]), places(4, 3), False),
    "scatter, add": (lambda x, i: K.scatter(x, 1, i, x[:, :3], "add"), places(4, 3), False),
    "scatter, max": (lambda x, i: K.scatter(x, 1, i, x[:, :3], "max"), places(4, 3), False),
    "index_put": (lambda x, i: K.index_put(x.T, (i,), x.T[:3]), places(3), True),
    "index_put of elements": (
        lambda x, i: K.index_put(x[0], (i,), x[1, :3], "add"),
        places(3),
        True,
    ),
    "index_put by two": (
        lambda x, i: K.index_put(x, (first(i), i), x[0, :3], "mul"),
        places(3),
        True,
    ),
}
LATER = {  # only looked at in validate mode
    "max_pool1d_input": (lambda x, i: K.max_pool1d_input((1, 4, N), x[None, :, :4], i, 2, 1), places(1, 4, 4), False),
    "adaptive_max_pool1d_input": (
        lambda x, i: K.adaptive_max_pool1d_input((1, 4, N), x[None, :, :4], i), places(1, 4, 4), False,
    ),
}  # fmt: skip
BAD = [(-1, True), (-N, True), (N, False), (-N - 1, False), (2**40, False), (-(2**40), False)]


def table() -> np.ndarray:
    return np.arange(4 * N, dtype=F).reshape(4, N) + 1


def spoiled(index: np.ndarray, bad: int) -> np.ndarray:
    index = index.copy()
    index[(-1,) * index.ndim] = bad
    return index


def test_every_function_that_takes_indices_is_here() -> None:
    takes = {
        name for name in K.__all__ if inspect.isfunction(getattr(K, name))
        and {"index", "indices"} & set(inspect.signature(getattr(K, name)).parameters)
    }  # fmt: skip
    here = {name.split(",")[0].split(" ")[0] for name in (*CALLS, *LATER)} | {"embedding"}
    assert {name.replace("2d", "1d").replace("3d", "1d") for name in takes} | {"embedding"} == here


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("bad, relative", BAD)
def test_the_host_refuses_what_is_outside(name: str, bad: int, relative: bool) -> None:
    call, index, from_end = CALLS[name]
    wrong, x = spoiled(index, bad), table()
    for _ in range(4):  # repeated calls look, too
        call(x, index)
        if relative and from_end:
            np.testing.assert_array_equal(call(x, wrong), call(x, wrong % N))
            continue
        with pytest.raises(
            OutOfBoundsError,
            match=rf"{name.split()[0].strip(',')}: the index -?\d+ is outside an axis of",
        ):
            call(x, wrong)
    np.testing.assert_array_equal(x, table())


@pytest.mark.parametrize("name", [*CALLS, *LATER])
@pytest.mark.parametrize("mode", [{"mode": "validate"}, {"debug": 1}], ids=str)
def test_validate_mode_looks_at_indices_of_a_device(
    name: str, mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, index, _ = (CALLS | LATER)[name]
    with pretend(monkeypatch), cb.use(NAME):
        x, good, wrong = (
            upload(a, as_device(NAME)) for a in (table(), index, spoiled(index, 2 * N))
        )
        for _ in range(3):
            call(x, good)
            call(x, wrong)  # nothing is waited for, and nothing outside is touched
        np.testing.assert_array_equal(x.numpy(), table())
        with cb.config.override(**mode):
            for _ in range(3):
                call(x, good)
                with pytest.raises(
                    OutOfBoundsError,
                    match=rf"{name.split()[0].strip(',')}: the index \d+ is outside",
                ):
                    call(x, wrong)


@pytest.mark.parametrize("name", LATER)
def test_places_of_pools_are_dropped_or_refused_on_the_host(name: str) -> None:
    call, index, _ = LATER[name]
    for bad in (-1, N, 2**40):
        assert np.isfinite(call(table(), spoiled(index, bad))).all()
        with (
            cb.config.override(mode="validate"),
            pytest.raises(OutOfBoundsError, match=f"{name}: the index {bad} "),
        ):
            call(table(), spoiled(index, bad))


def test_what_is_outside_on_a_device_reads_zero_and_is_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pretend(monkeypatch), cb.use(NAME):
        check_reads_and_writes(as_device(NAME))


def check_reads_and_writes(gpu: Any, updates: tuple[str, ...] = ("assign", "add", "max")) -> None:
    """What every device does with an index outside in normal mode."""
    x = upload(table(), gpu)
    for bad in (-1, N, 2**40, -(2**40)):
        by_row, flat = (upload(np.array(i), gpu) for i in ([[0, bad]] * 4, [1, bad]))
        assert K.gather(x, 1, by_row).numpy()[:, 1].tolist() == [0] * 4
        assert K.select(x, 0, flat).numpy()[1].tolist() == [0] * N
        assert K.select(x, 1, flat).numpy()[:, 1].tolist() == [0] * 4
        rows = K.embedding(flat, x).numpy()
        assert rows[1].tolist() == [0] * N and rows[0].tolist() == table()[1].tolist()
        for update in updates:
            got = K.scatter(x, 1, by_row, upload(np.full((4, 2), 100, F), gpu), update).numpy()
            assert (got[:, 0] >= 100).all() and (got[:, 1:] == table()[:, 1:]).all()
        if bad != -1:
            assert K.take_along_axis(x, by_row, 1).numpy()[:, 1].tolist() == [0] * 4
            got = K.index_put(x, (flat,), upload(np.full((2, N), 100, F), gpu)).numpy()
            assert (got[1] == 100).all() and (got[[0, 2, 3]] == table()[[0, 2, 3]]).all()
            first, second = upload(np.array([0, 1]), gpu), upload(np.array([bad, 0]), gpu)
            got = K.index_put(x, (first, second), upload(np.full(2, 100, F), gpu), "add").numpy()
            want = table()
            want[1, 0] += 100
            assert (got == want).all(), "an index outside one axis names no place of another row"
