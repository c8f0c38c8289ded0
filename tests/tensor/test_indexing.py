"""Reading and writing by index: as NumPy does, with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy.errors import DTypeError, LaunchError, OutOfBoundsError, ShapeError
from cubepy.tensor import record
from tests.tensor.finite import check_gradients

SHAPE = (3, 4, 2, 3)


def _array(draw: Any, n: int, shape: tuple[int, ...]) -> np.ndarray:
    size = int(np.prod(shape))
    values = draw(st.lists(st.integers(-n, n - 1), min_size=size, max_size=size))
    return np.array(values, np.int64).reshape(shape)


@st.composite
def indices(draw: Any) -> tuple[Any, ...]:
    """Any mix of integers, slices, None, ..., masks and arrays of integers that broadcast, also as
    lists, tuples and ranges.
    """
    common = draw(st.sampled_from([(), (1,), (2,), (2, 3), (0,)]))
    parts: list[Any] = []
    axis, masked = 0, False
    while axis < len(SHAPE):
        kind = draw(st.sampled_from(["int", "slice", "array", "mask", "mask2", "none", "end"]))
        n = SHAPE[axis]
        if kind == "end":
            break
        if kind == "none":
            if len(parts) > 5:
                break
            parts.append(None)
            continue
        if kind == "int":
            parts.append(draw(st.integers(-n, n - 1)))
        elif kind == "slice":
            ends = st.none() | st.integers(-n - 1, n + 1)
            parts.append(slice(draw(ends), draw(ends), draw(st.sampled_from([None, 1, 2, -1, -2]))))
        elif kind == "array":
            keep = draw(st.integers(0, len(common)))
            drawn = _array(draw, n, common[len(common) - keep :])
            form = draw(st.sampled_from([np.asarray, list, tuple, range]))
            if form is range and common and common[-1] <= n:
                parts.append(range(common[-1])[:: draw(st.sampled_from([1, -1]))])
            else:
                parts.append(form(drawn.tolist()) if keep == 1 and form in (list, tuple) else drawn)
        elif not masked and common in ((), (1,)) and (kind == "mask" or axis + 1 < len(SHAPE)):
            masked = True
            shape = SHAPE[axis : axis + (1 if kind == "mask" else 2)]
            parts.append(_array(draw, 2, shape) > 0)
            axis += len(shape) - 1
        else:
            continue
        axis += 1
    if axis < len(SHAPE) and draw(st.booleans()):
        parts.append(Ellipsis)
    return tuple(parts)


def _tensors(index: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arrays of rank 1 or more as tensors."""
    return tuple(cb.tensor(p) if isinstance(p, np.ndarray) and p.ndim else p for p in index)


@settings(max_examples=150, deadline=None)
@given(indices())
def test_reading_is_numpys(index: tuple[Any, ...]) -> None:
    x = np.arange(72.0).reshape(SHAPE)
    want = x[index]
    got = cb.tensor(x)[_tensors(index)]
    assert got.shape == want.shape and (got.numpy() == want).all()


@settings(max_examples=30, deadline=None)
@given(indices())
def test_indices_of_programs_may_be_tensors_of_any_rank(index: tuple[Any, ...]) -> None:
    x = np.arange(72.0).reshape(SHAPE)
    assume(not any(isinstance(p, np.ndarray) and p.dtype == np.bool_ for p in index))
    numbers = [type(p) is int or (isinstance(p, np.ndarray) and p.ndim == 0) for p in index]
    given = [cb.tensor(p) for p, number in zip(index, numbers, strict=True) if number]

    @cb.jit
    def read_and_write(t: Any, *given: Any) -> tuple[Any, Any]:
        spots, written = iter(given), t * 1
        at = tuple(next(spots) if n else p for p, n in zip(index, numbers, strict=True))
        written[at] = -t[at]
        return t[at], written

    want, changed = x[index], x.copy()
    changed[index] = -want
    for _ in range(2):
        got, written = read_and_write(cb.tensor(x), *given)
        assert got.shape == want.shape and (got.numpy() == want).all()
        assert _repeats(index) or (written.numpy() == changed).all()


def _repeats(index: tuple[Any, ...]) -> bool:
    """Whether a place is written more than once."""
    places = np.arange(np.prod(SHAPE)).reshape(SHAPE)[index]
    return len(np.unique(places)) < places.size


