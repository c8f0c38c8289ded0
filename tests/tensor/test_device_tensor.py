"""Tensors, modules and quantized weights on a device with its own memory. No GPU is needed: the
device is pretended.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn
from cubepy import tensor as xp
from cubepy.errors import DeviceError
from cubepy.nn import functional as F
from cubepy.runtime.device import as_device
from cubepy.runtime.interop.foreign import Borrowed
from cubepy.runtime.memory.device_array import DeviceArray, upload
from cubepy.tensor import Tensor, concat, register, where
from cubepy.tensor.storage import Dense
from tests.pretend import NAME, PretendBackend, PretendTable, pretend


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendBackend]:
    """The pretended device."""
    with pretend(monkeypatch) as b:
        yield b


def floats(*shape: int) -> np.ndarray:
    """Positive numbers that are never equal."""
    return (np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape) + 1).astype(
        np.float32
    ) / 7


OPS: dict[str, Callable[..., cb.Tensor]] = {
    "arithmetic": lambda x, y: (x + y) * 2 - x / y + 1.5,
    "integer numbers": lambda x, y: x * 3 // 2 % 5,
    "powers": lambda x, y: x**2 + x**1.5 + 2**x,
    "compare": lambda x, y: (x > y) & ~(x == 1) | (x <= 0.5),
    "where": lambda x, y: where(x > y, x, 0.0),
    "math": lambda x, y: x.exp().log().sqrt() + x.tanh() + x.erf() + x.sigmoid() + x.floor(),
    "activations": lambda x, y: F.gelu(x) + F.silu(x) + F.relu(x) + F.gelu(x, "tanh"),
    "clip": lambda x, y: x.clip(0.5, 2),
    "sum": lambda x, y: x.sum(axis=1) + x.mean(axis=0).sum() + x.max() - x.min(axis=(0, 1)),
    "prod": lambda x, y: (x / 4).prod(axis=0, keepdims=True),
    "argmax": lambda x, y: x.argmax(axis=1) + x.argmin(),
    "softmax": lambda x, y: x.softmax(0),
    "matmul": lambda x, y: x @ y.T,
    "batched matmul": lambda x, y: x.reshape(2, 3, 4) @ y.reshape(2, 4, 3),
    "integer matmul": lambda x, y: x.astype("i32") @ y.astype("i32").T,
    "views": lambda x, y: x.T[1:, ::2].reshape(-1)[None],
    "reshape with a copy": lambda x, y: x.T.reshape(3, 8) + 1,
    "expand": lambda x, y: x[:1].expand(5, 4) * y[0],
    "casts": lambda x, y: x.astype("f16").astype("bool").astype("i8") + x.astype("bf16").astype("i8"),
    "storage dtypes": lambda x, y: x.astype("fp8_e4m3").astype("f32"),
    "concat": lambda x, y: concat([x, y.T.reshape(6, 4), x], axis=1),
    "contiguous": lambda x, y: x.T.contiguous(),
    "layer_norm": lambda x, y: F.layer_norm(x, 4, y[0], y[1]),
    "embedding": lambda x, y: F.embedding(x.astype("i64").clip(0, 5), y),
    "linear": lambda x, y: F.linear(x, y, y[:, 0].contiguous(), activation="gelu", residual=x @ y.T),
    "attention": lambda x, y: F.scaled_dot_product_attention(
        x.reshape(1, 2, 3, 4), y.reshape(1, 2, 3, 4), y.reshape(1, 2, 3, 4), is_causal=True
    ),
    "masked attention": lambda x, y: F.scaled_dot_product_attention(
        x.reshape(1, 2, 3, 4), y.reshape(1, 2, 3, 4), y.reshape(1, 2, 3, 4), (x > 1)[:3, :3]
    ),
    "normalize": lambda x, y: F.normalize(x),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
def test_every_op_gives_the_same_on_the_device(name: str, backend: PretendBackend) -> None:
    x, y = floats(6, 4), floats(6, 4)[::-1].copy()
    expected = OPS[name](cb.tensor(x), cb.tensor(y))
    a, b = cb.tensor(x, device=NAME), cb.tensor(y, device=NAME)
    uploads, downloads = backend.gpu.uploads, backend.gpu.downloads
    found = OPS[name](a, b)
    if name != "storage dtypes":
        assert backend.gpu.downloads == downloads
        assert backend.gpu.uploads - uploads <= 8  # numbers
    assert str(found.device) == NAME and isinstance(found.storage.dense(), DeviceArray)
    assert found.dtype is expected.dtype and found.shape == expected.shape
    assert np.array_equal(found.numpy(), expected.numpy(), equal_nan=True)
    again = OPS[name](
        cb.tensor(y, device=NAME), cb.tensor(x, device=NAME)
    )  # what was recorded, with other numbers
    assert np.array_equal(
        again.numpy(), OPS[name](cb.tensor(y), cb.tensor(x)).numpy(), equal_nan=True
    )


def test_a_second_call_of_an_op_repeats_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host code of the library runs once for a kind of inputs; another alignment is another
    kind.
    """
    x = cb.tensor(floats(4, 12), device=NAME)
    calls = []
    softmax = K.softmax
    monkeypatch.setattr(K, "softmax", lambda *a, **k: calls.append(1) or softmax(*a, **k))
    for _ in range(3):
        assert np.array_equal(x.softmax().numpy(), softmax(floats(4, 12)))
    assert len(calls) == 1
    row = cb.tensor(floats(49)[1:].reshape(4, 12), device=NAME)
    shifted = cb.tensor(floats(49), device=NAME)[1:].reshape(4, 12)
    assert np.array_equal(shifted.softmax().numpy(), row.softmax().numpy())
    assert len(calls) == 2


