"""Memory shared with other libraries: DLPack and the CUDA array interface, both ways, without a
copy.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import DeviceError, LaunchError
from cubepy.runtime.device import Device
from cubepy.runtime.interop.foreign import device_array, from_dlpack
from cubepy.runtime.memory.device_array import DeviceArray, empty, upload
from tests.device.kernels import add_one, axpy

HERE = Device("cuda")


def library(name: str) -> Any:
    """Another library, or a skip."""
    return pytest.importorskip(name)


TORCH = ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool"]


@pytest.mark.parametrize("dtype", TORCH)
def test_torch_tensors_are_shared(dtype: str) -> None:
    torch = library("torch")
    t = torch.arange(24, device="cuda").reshape(4, 6).to(getattr(torch, dtype))[:, ::2]
    x = cb.tensor(t)
    assert x.storage.dense().address == t.data_ptr()
    assert x.shape == (4, 3) and str(x.device) == "cuda"
    back = torch.from_dlpack(x)
    assert back.data_ptr() == t.data_ptr() and back.dtype == t.dtype and back.stride() == t.stride()
    assert torch.equal(back, t)


def test_torch_tensors_go_into_kernels() -> None:
    torch = library("torch")
    x, out = torch.rand(1000, device="cuda"), torch.empty(1000, device="cuda")
    axpy[cb.over(1000)](2.0, x, x, out)
    assert torch.allclose(out, 3 * x)
    out.zero_()
    axpy[cb.over(1000)](2.0, x, x, out)
    assert torch.allclose(out.sum(), 3 * x.sum())
    launch = axpy[cb.over(1000)].bind(5.0, x, x, out)
    launch()
    assert torch.allclose(out, 6 * x)


def test_work_of_torch_and_cubepy_is_in_order() -> None:
    """Long work of torch on its default stream comes before a launch that reads its result, and
    after.
    """
    torch = library("torch")
    big = torch.rand(4096, 4096, device="cuda")
    for _ in range(5):
        t = (big @ big @ big)[0].contiguous()
        add_one[cb.over(t)](t)
        total = t.sum()
        assert torch.allclose(total, (big @ big @ big)[0].sum() + 4096, rtol=1e-3)


def test_a_gradient_is_refused() -> None:
    torch = library("torch")
    with pytest.raises(LaunchError, match="detach"):
        add_one[cb.over(4)](torch.zeros(4, device="cuda", requires_grad=True))


def test_memory_given_to_torch_outlives_the_array() -> None:
    torch = library("torch")
    x = upload(np.arange(1000, dtype=np.float32), HERE)
    t = torch.from_dlpack(x)
    address = x.address
    del x
    others = [empty((1000,), np.float32, HERE) for _ in range(5)]
    assert all(o.address != address for o in others)
    assert t.sum().item() == 499500.0
    del t
    assert address in {empty((1000,), np.float32, HERE).address, *(o.address for o in others)}


@pytest.mark.parametrize("name", ["cupy", "numba.cuda"])
def test_the_cuda_array_interface_both_ways(name: str) -> None:
    if name == "numba.cuda":
        pytest.importorskip("numba_cuda")
    module = importlib.import_module(name) if name == "numba.cuda" else library(name)
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    theirs = module.to_device(host) if name == "numba.cuda" else module.asarray(host)
    mine = device_array(theirs)
    assert mine is not None and np.array_equal(mine.numpy(), host)
    add_one[cb.over(12)](theirs.reshape(12))
    assert np.array_equal(mine.numpy(), host + 1)
    x = cb.tensor(host).storage.dense()
    back = module.as_cuda_array(x) if name == "numba.cuda" else module.asarray(x)
    assert back.__cuda_array_interface__["data"][0] == x.address
    got = back.copy_to_host() if name == "numba.cuda" else module.asnumpy(back)
    assert np.array_equal(got, host)


def test_versions_0_and_1_of_dlpack() -> None:
    x = cb.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)).storage.dense()

    class Old:
        """A producer of version 0."""

        def __dlpack__(self, stream: Any = None) -> Any:
            return x.__dlpack__(stream=stream)

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    for source in (x, Old()):
        taken = from_dlpack(source)
        assert (
            isinstance(taken, DeviceArray)
            and taken.address == x.address
            and taken.layout is x.layout
        )
    read_only = np.broadcast_to(x, (4, 2, 3))
    assert not from_dlpack(read_only).writeable
    with pytest.raises(BufferError):
        read_only.__dlpack__()
    copied = from_dlpack(x.T)
    assert np.array_equal(copied.numpy(), x.numpy().T)


def test_a_bfloat16_array_has_no_cuda_interface() -> None:
    x = cb.tensor([1.0, 2.0]).astype("bf16").storage.dense()
    with pytest.raises(Exception, match="DLPack"):
        x.__cuda_array_interface__
    with pytest.raises(DeviceError):
        np.asarray(x)


def test_jax_arrays_are_shared() -> None:
    jax = library("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this jax has no GPU")
    theirs = jax.numpy.arange(8.0)
    x = cb.tensor(theirs)
    assert x.tolist() == list(range(8))
    assert jax.dlpack.from_dlpack(x + 1).tolist() == list(range(1, 9))
    out = empty((8,), np.float32, HERE)
    for _ in range(3):
        axpy[cb.over(8)](2.0, theirs, theirs, out)
        assert out.tolist() == [3.0 * n for n in range(8)]