@settings(max_examples=150, deadline=None)
@given(indices(), st.booleans())
def test_writing_is_numpys(index: tuple[Any, ...], number: bool) -> None:
    x = np.arange(72.0).reshape(SHAPE)
    value: Any = 5.0 if number else -1.0 - np.arange(x[index].size).reshape(x[index].shape)
    t = cb.tensor(x.copy())
    before = t * 1
    t[_tensors(index)] = value if number else cb.tensor(value)
    want = x.copy()
    want[index] = value
    flat = np.arange(72).reshape(SHAPE)[index].reshape(-1)
    if np.unique(flat).size == flat.size:
        assert (t.numpy() == want).all()
    else:  # of several values for one place any may be there
        rest = np.setdiff1d(np.arange(72), flat)
        assert (t.numpy().reshape(-1)[rest] == x.reshape(-1)[rest]).all()
    assert (before.numpy() == x).all()


def some(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, shape)


READS: list[Any] = [
    [2, 0],
    (slice(None), [1, -1]),
    ([0, 2], slice(1, None), [1, 1]),
    (np.array([[0], [2]]), [1, 3]),
    (0, slice(None), [1, 0]),
    (None, [1], ..., slice(None, None, -1)),
]


@pytest.mark.parametrize("index", READS, ids=str)
def test_gradients_of_reading_and_writing(index: Any) -> None:
    x = some(3, 4, 2)
    check_gradients(lambda t: t[index].exp() + t[[0, 2, 0]].sum(), x)

    def written(t: Any, v: Any) -> Any:
        y = t * t
        y[index] = v
        return y.sin() + y[index].sum()

    value = some(*x[index].shape)
    check_gradients(written, x, value[:1], second=False)


def test_gradients_of_masks_and_slices() -> None:
    x = some(3, 4)
    mask = cb.tensor(x > 0)
    check_gradients(lambda t: t[mask].exp(), x)

    def by_mask(t: Any, v: Any) -> Any:
        y = t * t
        y[mask] = v.sum()
        return y.sin()

    def by_slice(t: Any, v: Any) -> Any:
        y = t * t
        y[1:, ::2] = v
        return y.sin()

    check_gradients(by_mask, x, some(2))
    check_gradients(by_slice, x, some(2))


def test_writing_gives_the_handle_a_new_value() -> None:
    x = cb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * 2
    z = y * y
    y[0] = 10.0
    y[[1]] += 1
    assert y.tolist() == [10.0, 5.0, 6.0] and z.tolist() == [4.0, 16.0, 36.0]
    (y.sum() + z.sum()).backward()
    assert x.grad is not None and x.grad.tolist() == [8.0, 18.0, 26.0]
    with cb.no_grad():
        x[x > 2.5] = 0
    assert x.tolist() == [1.0, 2.0, 0.0] and x.requires_grad


@pytest.mark.parametrize(
    "index",
    [
        0,
        (1, 2),
        slice(0, 0),
        (None, slice(1, 4), 0),
        (..., -1),
        [3, 0],
        ([1, 2], slice(None), [0, 1]),
        (slice(None), [2, 0, 1]),
        np.array([True, False, True, True]),
    ],
    ids=str,
)
def test_values_may_begin_with_axes_of_length_one(index: Any) -> None:
    """As NumPy takes them; what has another length in front is refused."""
    for more in (1, 2):
        want = some(4, 3, 5)
        shape = want[index].shape
        for wide in (shape, (1,) * len(shape)):
            x, values = cb.tensor(want), some(*(1,) * more, *wide)
            want[index] = values
            x[index] = values
            np.testing.assert_array_equal(x.numpy(), want)
        with pytest.raises(ShapeError):
            cb.tensor(want)[index] = some(2, *(1,) * more, *shape)