def test_inputs_that_share_memory_are_another_kind() -> None:
    x = cb.tensor(floats(8), device=NAME)
    a, b = x[:4], x[4:]
    assert (a + b).tolist() == (floats(8)[:4] + floats(8)[4:]).tolist()
    assert (a + a).tolist() == (2 * floats(8)[:4]).tolist()
    assert (b + a).tolist() == (a + b).tolist()


def test_intermediates_are_released_at_once(backend: PretendBackend) -> None:
    x = cb.tensor(floats(64), device=NAME)
    gc.collect()
    gc.disable()
    try:
        before = backend.gpu.live
        y = x
        for _ in range(10):
            y = y * y - x
        assert backend.gpu.live <= before + 3
    finally:
        gc.enable()


def test_numbers_beside_arrays_are_at_home_anywhere() -> None:
    x = upload(floats(6), as_device(NAME))
    for number in (2.5, 2.5, 7.0, np.float32(3)):
        assert np.array_equal(
            K.map(K.functions.add, x, number).numpy(), floats(6) + np.float32(number)
        )
    with pytest.raises(cb.errors.LaunchError, match="NumPy array"):
        K.map(K.functions.add, x, floats(6))


def test_the_current_device_takes_new_tensors() -> None:
    with cb.use(NAME):
        x = cb.tensor([1.0, 2.0])
        assert str(x.device) == NAME
        assert (x + 1).tolist() == [2.0, 3.0]
        assert str(cb.tensor([1.0], device="cpu").device) == "cpu"


def test_tensors_move() -> None:
    x = cb.tensor([[1.0, 2.0]])
    far = x.to(NAME)
    assert far.to(NAME) is far and far.to("cpu").tolist() == x.tolist()
    other = far.to(f"{NAME}:1")
    assert str(other.device) == f"{NAME}:1" and other.tolist() == x.tolist()
    with pytest.raises(DeviceError, match=f'.to\\("{NAME}"\\)|.to\\("cpu"\\)'):
        x + far


def test_a_tensor_on_a_device_does_not_come_back_by_itself() -> None:
    x = cb.tensor([1.0], device=NAME)
    with pytest.raises(DeviceError, match=r"x\.numpy\(\)"):
        np.asarray(x)
    assert "pretend" in repr(x) and float(x) == 1.0 and x.item() == 1.0


