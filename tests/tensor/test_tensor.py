"""Tensors: values against NumPy, views without copies, one IR that records, stores and replays
everything.
"""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import DTypeError, FileFormatError, KernelTypeError, LaunchError, ShapeError
from cubepy.tensor import Graph, Storage, Tensor, apply, concat, execute, record, register, where
from cubepy.tensor.ops import OPS, Spec, define

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4)).astype(np.float32)
Y = RNG.standard_normal((3, 4)).astype(np.float32)


def close(a: Tensor, b: np.ndarray, tol: float = 1e-5) -> None:
    np.testing.assert_allclose(a.numpy(), b, rtol=tol, atol=tol)
    assert a.shape == np.shape(b)


def test_tensor_shares_memory_of_an_array_and_converts_lists():
    t = cb.tensor(X)
    assert np.shares_memory(t.numpy(), X)
    assert (t.shape, t.ndim, t.size, len(t)) == ((3, 4), 2, 12, 3)
    assert cb.tensor([1.5, 2.0]).dtype is cb.f32
    assert cb.tensor([1, 2]).dtype is cb.i64
    assert cb.tensor([1, 2], "i8").dtype is cb.i8
    assert cb.tensor(X.astype(np.float64)).dtype is cb.f64
    assert cb.tensor(np.float64(2)).dtype is cb.f64
    assert cb.tensor(True).dtype is cb.bool_
    assert str(t.device) == "cpu"


def test_big_endian_arrays_are_converted():
    t = cb.tensor(np.array([1, 2], ">i4"))
    assert t.dtype is cb.i32 and t.tolist() == [1, 2]


@pytest.mark.parametrize("data", [["a"], [None], [1j], object()])
def test_data_that_are_no_numbers_are_refused(data):
    with pytest.raises(DTypeError, match="a tensor holds numbers"):
        cb.tensor(data)


def test_no_tensor_is_none():
    t = cb.tensor([0.0, 1.0])
    assert (t == None) is False and (t != None) is True  # noqa: E711
    assert cb.jit(lambda x: x * 2 if x != None else x)(t).tolist() == [0, 2]  # noqa: E711


def test_ragged_lists_are_refused():
    with pytest.raises(ShapeError, match="different lengths"):
        cb.tensor([[1, 2], [3]])


def test_arithmetic_broadcasts_like_numpy():
    a, b = cb.tensor(X), cb.tensor(Y[:1])
    close(a + b, X + Y[:1])
    close(a - b, X - Y[:1])
    close(a * b, X * Y[:1])
    close(a / b, X / Y[:1])
    close(-a, -X)


