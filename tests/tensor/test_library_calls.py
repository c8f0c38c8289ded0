"""Functions of the kernel library given tensors that need gradients: each call is an op, or is
refused; none loses a gradient.
"""

from __future__ import annotations

import sys
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import GradientError, LaunchError, ShapeError
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, execute, record
from cubepy.tensor.calls import CALLS, again
from tests.kernels.by_axis import functions_of_an_axis

on_host = pytest.mark.skipif(
    cb.current_device().backend != "cpu", reason="calls on the host are known by short keys"
)
RNG = np.random.default_rng(5)


def t(*shape: int) -> Tensor:
    return cb.tensor(RNG.uniform(0.2, 1.0, shape), "f32", requires_grad=True)


def ints(*values: int) -> np.ndarray:
    return np.array(values)


def images(axes: int) -> Tensor:
    return t(1, 2, *(4,) * axes)


def positions(axes: int) -> np.ndarray:
    return np.zeros((1, 2, *(2,) * axes), np.int64)


def of_an_axis(function: Any) -> Any:
    return function(t(3, 4), 1)


SAMPLES: dict[str, Any] = {
    **{name: partial(of_an_axis, f) for name, f in functions_of_an_axis().items()},
    "attention": lambda: K.attention(t(1, 2, 3, 4), t(1, 2, 5, 4), t(1, 2, 5, 4)),
    "attention_forward": lambda: K.attention_forward(*(t(1, 2, 3, 4) for _ in range(3))),
    "attention_gradients": lambda: K.attention_gradients(
        *(t(1, 2, 3, 4) for _ in range(5)), np.zeros((1, 2, 3), np.float32)
    ),
    "lstm": lambda: K.lstm(t(3, 2, 3), t(1, 16, 3), t(1, 16, 4), t(1, 16), t(1, 16))[0],
    "gru": lambda: K.gru(t(3, 2, 3), t(1, 12, 3), t(1, 12, 4), t(1, 12), t(1, 12))[0],
    "rnn": lambda: K.rnn(t(3, 2, 3), t(1, 4, 3), t(1, 4, 4))[0],
    "batch_norm": lambda: K.batch_norm(t(2, 3), None, None, t(3), t(3), True),
    "bernoulli": lambda: K.bernoulli(t(3)),
    "concat": lambda: K.concat([np.ones((1, 3), np.float32), t(2, 3)]),
    "conv_input": lambda: K.conv_input((1, 2, 5), t(3, 2, 3), t(1, 3, 3)),
    "conv_weight": lambda: K.conv_weight(t(1, 2, 5), (3, 2, 3), t(1, 3, 3)),
    "copy": lambda: K.copy(t(3)),
    "embedding": lambda: K.embedding(ints(0, 2), t(3, 2)),
    "gather": lambda: K.gather(t(3, 2), 0, np.zeros((1, 2), np.int64)),
    "gelu": lambda: K.gelu(t(3)),
    "group_norm": lambda: K.group_norm(t(2, 4, 3), 2, t(4), t(4)),
    "index_put": lambda: K.index_put(t(3), (ints(0),), t(1)),
    "interpolate": lambda: K.interpolate(t(1, 1, 3), scale_factor=2.0, mode="linear"),
    "interpolate_input": lambda: K.interpolate_input((1, 1, 3), t(1, 1, 5), "linear"),
    "layer_norm": lambda: K.layer_norm(t(3, 4), 4, t(4), t(4)),
    "map": lambda: K.map(K.functions.mul, K.map(cb.exp, t(3)), t(2, 1)),
    "matmul": lambda: K.matmul(
        t(3, 4), t(4, 2), bias=t(2), activation="gelu_tanh", residual=t(3, 2), alpha=0.5,
        mask=np.eye(3, 2, dtype=bool), fill=-1.0,
    ) + K.matmul(t(3, 4), t(4, 2), activation="silu", add=t(3, 2))
    + K.matmul(t(3, 4), t(4, 2), activation="silu", gate=t(3, 2)),
    "mean": lambda: K.mean(t(3, 4), (0, 1), True),
    "norm": lambda: K.norm(t(3)),
    "pad": lambda: K.pad(t(3), (1, 1)),
    "prepack": lambda: K.prepack(t(3, 3)),
    "prepack_filter": lambda: K.prepack_filter(t(3, 3, 2, 2)),
    "rms_norm": lambda: K.rms_norm(t(3, 4), 4, t(4)),
    "scatter": lambda: K.scatter(t(3), 0, ints(1), t(1)),
    "select": lambda: K.select(t(3, 2), 0, ints(1)),
    "take_along_axis": lambda: K.take_along_axis(t(3), ints(1), 0),
    "topk": lambda: K.topk(t(3), 2),
    "transpose": lambda: K.transpose(t(3, 4)),
}  # fmt: skip
"""A call of each function of tensors, by its name."""