def test_library_functions_run_where_their_inputs_are() -> None:
    x = cb.tensor(floats(3, 5), device=NAME)
    array = x.storage.dense()
    assert isinstance(K.softmax(array), DeviceArray)
    assert isinstance(K.transpose(array), DeviceArray)
    assert isinstance(K.matmul(array, array.T), DeviceArray)
    pooled = K.max_pool2d(cb.tensor(floats(1, 2, 6, 6), device=NAME).storage.dense(), 2)
    assert np.array_equal(pooled.numpy(), K.max_pool2d(floats(1, 2, 6, 6), 2))
    out = array.copy()
    assert K.softmax(array, out=out) is out
    assert np.array_equal(out.numpy(), K.softmax(floats(3, 5)))


class Net(nn.Module):
    """Two linear layers and an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(8, 32)
        self.hidden = nn.Linear(32, 64)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 16)

    def forward(self, ids: cb.Tensor) -> cb.Tensor:
        """Scores of ids."""
        return self.head(self.norm(F.gelu(self.hidden(self.words(ids)))))


def test_a_model_moves_with_its_parameters() -> None:
    nn.init.manual_seed(0)
    model, ids = Net(), np.array([[1, 2, 3]])
    expected = model(cb.tensor(ids)).numpy()
    assert model.to(NAME) is model
    assert all(str(p.device) == NAME for p in model.parameters())
    assert np.array_equal(model(cb.tensor(ids, device=NAME)).numpy(), expected)
    again = Net().to(NAME)
    again.load_state_dict(model.to("cpu").state_dict())
    assert str(again.hidden.weight.device) == NAME
    assert np.array_equal(again(cb.tensor(ids, device=NAME)).numpy(), expected)


@pytest.mark.parametrize("scheme", ["int8", "int4"])
def test_quantized_weights_move(scheme: str) -> None:
    nn.init.manual_seed(0)
    model, ids = Net().eval(), np.array([[1, 2, 3]])
    quantized = cb.quant.quantize(model, scheme, measure_speed=False).model
    expected = quantized(cb.tensor(ids)).numpy()
    moved = quantized.clone().to(NAME)
    assert (
        moved.hidden.weight.storage.kind == "quantized" and str(moved.hidden.weight.device) == NAME
    )
    found = moved(cb.tensor(ids, device=NAME)).numpy()  # a GPU may keep activations in float
    assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()
    assert np.array_equal(moved.hidden.weight.numpy(), quantized.hidden.weight.numpy())
    assert np.array_equal(moved.hidden.weight[8:24].numpy(), quantized.hidden.weight[8:24].numpy())


def test_a_model_is_quantized_where_it_is() -> None:
    nn.init.manual_seed(0)
    model = Net().to(NAME).eval()
    ids = cb.tensor(np.array([[1, 2, 3]]), device=NAME)
    result = cb.quant.quantize(model, "int8", calibrate=[ids], sample=ids, measure_speed=False)
    assert str(result.model.hidden.weight.device) == NAME
    assert result.report.output_error is not None and result.report.output_error < 0.05


def test_a_forced_routine_is_not_hidden_by_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    x, calls = cb.tensor(floats(8, 8), device=NAME), []
    matmul = K.matmul
    monkeypatch.setattr(K, "matmul", lambda *a, **k: calls.append(1) or matmul(*a, **k))
    for _ in range(2):
        x @ x
    with cb.tune.force("matmul", "inferred"):
        x @ x
    x @ x
    assert len(calls) == 3


class Keeping(Dense):
    """Storage whose op reads something that belongs to it, but is none of its arrays."""

    kind = "keeping"
    __slots__ = ("secret",)

    def plan(self) -> str:
        return "keeping"


@register("neg", "keeping")
def _sum_with_secret(inputs: list[Keeping], attrs: dict[str, object]) -> DeviceArray:
    result: DeviceArray = K.map(K.functions.add, inputs[0].array, inputs[0].secret)
    return result


def test_what_somebody_else_keeps_is_not_traced() -> None:
    """An executor that reads memory of its own runs each time: whose memory it is no plan can
    know.
    """
    found = []
    for n in (1.0, 2.0):
        storage = Keeping(cb.tensor(floats(4), device=NAME).storage.dense())
        storage.secret = cb.tensor(np.full(4, n, np.float32), device=NAME).storage.dense()
        found.append((-Tensor(storage)).numpy())
    assert np.allclose(found[1] - found[0], 1.0)


class Foreign:
    """An array of another library: each look at it makes another array of ours."""

    def __init__(self, array: DeviceArray) -> None:
        self.array, self.device = array, array.device

    def __cubepy_array__(self) -> DeviceArray:
        return DeviceArray(self.array.address, self.array.layout, Borrowed(self))


def test_arrays_of_other_libraries_repeat_their_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[PretendTable] = []
    go = PretendTable.go
    monkeypatch.setattr(
        PretendTable, "go", lambda self, *given: replayed.append(self) or go(self, *given)
    )
    x = cb.tensor(floats(7, 5), device=NAME).storage.dense()
    out = x.copy()
    for _ in range(3):
        assert np.array_equal(K.softmax(Foreign(x)).numpy(), K.softmax(x.numpy()))
        K.map(K.functions.mul, Foreign(x), Foreign(x), out=Foreign(out))
        assert np.array_equal(out.numpy(), x.numpy() ** 2)
    assert len(replayed) == 4


def test_library_functions_repeat_their_launches() -> None:
    """Functions of arrays, with `out` and with a function as argument, give the same the second
    time.
    """
    first, second = (cb.tensor(floats(6, 4) * n, device=NAME).storage.dense() for n in (1, 2))
    for x in (first, second, first):
        host = x.numpy()
        assert np.array_equal(K.softmax(x).numpy(), K.softmax(host))
        assert np.array_equal(K.softmax(x, axis=0).numpy(), K.softmax(host, axis=0))
        assert np.array_equal(
            K.map(K.functions.add, x, x.T.reshape(6, 4)).numpy(), host + host.T.reshape(6, 4)
        )
        assert np.array_equal(K.map(K.functions.mul, x, x).numpy(), host * host)
        assert K.sum(x, axis=1).shape == (6,) and K.sum(x, axis=1, keepdims=True).shape == (6, 1)
        assert K.argmax(x).item() == host.argmax()
        out = x.copy()
        assert K.softmax(x, out=out) is out and np.array_equal(out.numpy(), K.softmax(host))
        assert K.softmax(out, out=out) is out
        assert np.array_equal(out.numpy(), K.softmax(K.softmax(host)))


MADE: dict[str, Callable[..., Any]] = {
    "full": lambda shape, d, n, at: xp.full(shape, n, dtype=d, device=at),
    "zeros": lambda shape, d, n, at: xp.zeros(shape, dtype=d, device=at),
    "ones": lambda shape, d, n, at: xp.ones(shape, dtype=d, device=at),
    "arange": lambda shape, d, n, at: xp.arange(2, 5 + n % 2, dtype=d, device=at),
    "eye": lambda shape, d, n, at: xp.eye(*shape, k=1, dtype=d, device=at),
    "new_full": lambda shape, d, n, at: xp.zeros(2, dtype=d, device=at).new_full(shape, n),
    "tril": lambda shape, d, n, at: xp.ones(shape, dtype=d, device=at).tril(n % 3 - 1),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64", "i64", "u8", "bool_"])
@pytest.mark.parametrize("name", MADE)
def test_what_is_made_of_nothing_is_made_anew(
    name: str, dtype: str, backend: PretendBackend
) -> None:
    """On the device that is asked for, however often, in memory of its own."""
    rng = np.random.default_rng()
    shape, number = tuple(int(n) for n in rng.integers(1, 9, 2)), int(rng.integers(0, 90))
    want = MADE[name](shape, dtype, number, "cpu").numpy()
    made = [MADE[name](shape, dtype, number, f"{NAME}:{n % 2}") for n in range(6)]
    for n, one in enumerate(made):
        assert str(one.device) in ((NAME, f"{NAME}:0"), (f"{NAME}:1",))[n % 2]
        np.testing.assert_array_equal(one.numpy(), want, err_msg=f"{shape} {number}")
    made[0][...] = 1
    for one in made[1:]:
        np.testing.assert_array_equal(one.numpy(), want)