def test_numbers_take_the_dtype_of_the_tensor():
    f, i, h = cb.tensor(X), cb.tensor([3, 4], "i32"), cb.tensor([1.0, 2.0], "f16")
    assert (f + 1).dtype is cb.f32 and (2.5 * h).dtype is cb.f16
    assert (i + 1).dtype is cb.i32 and (i * 2.5).dtype is cb.f32 and (1 / i).dtype is cb.f32
    close(1 - f, 1 - X)
    close(2 / f, 2 / X, 1e-4)
    assert (10 // i).tolist() == [3, 2] and (i % 2).tolist() == [1, 0]
    assert (i + 2**40).dtype is cb.i64


def test_comparisons_and_logic_give_booleans():
    a = cb.tensor(X)
    positive, small = a > 0, a <= 0.5
    assert positive.dtype is cb.bool_
    np.testing.assert_array_equal((positive & ~small).numpy(), (X > 0) & ~(X <= 0.5))
    np.testing.assert_array_equal((a == a).numpy(), np.ones_like(X, bool))
    np.testing.assert_array_equal(where(positive, a, 0.0).numpy(), np.where(X > 0, X, 0))
    with pytest.raises(DTypeError, match="booleans and integers"):
        a & a
    with pytest.raises(DTypeError, match="boolean condition"):
        where(a, a, a)


def test_math_matches_numpy():
    a = cb.tensor(X)
    close(a.exp(), np.exp(X))
    close(abs(a).sqrt(), np.sqrt(np.abs(X)))
    close(a.tanh(), np.tanh(X))
    close(a.clip(-0.5, 0.5), np.clip(X, -0.5, 0.5))
    close(a**2, X**2)
    close(a.softmax(0), np.exp(X) / np.exp(X).sum(0))
    assert cb.tensor([1, 2]).exp().dtype is cb.f64  # a 64-bit integer makes a 64-bit float
    assert cb.tensor([1, 2], "i32").floor().dtype is cb.i32


def test_reductions_match_numpy():
    a = cb.tensor(X)
    close(a.sum(), X.sum())
    close(a.mean(axis=1, keepdims=True), X.mean(1, keepdims=True))
    close(a.max(0), X.max(0))
    close(a.min((0, 1)), X.min())
    assert a.argmax(1).tolist() == X.argmax(1).tolist() and a.argmin().item() == X.argmin()
    assert cb.tensor([1, 2], "i8").sum().dtype is cb.i64
    with pytest.raises(ShapeError, match="empty axis"):
        cb.tensor(np.zeros((0, 2), np.float32)).max(0)
    with pytest.raises(ShapeError, match="axis 2 is out of range"):
        a.sum(2)


def test_views_share_memory():
    a = cb.tensor(X)
    for view in (
        a.reshape(2, 6), a.T, a.transpose(0, 1), a.permute(1, 0), a[1:], a[..., 2], a[:, None, ::2], a[-1],
        a.unsqueeze(0), a.flatten(), a.unsqueeze(1).squeeze(), a.unsqueeze(0).expand(5, -1, 4),
    ):  # fmt: skip
        assert np.shares_memory(view.numpy(), X)
    close(a.T.reshape(2, 6), X.T.reshape(2, 6))
    close(a[1, 1:], X[1, 1:])
    assert a[0, 0].shape == ()
    assert a.T.contiguous().numpy().flags.c_contiguous


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (lambda a: a.reshape(5, 5), "cannot be reshaped"),
        (lambda a: a.reshape(-1, -1), "at most one length"),
        (lambda a: a.permute(0, 0), "no permutation"),
        (lambda a: a[3], "index 3 is outside axis 0 of length 3"),
        (lambda a: a[0, 0, 0], "3 indices for a tensor of rank 2"),
        (lambda a: a + cb.tensor(np.zeros(3, np.float32)), "do not broadcast"),
        (lambda a: a @ a, "the inner lengths are 4 and 3"),
        (lambda a: concat([a, a.T]), "does not match"),
        (lambda a: a.expand(2, 3, 5), "cannot be expanded"),
        (lambda a: a.item(), "needs one element"),
        (lambda a: bool(a), "truth"),
        (lambda a: a.unsqueeze(5), "out of range"),
        (lambda a: cb.tensor(1.0)[...].__len__(), "rank 0"),
    ],
)
def test_shapes_that_do_not_fit_are_named(bad, match):
    with pytest.raises(ShapeError, match=match):
        bad(cb.tensor(X))


def test_matmul_matches_numpy_for_all_ranks():
    a, b = cb.tensor(X), cb.tensor(Y)
    close(a @ b.T, X @ Y.T)
    close(a @ b[0], X @ Y[0])
    close(a[0] @ b.T, X[0] @ Y.T)
    close(a.unsqueeze(0) @ b.T, (X[None] @ Y.T))
    close(X @ b.T, X @ Y.T)  # NumPy leaves it to the tensor


def test_concat_and_casts():
    a = cb.tensor(X)
    close(concat([a, a * 2], axis=1), np.concatenate([X, X * 2], 1))
    assert cb.tensor([1.9, -1.9, 1e20]).astype("i32").tolist() == [1, -1, 2**31 - 1]
    assert a.to("f64").dtype is cb.f64 and a.to("f32") is a and a.to("cpu") is a
    assert cb.tensor([0.0, 2.0]).astype(bool).tolist() == [False, True]


