"""Programs on an emulated GPU, while the current device is the host: what is made on the way is
where their tensors are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import LaunchError
from cubepy.tensor import Tensor, arange, empty_like, where, zeros
from tests.backends.hip.emulator.device import emulated

GPU = "gfx1100"


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    with emulated(GPU):
        yield


def some(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def same_as_on_the_host(function: Callable[..., Any], *given: np.ndarray) -> None:
    """A function at once and as a program on the GPU gives what it gives on the host."""
    want = function(*map(cb.tensor, given))
    program = cb.jit(function)
    for run in (function, program, program):
        found = run(*[cb.tensor(x, device=GPU) for x in given])
        assert found.device.backend == GPU and found.dtype is want.dtype
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=2e-5, atol=1e-6)


MADE: dict[str, Callable[[Tensor], Tensor]] = {
    "filled": lambda x: x.clone().fill_(0.1) + x,
    "zeroed": lambda x: x.clone().zero_() + x,
    "quantile": lambda x: x.quantile(0.4, 1),
    "zeros": lambda x: zeros(x.shape).to(x.device) + x,
    "steps": lambda x: arange(x.shape[-1], dtype="f32").to(x.device) * x,
    "new": lambda x: x.new_full(x.shape, 2.0) * x.new_zeros(x.shape[-1]),
    "two numbers": lambda x: where(x > 0, 1.0, 2.0),
    "whole numbers": lambda x: where(x > 0, 1, -2),
    "truths": lambda x: where(x > 0, True, False),
    "diagonal": lambda x: x[0].diag() + x.tril()[0],
    "NumPy's numbers": lambda x: (
        np.float32(2) * x + np.int64(3) - np.float16(0.5) / x.clip(np.float32(1))
    ),
    "distances": lambda x: nn.functional.pdist(x),
}


@pytest.mark.parametrize("name", MADE)
def test_what_is_made_on_the_way(name: str) -> None:
    same_as_on_the_host(MADE[name], some(3, 4))


def test_a_tensor_of_data_does_not_move_while_it_is_traced() -> None:
    program = cb.jit(lambda x: x.to("cpu") + 1)
    with pytest.raises(LaunchError, match="a tensor moves to cpu"):
        program(cb.tensor(some(3), device=GPU))


LAYERS: dict[str, Callable[[], Any]] = {
    "LSTM": lambda: nn.LSTM(4, 5),
    "GRU": lambda: nn.GRU(4, 5, bidirectional=True),
    "RNN": lambda: nn.RNN(4, 5, 2),
    "LSTMCell": lambda: nn.LSTMCell(4, 5),
    "GRUCell": lambda: nn.GRUCell(4, 5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_begin_with_zeros(name: str) -> None:
    net, x = LAYERS[name](), some(3, 4)

    def first(given: Tensor) -> Tensor:
        found = net(given)
        return found[0] if isinstance(found, tuple) else found

    want = first(cb.tensor(x)).numpy()
    net.to(GPU)
    program = cb.jit(first)
    for _ in range(3):
        np.testing.assert_allclose(
            program(cb.tensor(x, device=GPU)).numpy(), want, rtol=1e-4, atol=1e-6
        )


def test_attention_with_rows_added_to_keys() -> None:
    net = nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True)
    x, hidden = some(3, 4), np.array([False, True, False])

    def run(x: Tensor, hidden: Tensor) -> Tensor:
        return net(x, x, x, key_padding_mask=hidden)[0]  # type: ignore[no-any-return]

    want = run(cb.tensor(x), cb.tensor(hidden)).numpy()
    net.to(GPU)
    program = cb.jit(run)
    for _ in range(3):
        found = program(cb.tensor(x, device=GPU), cb.tensor(hidden, device=GPU)).numpy()
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@cb.kernel
def scaled(x: cb.Array, out: cb.Array, by: cb.f32):
    """out = x * by."""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * by


def test_numbers_of_kernels_are_those_of_the_call() -> None:
    def launched(x: Tensor, by: float) -> Tensor:
        out = empty_like(x)
        scaled[cb.over(out)](x, out, by / 2)
        return out + 1

    def called(x: Tensor, by: float) -> Tensor:
        spec = cb.TensorSpec(x.shape, "f32")
        return cb.kernel_call(scaled[cb.over(x)], x, spec, by / 2) + 1  # type: ignore[no-any-return]

    x = some(50)
    for function in (launched, called):
        program = cb.jit(function)
        for by in (1.0, 2.0, 3.0, 4.0):
            found = program(cb.tensor(x, device=GPU), by).numpy()
            np.testing.assert_array_equal(found, x * np.float32(by / 2) + 1)
        assert sum(program.traces.values()) == 1


def test_gradients_go_through_a_program_with_numbers() -> None:
    x, w = some(3, 4), some(4, 4)
    found = []
    for home, program in ((GPU, True), (GPU, False), ("cpu", False)):
        weight = cb.tensor(w, device=home, requires_grad=True)

        def function(x: Tensor, gain: float, weight: Tensor = weight) -> Tensor:
            return (x @ weight).tanh() * gain

        run = cb.jit(function) if program else function
        for gain in (2.0, 1.0, 3.0):
            weight.grad = None
            y = run(cb.tensor(x, device=home), gain)
            (y * y).sum().backward()
        found.append(weight.grad.numpy())
    for one in found[:2]:
        np.testing.assert_allclose(one, found[2], rtol=1e-4, atol=1e-5)


def test_gradients_of_a_branch_have_gradients() -> None:
    def loss(x: Tensor) -> Tensor:
        return cb.cond(x.sum() > 0, lambda x: (x**3).sum(), lambda x: (x**4).sum(), x)  # type: ignore[no-any-return]

    for sign in (1, -1):
        same_as_on_the_host(
            lambda x: cb.grad(lambda x: cb.grad(loss)(x).sum())(x), sign * np.abs(some(4))
        )


@pytest.mark.parametrize("columns", [12, 70])
def test_rows_of_inputs_of_several_dtypes(columns: int) -> None:
    """A mask, scores and halves are read by one launch."""

    def function(x: Tensor, mask: Tensor, half: Tensor) -> Tensor:
        return where(mask, x * 0.5 + half.astype("f32"), -1e9).softmax(-1)

    x, half = some(6, columns), some(6, columns, dtype=np.float16)
    same_as_on_the_host(function, x, x > -1, half)
    same_as_on_the_host(lambda mask, x: where(mask, x, 0.0).softmax(-1), x > -1, x)


def test_a_model_on_a_gpu_is_saved_with_arrays_of_the_host(tmp_path: Path) -> None:
    net, x = nn.Sequential(nn.Linear(4, 5), nn.ReLU()).to(GPU), some(3, 4)
    cb.save(net, tmp_path / "net.onnx", [x])
    want = net(cb.tensor(x, device=GPU)).numpy()
    found = cb.load(tmp_path / "net.onnx")(x)["output"].numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)