def _of_axes(axes: int) -> dict[str, Any]:
    """Calls of functions that there are for 1 to 3 axes."""
    f = {name: getattr(K, f"{name}{axes}d") for name in (
        "conv", "conv_transpose", "max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")}  # fmt: skip
    back = {name: getattr(K, f"{name}{axes}d_input") for name in (
        "max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool")}  # fmt: skip
    size, g = (1, 2, *(4,) * axes), lambda: t(1, 2, *(2,) * axes)
    window = (2,) * axes
    calls = {
        "conv": lambda: f["conv"](
            images(axes), t(3, 2, *window), t(3), 2, activation="relu",
            add=np.ones((1, 3, *(2,) * axes), np.float32),
        ),
        "conv_transpose": lambda: f["conv_transpose"](images(axes), t(2, 3, *window), t(3), 2),
        "max_pool": lambda: f["max_pool"](images(axes), 2),
        "avg_pool": lambda: f["avg_pool"](images(axes)[0], 2),
        "adaptive_max_pool": lambda: f["adaptive_max_pool"](images(axes), 2, True),
        "adaptive_avg_pool": lambda: f["adaptive_avg_pool"](images(axes), 2),
    }  # fmt: skip
    calls_back = {
        "max_pool": lambda: back["max_pool"](size, g(), positions(axes), 2),
        "avg_pool": lambda: back["avg_pool"](size, g(), 2),
        "adaptive_max_pool": lambda: back["adaptive_max_pool"](size, g(), positions(axes)),
        "adaptive_avg_pool": lambda: back["adaptive_avg_pool"](size, g()),
    }
    named = {f"{name}{axes}d": call for name, call in calls.items()}
    return {**named, **{f"{name}{axes}d_input": call for name, call in calls_back.items()}}


for _axes in (1, 2, 3):
    SAMPLES |= _of_axes(_axes)
NO_OPS = {"bernoulli", "prepack", "prepack_filter"}
"""Functions that refuse tensors with gradients."""
OF_NUMBERS = {"manual_seed", "normal", "randint", "uniform"}
"""Functions that are not given tensors."""


def test_every_function_has_a_sample() -> None:
    functions = {n for n in K.__all__ if isinstance(getattr(K, n), FunctionType)}
    assert functions - OF_NUMBERS == set(SAMPLES)


def parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_gradient_is_there_or_the_call_is_refused(name: str) -> None:
    global RNG
    RNG = np.random.default_rng(5)
    if name in NO_OPS:
        with pytest.raises(GradientError, match=r"x\.detach"):
            SAMPLES[name]()
        return
    given = parts(SAMPLES[name]())
    floats = [y for y in given if y.dtype.is_float]
    assert all(y.requires_grad for y in floats)
    for y in floats:
        y.sum().backward(retain_graph=True)
    RNG = np.random.default_rng(5)
    with cb.no_grad():
        plain = parts(SAMPLES[name]())
    for y, want in zip(given, plain, strict=True):
        assert not want.requires_grad and y.dtype is want.dtype and y.shape == want.shape
        np.testing.assert_allclose(y.numpy(), want.numpy(), rtol=2e-5, atol=2e-6)