def test_tensors_go_to_numpy_and_dlpack():
    a = cb.tensor(X)
    assert np.shares_memory(np.asarray(a), X) and not np.shares_memory(np.array(a, copy=True), X)
    assert np.asarray(a, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="needs a copy"):
        a.__array__(np.float64, copy=False)
    assert np.shares_memory(np.from_dlpack(a), X)
    assert [float(r.sum()) for r in a] == pytest.approx(X.sum(1).tolist(), rel=1e-5)
    assert repr(cb.tensor([1.0, 2.0])) == "tensor([1., 2.])"
    assert repr(cb.tensor([1], "i8")) == "tensor([1], dtype=cb.i8)"


def test_kernels_take_and_give_tensors():
    from cubepy import kernels as K

    out = K.softmax(cb.tensor(X))
    assert isinstance(out, Tensor)
    close(out.sum(1), np.ones(3))


def test_empty_and_nan_tensors():
    empty = cb.tensor(np.zeros((0, 4), np.float32))
    assert (empty + 1).shape == (0, 4) and (empty @ cb.tensor(X).T).shape == (0, 3)
    assert empty.sum().item() == 0 and np.isnan(empty.mean().item())
    nan = cb.tensor([1.0, float("nan")])
    assert np.isnan(nan.max().item()) and (nan == nan).tolist() == [True, False]


def program(a: Tensor, w: Tensor) -> Tensor:
    y = apply("linear", a, w, None, None, activation="relu")
    return (y[:, :2] * 2 + 1).reshape(-1).softmax()


def test_a_recorded_graph_replays_on_other_inputs():
    a, w = cb.tensor(X), cb.tensor(RNG.standard_normal((5, 4)).astype(np.float32))
    with record(a) as r:
        out = program(a, w)
    graph = r.graph(out)
    assert [t is x for t, x in zip(r.inputs, (a, w), strict=True)] == [True, True]
    (again,) = execute(graph, [Y, w])
    np.testing.assert_array_equal(again.numpy(), program(cb.tensor(Y), w).numpy())
    assert "linear" in str(graph)


def test_a_graph_survives_json():
    a, w = cb.tensor(X), cb.tensor(np.eye(4, dtype=np.float32))
    with record(a, w) as r:
        out = program(a, w).sum(axis=(0,))
    graph = r.graph(out)
    assert Graph.from_json(graph.to_json()) == graph
    assert Graph.from_json(graph.to_json()).nodes[-1].op == "sum"


def test_graphs_of_the_first_version_are_read():
    node = {"op": "exp", "inputs": [0], "attrs": {}, "shape": [3, 4], "dtype": "f32"}
    given = {"op": "input", "inputs": [], "attrs": {}, "shape": [3, 4], "dtype": "f32"}
    text = {"version": 1, "nodes": [given, node], "inputs": [0], "outputs": [1]}
    (again,) = execute(Graph.from_json(json.dumps(text)), [X])
    np.testing.assert_array_equal(again.numpy(), cb.tensor(X).exp().numpy())


@pytest.fixture
def two_results():
    @define("opaque", {"both_signs": lambda dtype, x: [K.map(K.functions.relu, x), K.copy(x)]})
    def both_signs(x: Spec) -> list[Spec]:
        return [x, x]

    yield lambda x: apply("both_signs", x)
    del OPS["both_signs"]


def test_ops_of_several_results_are_recorded_stored_and_replayed(two_results):
    a = cb.tensor(X)
    with record(a) as r:
        first, second = two_results(a + 1)
        out = two_results(second)[0] * first
    graph = Graph.from_json(r.graph(out, second).to_json())
    assert graph == r.graph(out, second) and len(graph.values) == len(graph.nodes) + 2
    assert "%3: f32[3, 4], %4: f32[3, 4] = both_signs(%2)" in str(graph)
    for value in (X, Y):
        again, other = execute(graph, [value])
        np.testing.assert_array_equal(again.numpy(), np.maximum(value + 1, 0) ** 2)
        np.testing.assert_array_equal(other.numpy(), value + 1)