def test_methods_of_indices() -> None:
    x = some(3, 4)
    t = cb.tensor(x)
    assert (t.gather(1, [[0, 3]]).numpy() == np.take_along_axis(x[:1], np.array([[0, 3]]), 1)).all()
    assert (t.take_along_dim([[-1]], 1).numpy() == x[:, -1:]).all()
    assert (t.index_select(1, [3, -4]).numpy() == x[:, [3, 0]]).all()
    more = t.index_add(0, [1, 1], cb.tensor(x[:2])).numpy()
    np.testing.assert_allclose(more[1], x[1] + x[0] + x[1])
    assert (t.index_copy(0, [2], cb.tensor(x[:1])).numpy()[2] == x[0]).all()
    assert t.scatter(1, [[2]], 9.0).numpy()[0, 2] == 9
    np.testing.assert_allclose(t.scatter_add(0, [[1, 1]], t).numpy()[1, 0], x[1, 0] + x[0, 0])
    assert (t.masked_fill(t > 0, -7).numpy() == np.where(x > 0, -7, x)).all()
    assert (t.masked_select(cb.tensor(x[0] > 0)).numpy() == x[:, x[0] > 0].reshape(-1)).all()
    assert (t.nonzero().numpy() == np.argwhere(x)).all()
    assert all(
        (a.numpy() == b).all()
        for a, b in zip((t > 0).nonzero(as_tuple=True), (x > 0).nonzero(), strict=True)
    )
    values, order = t.sort(0, descending=True)
    assert (values.numpy() == -np.sort(-x, 0)).all() and (order.numpy() == np.argsort(-x, 0)).all()


def test_wrong_indices_are_told() -> None:
    t = cb.tensor(some(3, 4))
    with pytest.raises(OutOfBoundsError, match="index 3 is outside"):
        t[[0, 3]]
    with pytest.raises(OutOfBoundsError, match="index -5 is outside"):
        t[[0, 1], [0, -5]]
    with pytest.raises(DTypeError, match="integers or booleans"):
        t[[0.5]]
    with pytest.raises(ShapeError, match="mask of shape"):
        t[cb.tensor([True, False])]
    with pytest.raises(ShapeError, match="do not broadcast"):
        t[[0, 1], [0, 1, 2]]
    with pytest.raises(ShapeError, match="3 indices"):
        t[[0], [0], [0]]
    with pytest.raises(ShapeError, match="do not broadcast"):
        t[[0, 1]] = cb.tensor([1.0, 2.0])
    with record(t), pytest.raises(LaunchError, match="not known before"):
        t[t > 0]


def test_writing_to_where_a_mask_holds_is_recorded() -> None:
    t = cb.tensor([1.0, -1.0])
    with record(t) as r:
        y = t * 1
        y[y < 0] = 0
    graph = r.graph(y)
    assert cb.tensor.execute(graph, [cb.tensor([-3.0, 4.0])])[0].tolist() == [0.0, 4.0]


def test_shapes_are_moved_as_in_torch() -> None:
    x = some(3, 4)
    t = cb.tensor(x)
    assert (t.flip(0).numpy() == x[::-1]).all() and (t.flip().numpy() == x[::-1, ::-1]).all()
    assert (t.roll(5).numpy() == np.roll(x, 5)).all()
    assert (t.roll((1, -2), (0, 1)).numpy() == np.roll(x, (1, -2), (0, 1))).all()
    assert (t.repeat(2, 1, 3).numpy() == np.tile(x, (2, 1, 3))).all()
    assert (t.repeat_interleave(2, 1).numpy() == np.repeat(x, 2, 1)).all()
    assert (t.repeat_interleave(2).numpy() == np.repeat(x, 2)).all()
    assert (t.movedim(0, 1).numpy() == x.T).all() and (t.mT.numpy() == x.T).all()
    assert [p.shape for p in t.split(3, 1)] == [(3, 3), (3, 1)]
    assert [p.shape for p in t.chunk(2, 1)] == [(3, 2), (3, 2)]
    assert [p.shape for p in t.split([1, 3], 1)] == [(3, 1), (3, 3)]
    assert len(t.unbind(1)) == 4 and (t.unbind(1)[2].numpy() == x[:, 2]).all()
    assert (t.tril(-1).numpy() == np.tril(x, -1)).all()
    assert (t.triu(1).numpy() == np.triu(x, 1)).all()


