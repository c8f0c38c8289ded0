"""Two GPUs of one host: everything is on the device that it should be on, and each has its own
order of work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn
from cubepy.errors import CubeError
from cubepy.runtime.device import Device, as_device, backend_named
from cubepy.runtime.memory.device_array import upload
from tests.device.kernels import add_one, axpy, slow_add

FIRST, SECOND = Device("cuda", 0), Device("cuda", 1)


@pytest.fixture(autouse=True)
def two() -> Iterator[None]:
    """A second GPU, and the first is the current device."""
    if backend_named("cuda").count() < 2:
        pytest.skip("there are fewer than two GPUs")
    with cb.use("cuda"):
        yield


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("device", [FIRST, SECOND], ids=str)
def test_library_functions_run_where_their_arrays_are(device: Device) -> None:
    host = numbers(300, 257)
    weights = np.exp(host.astype(np.float64))
    for _ in range(3):  # the second and third are repeated from traces, one for each device
        x = upload(host, device)
        for got, right in (
            (K.softmax(x), weights / weights.sum(1, keepdims=True)), (K.sum(x, axis=0), host.sum(0, dtype=np.float64)),
            (K.matmul(x, x.T), host.astype(np.float64) @ host.T), (K.sort(x), np.sort(host)),
            (K.cumsum(x, 1), host.cumsum(1, dtype=np.float64)), (K.transpose(x), host.T),
        ):  # fmt: skip
            assert got.device == device
            assert np.allclose(got.numpy(), right, rtol=2e-4, atol=2e-4)


def test_a_launch_does_not_mix_devices() -> None:
    x, y = upload(numbers(64), FIRST), upload(numbers(64), SECOND)
    with pytest.raises(CubeError, match="cuda"):
        axpy[cb.over(64)](2.0, x, y, x)
    with pytest.raises(CubeError):
        K.map(K.functions.add, x, y)
    add_one[cb.over(64)](y)
    assert np.allclose(y.numpy(), numbers(64) + 1)


def test_tensors_go_from_one_to_the_other() -> None:
    host = numbers(1 << 20)
    x = cb.tensor(host, device="cuda:0")
    for _ in range(4):
        x = (x * 1.0).to("cuda:1")
        x = (x * 1.0).to("cuda:0")
    assert x.device == FIRST and np.array_equal(x.numpy(), host)
    with pytest.raises(CubeError):
        (x + x.to("cuda:1")).numpy()


def test_devices_work_at_the_same_time() -> None:
    """A slow launch on one does not keep the other, and each waits for its own."""
    pairs = [
        (upload(np.zeros(1, np.float32), d), upload(np.zeros(1, np.float32), d))
        for d in (FIRST, SECOND)
    ]
    for _ in range(3):
        for x, y in pairs:
            slow_add[1, 1](x, y, 100_000)
            slow_add[1, 1](y, x, 1)
    assert [x.item() for x, _ in pairs] == [6.0, 6.0]


def test_threads_with_a_device_each() -> None:
    host, found = numbers(128, 96), {}

    def work(device: Device) -> None:
        with cb.use(device):
            x = cb.tensor(host, device=device)
            for _ in range(20):
                y = (x @ x.T).softmax(1).sum()
            found[device] = float(y.numpy())

    threads = [threading.Thread(target=work, args=(d,)) for d in (FIRST, SECOND)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found[FIRST] == found[SECOND] and abs(found[FIRST] - 128) < 1e-2


@pytest.mark.parametrize("scheme", [None, "int8", "int4"])
def test_a_model_moves_to_the_second(scheme: str | None) -> None:
    model = nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 64))
    if scheme:
        model = cb.quant.quantize(model, scheme, measure_speed=False).model
    x = numbers(5, 128)
    right = model(cb.tensor(x)).numpy()
    there = model.clone().to("cuda:1")
    inputs = cb.tensor(x, device="cuda:1")
    got = there(inputs)
    assert got.device == SECOND and np.allclose(got.numpy(), right, rtol=2e-3, atol=2e-3)
    with cb.use("cuda:1"), cb.capture() as graph:
        result = there(inputs)
    graph.replay()
    assert np.allclose(result.numpy(), right, rtol=2e-3, atol=2e-3)


def test_matrix_units_and_torch_on_the_second() -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.randn(512, 512, device="cuda:1", dtype=torch.bfloat16) for _ in range(2))
    torch.cuda.synchronize(1)
    for _ in range(3):
        got = torch.from_dlpack(K.matmul(a, b))
        assert got.device.index == 1
        right = a.double() @ b.double()
        assert float((got.double() - right).norm() / right.norm()) < 5e-3


def test_an_absent_device_is_named() -> None:
    with pytest.raises(CubeError, match="cuda:99"):
        cb.tensor(numbers(4), device=as_device("cuda:99"))