def test_ops_that_no_output_needs_are_left_out():
    a = cb.tensor(X)
    with record(a) as r:
        a.exp()
        out = a + a
    assert [n.op for n in r.graph(out).nodes] == ["input", "add"]


def test_outputs_of_a_graph_must_be_recorded():
    with record() as r:
        pass
    with pytest.raises(LaunchError, match="not made while recording"):
        r.graph(cb.tensor(X))


@cb.kernel
def doubled(x: cb.Array, out: cb.Array):
    if cb.ABSOLUTE_POS < out.size:
        out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 2


@cb.func
def doubling(x):
    return x * 2


UNRECORDED = {
    "map": lambda a: K.map(doubling, a), "matmul of a packed matrix": lambda a: K.matmul(a, PACKED),
    "out": lambda a: K.copy(X, out=a), "prepack": lambda a: K.prepack(a),
    "dlpack": lambda a: np.from_dlpack(a),
    "bind": lambda a: doubled[1, 8].bind(a[0], np.zeros(4, np.float32)), "numpy": lambda a: np.asarray(a),
}  # fmt: skip
with cb.use("cpu"):
    PACKED = K.prepack(np.eye(4, dtype=np.float32))


@pytest.mark.parametrize("name", UNRECORDED)
def test_what_is_not_recorded_refuses_tensors_while_recording(name):
    a, call = cb.tensor(X.copy()), UNRECORDED[name]
    for _ in range(3):
        call(a)  # so that later calls would be repeated
    with record(a) as r:
        b = a + 1
        for t in (a, b):
            with pytest.raises(LaunchError, match="would be an input of the graph") as caught:
                call(t)
            assert "x.softmax()" in str(caught.value)
        assert b.numpy().shape == X.shape and float(b[0, 0]) == b.numpy()[0, 0]
        out = K.softmax(b.numpy()).sum() + K.softmax(b)  # a number of NumPy's is one
    assert len(r.inputs) == 1 and [n.op for n in r.graph(out).nodes if n.op != "input"][:2] == [
        "constant",
        "add",
    ]
    call(a)


def test_another_thread_is_not_kept_from_anything():
    a = cb.tensor(X)
    with record(a), ThreadPoolExecutor(1) as pool:
        np.testing.assert_array_equal(
            pool.submit(lambda: K.softmax(a).numpy()).result(), K.softmax(X)
        )


def test_replay_wants_all_inputs():
    a = cb.tensor(X)
    with record(a) as r:
        out = a + a
    with pytest.raises(ShapeError, match="takes 1 inputs, 2 were given"):
        execute(r.graph(out), [X, X])


def damaged() -> list:
    a = cb.tensor(X)
    with record(a) as r:
        out = (a + a).sum(axis=0)
    good = json.loads(r.graph(out).to_json())

    def change(*path, value):
        item = json.loads(json.dumps(good))
        target = item
        for p in path[:-1]:
            target = target[p]
        target[path[-1]] = value
        return json.dumps(item)

    return [
        ("", "no op graph"), ("[]", "no op graph"), (change("version", value=9), "version 9"),
        (change("nodes", 1, "op", value="nonsense"), "no such op"),
        (change("nodes", 1, "inputs", value=[0, 2]), "before its own"),
        (change("nodes", 1, "results", 0, 0, value=[9, 9]), "its op gives"),
        (change("nodes", 2, "attrs", value={"axis": 7, "keepdims": False}), "out of range"),
        (change("nodes", 2, "attrs", value={}), "breaks the rule"),
        (change("outputs", value=[17]), "names value 17"), (change("inputs", value=[1]), "listed as an input"),
        (change("nodes", 0, "results", 0, 1, value="f33"), "no op graph"), ("[" * 100000, "no op graph"),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "match"), damaged())
def test_damaged_graphs_are_refused(text, match):
    with pytest.raises(FileFormatError, match=match):
        Graph.from_json(text)


class Doubled(Storage):
    """Storage of half of its values."""

    kind = "test-doubled"

    def __init__(self, half):
        super().__init__(half.shape, cb.f32)
        self.half = half

    def arrays(self):
        return {"half": self.half}

    def dense(self):
        return self.half * 2