def test_words_of_torch_and_numpy() -> None:
    x = some(3, 4)
    t = cb.tensor(x)
    np.testing.assert_allclose(t.sum(dim=1, keepdim=True).numpy(), x.sum(1, keepdims=True))
    np.testing.assert_allclose(t.var(dim=0, correction=1).numpy(), x.var(0, ddof=1))
    np.testing.assert_allclose(t.std(ddof=1).numpy(), x.std(ddof=1))
    np.testing.assert_allclose(t.norm().numpy(), np.linalg.norm(x))
    np.testing.assert_allclose(t.clamp(-0.5, 0.5).numpy(), x.clip(-0.5, 0.5))
    np.testing.assert_allclose(t.clamp(max=0.5).numpy(), x.clip(None, 0.5))
    np.testing.assert_allclose(t.logsumexp(dim=1).numpy(), np.log(np.exp(x).sum(1)))
    assert t.sum(dtype="f32").dtype == cb.f32 and (t > 0).sum(dtype="i32").dtype == cb.i32
    assert (t > -2).all() and not (t > 2).any()
    with pytest.raises(TypeError, match="no argument 'axes'"):
        t.sum(axes=1)


@pytest.mark.parametrize("large", [False, True])
def test_tensors_of_integers_pick_from_the_first_axes(large: bool) -> None:
    """Few elements, which NumPy picks, and more, which ops do; also while ops are recorded."""
    rng = np.random.default_rng(int(large))
    for _ in range(12):
        count = int(rng.integers(1, 4))
        shape = tuple(rng.integers(1, 7, count + int(rng.integers(0, 3))))
        x = rng.standard_normal(shape)
        spots = (900, 3) if large else tuple(rng.integers(0, 4, int(rng.integers(1, 3))))
        kinds = [np.int32, np.int64, np.uint8]
        picks = [rng.integers(0, n, spots).astype(rng.choice(kinds)) for n in shape[:count]]
        if rng.random() < 0.5:
            n = shape[0]
            picks[0] = np.where(rng.random(spots) < 0.5, picks[0].astype(np.int64) - n, picks[0])
        if rng.random() < 0.3 and count > 1 and spots[0]:
            picks[1] = picks[1][:1]  # they broadcast
        index = tuple(map(cb.tensor, picks))
        expected = x[tuple(picks)]
        given = index[0] if count == 1 else index
        np.testing.assert_array_equal(cb.tensor(x)[given].numpy(), expected)
        leaf = cb.tensor(x, requires_grad=True)
        weight = rng.standard_normal(expected.shape)
        found = leaf[given]
        np.testing.assert_array_equal(found.detach().numpy(), expected)
        (found * cb.tensor(weight)).sum().backward()
        sums = np.zeros(shape)
        np.add.at(sums, tuple(picks), weight)
        assert leaf.grad is not None
        np.testing.assert_allclose(leaf.grad.numpy(), sums, atol=1e-12)
        if expected.size and cb.current_device().backend == "cpu":
            with pytest.raises(OutOfBoundsError):
                cb.tensor(x)[(cb.tensor(picks[0] * 0 + shape[0]), *index[1:])]


def test_masks_of_all_sizes_pick_and_are_found() -> None:
    rng = np.random.default_rng(7)
    for shape in ((1,), (0,), (33,), (5, 7), (70_000,), (300, 301)):
        for covered in range(1, len(shape) + 1):
            x, mask = rng.standard_normal(shape), rng.random(shape[:covered]) < rng.random()
            leaf, m = cb.tensor(x, requires_grad=True), cb.tensor(mask)
            np.testing.assert_array_equal(cb.tensor(x)[m].numpy(), x[mask])
            np.testing.assert_array_equal(m.nonzero().numpy(), np.argwhere(mask))
            some = (x.T * mask.T).T if covered == len(shape) else x
            np.testing.assert_array_equal(cb.tensor(some).nonzero().numpy(), np.argwhere(some))
            found = leaf[m]
            weight = rng.standard_normal(found.shape)
            (found * cb.tensor(weight)).sum().backward()
            expected = np.zeros(shape)
            expected[mask] = weight
            assert leaf.grad is not None
            np.testing.assert_array_equal(found.detach().numpy(), x[mask])
            np.testing.assert_array_equal(leaf.grad.numpy(), expected)
            if covered == len(shape):
                chosen = cb.tensor(x).masked_select(m)
                np.testing.assert_array_equal(chosen.numpy(), x[mask])