@on_host
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in NO_OPS])
def test_calls_that_come_again_are_those_of_the_long_way(
    name: str, grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of other numbers each time, results and gradients are those of calls that are not known."""
    here, leaves, tensor = sys.modules[__name__], list[Any](), t

    def noted(*shape: int) -> Tensor:
        leaves.append(tensor(*shape) if grad else tensor(*shape).detach())
        return leaves[-1]  # type: ignore[no-any-return]

    def found(seed: int) -> list[np.ndarray]:
        leaves.clear()
        monkeypatch.setattr(here, "RNG", np.random.default_rng(seed))
        given = parts(SAMPLES[name]())
        total = [(y * y).sum() for y in given if y.requires_grad]
        if total:
            cb.tensor.stack(total).sum().backward()
        grads = [x.grad for x in leaves if x.grad is not None]
        assert bool(grads) is bool(total)
        return [np.asarray(y.numpy()) for y in (*given, *grads)]

    monkeypatch.setattr(here, "t", noted)
    for seed in range(6):
        one = found(seed)
        with monkeypatch.context() as patch:
            patch.setattr(again, "_known", dict.fromkeys(again._known, again.NEVER))
            patch.setattr(again, "FEW", 1 << 30)
            other = found(seed)
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


@on_host
def test_a_call_that_came_before_is_its_op_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for grad in (True, False):
        x = cb.tensor(RNG.standard_normal((2, 3, 6, 7)), requires_grad=grad)
        for _ in range(6):
            y = F.max_pool2d(x, 2)
        with monkeypatch.context() as patch:
            patch.setitem(CALLS, "max_pool2d", lambda **given: pytest.fail("asked again"))
            z = F.max_pool2d(x, 2)
        assert z.requires_grad is grad and z.numpy().tolist() == y.numpy().tolist()
        F.max_pool2d(x, (2, 1))  # another kind


def test_channels_last_and_single_images() -> None:
    x = t(1, 2, 5, 5)
    last = cb.tensor(np.ascontiguousarray(x.numpy().transpose(0, 2, 3, 1)), requires_grad=True)
    w = t(3, 2, 3, 3)
    for one, other in (
        (K.conv2d(x, w, padding="same"), K.conv2d(last, w, padding="same", layout="NHWC")),
        (K.max_pool2d(x, 2), K.max_pool2d(last, 2, layout="NHWC")),
        (K.avg_pool2d(x, 2), K.avg_pool2d(last, 2, layout="NHWC")),
        (K.interpolate(x, 3), K.interpolate(last, 3, layout="NHWC")),
    ):
        np.testing.assert_allclose(
            one.numpy(), other.numpy().transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6
        )
        x.grad = last.grad = None
        one.sum().backward()
        other.sum().backward()
        np.testing.assert_allclose(
            x.grad.numpy(), last.grad.numpy().transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-6
        )
    assert K.max_pool2d(x[0], 2).shape == (2, 2, 2)


@cb.func
def doubling(x):
    return x * 2


@cb.kernel
def doubled(x: cb.Array, out: cb.Array):
    if cb.ABSOLUTE_POS < out.size:
        out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 2


REFUSED = {
    "a function of the user's": lambda x: K.map(doubling, x),
    "a packed matrix": lambda x: K.matmul(x, K.prepack(np.eye(4, dtype=np.float32))),
    "out": lambda x: K.softmax(x, out=np.empty((4, 4), np.float32)),
    "a tensor as out": lambda x: K.copy(np.ones((4, 4), np.float32), out=x),
    "a kernel": lambda x: doubled[1, 4](x[0], np.empty(4, np.float32)),
    "another library": lambda x: np.from_dlpack(x),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_gradient_is_refused(name: str) -> None:
    call = REFUSED[name]
    x = t(4, 4)
    for _ in range(4):  # so that calls would be repeated
        call(x.detach())
        with pytest.raises(GradientError, match=r"x\.detach"):
            call(x)
    with cb.no_grad():
        call(x)


def test_calls_are_recorded() -> None:
    x, w = t(2, 3), t(4, 3, 2)
    with record(x.detach()) as r:
        y = K.softmax(r.inputs[0] @ r.inputs[0].T, -1)
        z = K.conv1d(K.map(cb.exp, y).unsqueeze(0).expand(3, 2, 2).transpose(0, 1), w.detach())
        with pytest.raises(LaunchError, match="would be an input"):
            K.prepack(y)
    graph = r.graph(z)
    assert {"softmax", "conv", "exp"} <= {n.op for n in graph.nodes}
    other = t(2, 3).detach()
    (again,) = execute(graph, [other, w])
    e = np.exp(K.softmax(other.numpy() @ other.numpy().T))
    want = K.conv1d(np.broadcast_to(e, (3, 2, 2)).transpose(1, 0, 2).copy(), w.numpy())
    np.testing.assert_allclose(again.numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("grad", [True, False])
def test_images_of_too_few_axes_are_refused(grad: bool) -> None:
    flat = cb.tensor(np.ones((2, 3), np.float32), requires_grad=grad)
    filters = np.ones((1, 1, 3, 3), np.float32)
    for call, said in (
        (lambda x: K.interpolate(x, scale_factor=2), "needs 3 to 5 axes, not 2"),
        (lambda x: K.conv_transpose2d(x, filters), "needs 4 axes, not shapes"),
        (lambda x: F.instance_norm(x[0]), "no axis of channels"),
    ):
        with pytest.raises(ShapeError, match=said):
            call(flat)