@register("linear", "test-doubled")
def doubled_linear(inputs, attrs):
    x, w, *_ = inputs
    return (x.dense() @ w.half.T) * 2


def test_other_storage_runs_its_own_executor_or_is_refused():
    w = Tensor(Doubled(Y / 2))
    close(apply("linear", cb.tensor(X), w, None, None, activation=None), X @ Y.T)
    with pytest.raises(
        KernelTypeError, match="'exp' cannot read test-doubled storage; only linear can"
    ):
        w.exp()
    assert "test-doubled" in repr(w) and w.nbytes == Y.nbytes


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    steps=st.lists(st.sampled_from(["T", "flip", "slice", "new", "flat"]), max_size=4),
)
def test_chains_of_views_equal_numpy(shape, steps):
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    t = cb.tensor(array)
    for step in steps:
        if step == "T":
            t, array = t.T, array.T
        elif step == "flip":
            t, array = t[::-1], array[::-1]
        elif step == "slice":
            t, array = t[..., 1:], array[..., 1:]
        elif step == "new":
            t, array = t[:, None], array[:, None]
        else:
            t, array = t.reshape(-1), array.reshape(-1)
    np.testing.assert_array_equal(t.numpy(), array)


def test_import_is_light():
    code = "import sys, cubepy as cb, cubepy.tensor, cubepy.nn; cb.tensor([1.0]); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_ops_run_on_the_device_of_their_tensors():
    with cb.use("python"):
        a = cb.tensor([1.0, 2.0])
    assert str((a + 1).device) == "python" and (a + 1).tolist() == [2.0, 3.0]
    with pytest.raises(cb.errors.DeviceError, match="python and cpu"):
        a + cb.tensor([1.0, 2.0])
    assert str(a.to("cpu").device) == "cpu"


@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8", "bool"])
def test_views_that_come_again_are_those_of_numpy(dtype: str) -> None:
    looks: list[Any] = [
        lambda x: x.reshape(6, 4), lambda x: x.transpose(0, 1), lambda x: x[1:, ::2], lambda x: x[-1],
        lambda x: x[:, None], lambda x: x.reshape(4, 1, 6).expand(4, 3, 6), lambda x: x[::-1],
        lambda x: x.unsqueeze(-1).expand(-1, -1, 2), lambda x: x[2, 3], lambda x: x.T.reshape(-1),
    ]  # fmt: skip
    for seed in range(5):
        given = np.random.default_rng(seed).integers(0, 2, (4, 6)).astype(cb.as_dtype(dtype).numpy)
        whole = np.zeros((4, 12), given.dtype)
        whole[:, ::2] = given
        gaps = cb.tensor(whole)[:, ::2]
        for x in (cb.tensor(given), gaps, cb.tensor(given.T.copy()).T):
            for n, look in enumerate(looks):
                found = look(x).numpy().astype(np.float64)
                want = look(cb.tensor(given.astype(np.float64))).numpy()
                np.testing.assert_array_equal(found, want, err_msg=str((seed, n)))


def test_the_size_is_a_number_that_can_be_asked_for_lengths() -> None:
    x = cb.tensor(np.zeros((2, 3, 4), np.float32))
    assert x.size == 24 and x.size() == (2, 3, 4)
    assert [x.size(d) for d in range(-3, 3)] == [2, 3, 4] * 2 and x.size(dim=1) == 3
    assert type(copy.deepcopy(x.size)) is type(pickle.loads(pickle.dumps(x.size))) is int
    assert x.reshape(x.size).shape == (24,) and np.zeros(x.size).shape == (24,)
    for wrong in (3, -4, 1.0, "0"):
        with pytest.raises(ShapeError, match="size: axis"):
            x.size(wrong)
    program = cb.jit(lambda a: a.reshape(a.size(0), a.size // a.size(0)).sum() / a.size)
    np.testing.assert_array_equal(program(x + 1).numpy(), 1)
