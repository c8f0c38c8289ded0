"""gather, scatter, select, index_put, concat, flip and pad against NumPy: any axis, strides, ties,
edges, refusals.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.kernels.indexing import gather_cpu
from cubepy.kernels.indexing.routines import INDEX_PUT, SCATTER
from cubepy.tune.routine import listening
from tests.properties import choose_as_on
from tests.staging import WHERE

F = np.float32
RNG = np.random.default_rng(0)
same = np.testing.assert_array_equal


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=F)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_gather_take_and_select_along_every_axis(axis: int) -> None:
    for x in (draw(5, 6, 7), draw(7, 5, 6).transpose(1, 2, 0), draw(3, 1, 20)):
        order = np.argsort(x, axis)
        same(K.take_along_axis(x, order, axis), np.take_along_axis(x, order, axis))
        same(K.take_along_axis(x, order - x.shape[axis], axis), np.take_along_axis(x, order, axis))
        same(K.gather(x, axis, order), np.take_along_axis(x, order, axis))
        picks = RNG.integers(0, x.shape[axis], 9)
        same(K.select(x, axis, picks), np.take(x, picks, axis))


def test_gather_with_a_shorter_index_and_take_with_a_broadcast_one() -> None:
    x = RNG.integers(0, 99, (6, 8, 5))
    index = RNG.integers(0, 8, (4, 3, 5)).astype(np.int32)
    same(K.gather(x, 1, index), np.take_along_axis(x[:4], index, 1))
    one = RNG.integers(0, 6, (2, 1, 5))
    same(K.take_along_axis(x, one, 0), np.take_along_axis(x, one, 0))
    same(
        K.take_along_axis(x, np.array([3, -1]), None),
        np.take_along_axis(x, np.array([3, -1]), None),
    )
    assert K.gather(x, 1, np.zeros((6, 0, 5), np.int64)).shape == (6, 0, 5)


def scattered(x: np.ndarray, axis: int, index: np.ndarray, src: Any, update: str) -> np.ndarray:
    """The definition, element by element."""
    out = x.copy()
    src = np.broadcast_to(src, index.shape) if np.ndim(src) == 0 else src
    steps = {
        "assign": lambda a, b: b,
        "add": lambda a, b: a + b,
        "mul": lambda a, b: a * b,
        "min": np.minimum,
        "max": np.maximum,
    }
    for at in np.ndindex(index.shape):
        to = (*at[:axis], index[at], *at[axis + 1 :])
        out[to] = steps[update](out[to], src[at])
    return out


@pytest.mark.parametrize("update", ["assign", "add", "mul", "min", "max"])
def test_scatter_with_every_update(update: str) -> None:
    for shape, axis in (((6, 5, 7), 0), ((6, 5, 7), 1), ((6, 5, 7), 2), ((40,), 0)):
        x = draw(*shape)
        index_shape = tuple(max(1, n - 1) if k != axis else 9 for k, n in enumerate(shape))
        index = RNG.integers(0, shape[axis], index_shape)
        src = draw(*(n + 1 for n in index_shape))
        cut = src[tuple(slice(0, n) for n in index_shape)]
        with cb.config.override(deterministic=True):
            same(K.scatter(x, axis, index, src, update), scattered(x, axis, index, cut, update))
            same(K.scatter(x, axis, index, 2.0, update), scattered(x, axis, index, 2.0, update))


def test_scatter_in_place_of_integers_and_of_nan() -> None:
    x = np.zeros(5, np.int16)
    assert K.scatter(x, 0, np.array([1, 1, 4]), np.array([3, 4, 5], np.int16), "add", out=x) is x
    assert x.tolist() == [0, 7, 0, 0, 5]
    got = K.scatter(np.zeros(3, F), 0, np.array([0, 1]), np.array([np.nan, 1], F), "max")
    assert np.isnan(got[0]) and got[1] == 1
    base = draw(4, 4)
    same(
        K.scatter(base.T, 0, np.zeros((1, 4), np.int64), 0.0),
        scattered(base.T, 0, np.zeros((1, 4), np.int64), 0.0, "assign"),
    )


@pytest.mark.parametrize("update", ["assign", "add"])
def test_index_put(update: str) -> None:
    x = draw(6, 5, 7)
    rows, columns = np.array([[0, 5], [-1, 2]]), np.array([1, -2])
    values = draw(2, 2, 7)
    want = x.copy()
    if update == "add":
        np.add.at(want, (rows, columns), values)
    else:
        want[rows, columns] = values
    same(K.index_put(x, (rows, columns), values, update), want)
    want = x.copy()
    want[np.array([1, 3])] = 4
    same(K.index_put(x, (np.array([1, 3]),), 4.0), want)


def test_concat_and_flip() -> None:
    xs = [draw(3, n, 5) for n in (1, 4, 0, 2)]
    same(K.concat(xs, 1), np.concatenate(xs, 1))
    same(K.concat([x.T for x in xs], -2), np.concatenate([x.T for x in xs], -2))
    mixed = K.concat([np.arange(3), np.ones(2, F)])
    assert mixed.dtype == F and mixed.tolist() == [0, 1, 2, 1, 1]
    x = draw(7, 3, 37)
    for axis in (None, 0, 1, 2, (0, 2)):
        same(K.flip(x, axis), np.flip(x, axis))
    same(K.flip(x.T, 2), np.flip(x.T, 2))
    same(K.flip(np.arange(5000)), np.arange(5000)[::-1])


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_pad(mode: str) -> None:
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
    for shape, widths in (
        ((40,), (3, 5)),
        ((4, 9), (2, 3, 1, 3)),
        ((2, 3, 5, 70), (1, 2, 2, 0)),
        ((2, 3, 4), (0, 0, 1, 1)),
    ):
        x = draw(*shape)
        pairs = [(0, 0)] * (len(shape) - len(widths) // 2) + [
            widths[i : i + 2] for i in range(len(widths) - 2, -1, -2)
        ]
        options = {"constant_values": 1.5} if mode == "constant" else {}
        same(K.pad(x, widths, mode, 1.5), np.pad(x, pairs, names[mode], **options))


def test_negative_pads_cut_and_empty_arrays_fill() -> None:
    x = draw(4, 9)
    same(K.pad(x, (-2, 1)), np.pad(x[:, 2:], ((0, 0), (0, 1))))
    same(K.pad(np.zeros((2, 0), F), (1, 2), value=3), np.full((2, 3), 3, F))
    same(K.pad(np.arange(3, dtype=np.uint8), (1, 0), value=7), np.array([7, 0, 1, 2], np.uint8))


def test_what_makes_no_sense_is_refused() -> None:
    x = draw(3, 4)
    if not WHERE:  # a GPU reports it in validate mode
        with pytest.raises(errors.OutOfBoundsError, match="index 4 is outside"):
            K.gather(x, 1, np.array([[4]]))
        with pytest.raises(errors.OutOfBoundsError, match="index -1 is outside"):
            K.scatter(x, 0, np.array([[-1]]), 0.0)
    with pytest.raises(errors.ShapeError, match="does not go with"):
        K.gather(x, 1, np.zeros((4, 1), np.int64))
    with pytest.raises(errors.DTypeError, match="integer indices"):
        K.select(x, 0, np.array([0.5]))
    with pytest.raises(errors.ShapeError, match="an update is one of"):
        K.scatter(x, 0, np.array([[0]]), 0.0, "sub")
    with pytest.raises(errors.ShapeError, match="does not cover"):
        K.scatter(x, 0, np.zeros((2, 2), np.int64), draw(1, 1))
    with pytest.raises(errors.ShapeError, match="concat along axis 0"):
        K.concat([x, draw(3, 5)])
    with pytest.raises(errors.ShapeError, match="reflect by 4"):
        K.pad(x, (4, 0), "reflect")


@pytest.mark.parametrize("deterministic", [False, True])
def test_where_units_are_threads_the_order_is_fixed_if_asked_for(
    monkeypatch: Any, deterministic: bool
) -> None:
    """The launches of a GPU, run here: the same results; in order, to the last bit."""
    rng = np.random.default_rng(2)
    x, src = np.zeros((50, 9), np.float32), rng.standard_normal((400, 9), dtype=np.float32)
    places = rng.integers(0, 50, (400, 9))
    rows = rng.integers(0, 50, 400)
    with cb.config.override(deterministic=True), cb.use("cpu"):
        want = (
            K.scatter(x, 0, places, src, "add"),
            K.index_put(x, (rows,), src, "add"),
            K.index_put(x, (rows,), src),
        )
    launched: list[str] = []
    for op in (SCATTER, INDEX_PUT):
        choose_as_on(monkeypatch, op, plane_size=32)
    with (
        cb.config.override(deterministic=deterministic),
        listening(lambda op, *_: launched.append(op.name)),
    ):
        got = (
            K.scatter(x, 0, places, src, "add"),
            K.index_put(x, (rows,), src, "add"),
            K.index_put(x, (rows,), src),
        )
    assert launched.count("scatter") == 1 and launched.count("index_put") == 2
    for a, b in zip(got[:2], want[:2]):
        np.testing.assert_allclose(a, b, rtol=0, atol=0 if deterministic else 1e-5)
    if deterministic:
        assert (got[2] == want[2]).all()


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_many_indices_are_looked_at(dtype: Any) -> None:
    """By a kernel, in parts: the one that is wrong is found wherever it is."""
    x = draw(3, 700)
    index = np.random.default_rng(1).integers(0, 700, (3, 16_391)).astype(dtype)
    same(K.gather(x, 1, index), np.take_along_axis(x, index.astype(np.int64), 1))
    if WHERE:
        return
    for place in ((0, 0), (1, 9000), (2, 16_390)):
        wrong = index.copy()
        wrong[place] = 700
        with pytest.raises(errors.OutOfBoundsError, match="index 700 is outside"):
            K.gather(x, 1, wrong)
        if np.dtype(dtype).kind == "i":
            wrong[place] = -1
            with pytest.raises(errors.OutOfBoundsError, match="index -1 is outside"):
                K.scatter(x, 1, wrong, 1.0, "add")


@pytest.mark.skipif(bool(WHERE), reason="stores past the caches of a CPU")
def test_a_gather_of_much_is_stored_past_the_caches(monkeypatch: Any) -> None:
    kernel, past = gather_cpu.gather_lines, []

    class Watched:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **kwargs: past.append(args[-1]) or kernel[grid](*args, **kwargs)

    monkeypatch.setattr(gather_cpu, "gather_lines", Watched())
    monkeypatch.setattr(gather_cpu, "STREAMING_BYTES", 100_000)
    x = draw(4, 5001)
    for columns in (8208, 8207, 800):  # rows of whole lines; others; little
        index = RNG.integers(0, 5001, (4, columns))
        same(K.gather(x, 1, index), np.take_along_axis(x, index, 1))
    assert past == [True, False, False]


def test_one_element_of_each_of_many_rows() -> None:
    for dtype in (np.float32, np.int64, ml_dtypes.bfloat16):
        for rows in (2, int(RNG.integers(3, 4096)), 4096, int(RNG.integers(4097, 13000))):
            x = draw(rows, int(RNG.integers(1, 30))).astype(dtype)
            picks = RNG.integers(0, x.shape[1], (rows, 1)).astype(RNG.choice([np.int32, np.int64]))
            for _ in range(2):
                same(K.gather(x, 1, picks), np.take_along_axis(x, picks, 1))
                same(K.take_along_axis(x, picks - x.shape[1]), np.take_along_axis(x, picks, 1))
            picks[int(RNG.integers(rows))] = x.shape[1]
            with pytest.raises(errors.OutOfBoundsError):
                K.gather(x, 1, picks)
