"""Arrays in device memory: their shapes, what they refuse, and launches with them. No GPU is
needed.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import DeviceError, DTypeError, LaunchError, ReadOnlyError, ShapeError
from cubepy.runtime.device import Device
from cubepy.runtime.memory.device_array import DeviceArray, empty, upload
from cubepy.runtime.memory.layout import layout_of
from tests.pretend import PretendBackend, look, pretend

HERE = Device("pretend")


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendBackend]:
    """The pretended device."""
    with pretend(monkeypatch) as b:
        yield b


def far(array: np.ndarray) -> DeviceArray:
    """A copy on the pretended device."""
    return upload(array, HERE)


def unreal(shape: tuple[int, ...], dtype: object = np.float32) -> DeviceArray:
    """An array at an address that nobody may touch."""
    return DeviceArray(0x10000, layout_of(shape, None, np.dtype(dtype), Device("cuda")), None)


VIEWS = {
    "slice": lambda a: a[1:, ::2],
    "negative": lambda a: a[::-1, -1:0:-1],
    "integer": lambda a: a[1],
    "all integers": lambda a: a[1, 2, 0],
    "new axis": lambda a: a[:, None],
    "ellipsis": lambda a: a[..., 1],
    "transpose": lambda a: a.T,
    "permutation": lambda a: a.transpose(1, 2, 0),
    "tuple permutation": lambda a: a.transpose((2, 0, 1)),
    "reshape": lambda a: a.reshape(4, -1),
    "broadcast": lambda a: np.broadcast_to(a, (5, 4, 6, 2)),
    "moveaxis": lambda a: np.moveaxis(a, 0, -1),
    "swapaxes": lambda a: np.swapaxes(a, 0, 1),
    "expand": lambda a: np.expand_dims(a, 1),
    "squeeze": lambda a: np.squeeze(a[:1]),
    "flip": lambda a: np.flip(a, 1),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_those_of_numpy(name: str) -> None:
    """Shape, strides and place are the same as of a NumPy array; no element is touched."""
    host = np.zeros((4, 6, 2), np.float32)
    mine, theirs = VIEWS[name](unreal((4, 6, 2))), VIEWS[name](host)
    offset = np.asarray(theirs).__array_interface__["data"][0] - host.__array_interface__["data"][0]
    if isinstance(theirs, np.ndarray):
        assert (mine.shape, mine.strides) == (theirs.shape, theirs.strides)
        assert mine.flags.c_contiguous == theirs.flags.c_contiguous
        assert mine.address - 0x10000 == offset
    else:
        assert mine.shape == ()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.bool_])
@pytest.mark.parametrize("name", VIEWS)
def test_copies_have_elements_and_memory_of_their_own(
    name: str, dtype: object, backend: PretendBackend
) -> None:
    host = (np.arange(48).reshape(4, 6, 2) % 5).astype(dtype)
    whole = far(host)
    mine, theirs = VIEWS[name](whole), np.asarray(VIEWS[name](host))
    copies = [copy.copy(mine), copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))]
    whole[...] = 0
    for other in copies:
        assert (other.device, other.dtype) == (HERE, theirs.dtype)
        np.testing.assert_array_equal(look(other), theirs)
    if name in ("transpose", "permutation", "tuple permutation", "swapaxes"):
        assert copies[1].strides == mine.strides


@pytest.mark.parametrize("dtype", [np.float32, np.int8, ml_dtypes.bfloat16, np.bool_])
def test_what_it_is(dtype: object) -> None:
    a = unreal((2, 3), dtype)
    assert (a.ndim, a.size, a.itemsize, a.nbytes) == (
        2,
        6,
        np.dtype(dtype).itemsize,
        6 * np.dtype(dtype).itemsize,
    )
    assert a.dtype == np.dtype(dtype) and len(a) == 2 and a.flags["C_CONTIGUOUS"]
    assert a[0].dtype == a.dtype


def test_equal_layouts_are_one_object() -> None:
    assert unreal((2, 3)).layout is unreal((2, 3)).layout
    assert unreal((2, 3)).T.layout is unreal((2, 3)).T.layout
    assert unreal((2, 3)).layout is not unreal((2, 3), np.int32).layout


@pytest.mark.parametrize(
    "touch",
    [np.asarray, np.array, bool, float, int, list, np.sum, lambda a: a + np.ones(3), lambda a: np.add(a, 1), np.sort,
     lambda a: a == 3],
)  # fmt: skip
def test_no_element_is_touched_on_the_host(touch: object) -> None:
    with pytest.raises((DeviceError, TypeError)) as caught:
        touch(unreal((3,)))  # type: ignore[operator]
    if isinstance(caught.value, DeviceError):
        assert "numpy()" in str(caught.value)


@pytest.mark.parametrize("index", [[0, 1], np.array([0]), True, "x", 1.5])
def test_an_index_that_needs_elements_is_refused(index: object) -> None:
    with pytest.raises(DTypeError):
        unreal((3,))[index]


def test_elements_go_there_and_back(backend: PretendBackend) -> None:
    host = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    a = far(host)
    assert np.array_equal(a.numpy(), host)
    assert np.array_equal(a[:, 1:].transpose(2, 0, 1).numpy(), host[:, 1:].transpose(2, 0, 1))
    assert a[1, 2, 3].item() == 23.0
    assert a[0].tolist() == host[0].tolist()


def test_a_reshape_that_needs_a_copy_copies(backend: PretendBackend) -> None:
    host = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert np.array_equal(far(host).T.reshape(-1).numpy(), host.T.reshape(-1))
    with pytest.raises(AttributeError):
        far(host).T.reshape_view((6,))


def test_views_of_bytes_begin_with_a_whole_element(backend: PretendBackend) -> None:
    a = far(np.arange(12, dtype=np.uint8))
    assert a[4:].view(np.float32).shape == (2,)
    with pytest.raises(LaunchError, match="no multiple of its element"):
        a[1:9].view(np.float32)


def test_assignment_broadcasts_and_converts(backend: PretendBackend) -> None:
    a = far(np.zeros((2, 3), np.float32))
    a[...] = 1
    a[0, 1:] = np.array([5, 6])
    a[1] = far(np.arange(3, dtype=np.int32))
    assert a.tolist() == [[1, 5, 6], [0, 1, 2]]
    with pytest.raises(ShapeError):
        a[...] = np.zeros(4, np.float32)


def test_arrays_are_joined(backend: PretendBackend) -> None:
    x, y = np.arange(6).reshape(2, 3), np.arange(4).reshape(2, 2)
    assert np.array_equal(
        np.concatenate([far(x), far(y)], axis=1).numpy(), np.concatenate([x, y], axis=1)
    )
    assert np.array_equal(np.stack([far(x), far(x)], axis=2).numpy(), np.stack([x, x], axis=2))
    assert np.array_equal(np.zeros_like(far(x)).numpy(), np.zeros_like(x))
    assert np.array_equal(np.full_like(far(x), 7).numpy(), np.full_like(x, 7))
    with pytest.raises(DeviceError, match="host"):
        np.concatenate([far(x), y], axis=1)


@cb.kernel
def scale(x: cb.Array, out: cb.Array, factor):
    """out = x * factor"""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * factor


def test_a_launch_runs_where_its_arrays_are(backend: PretendBackend) -> None:
    x = far(np.arange(5, dtype=np.float32))
    out = empty((5,), np.float32, HERE)
    for factor in (2.0, 3.0):
        scale[cb.over(out)](x, out, factor)
        assert out.tolist() == [0.0, factor, 2 * factor, 3 * factor, 4 * factor]
    again = scale[cb.over(out)].bind(x, out, 5.0)
    again()
    assert out.tolist() == [0.0, 5.0, 10.0, 15.0, 20.0]


def test_a_host_array_is_refused_with_the_remedy(backend: PretendBackend) -> None:
    x, out = np.zeros(5, np.float32), empty((5,), np.float32, HERE)
    with pytest.raises(LaunchError, match=r"cb\.tensor\(x, device=\"pretend\"\)"):
        scale[cb.over(5)](x, out, 2.0)
    with pytest.raises(LaunchError, match="NumPy array"):
        scale[cb.over(5)](x, x.copy(), 2.0, device="pretend")


def test_an_array_on_another_device_is_refused(backend: PretendBackend) -> None:
    x, out = far(np.zeros(5, np.float32)), empty((5,), np.float32, Device("pretend", 1))
    with pytest.raises(LaunchError, match="pretend:1"):
        scale[cb.over(5)](x, out, 2.0)
    with pytest.raises(LaunchError, match="launched on cpu"):
        scale[cb.over(5)](x, x, 2.0, device="cpu")


def test_a_read_only_output_is_refused(backend: PretendBackend) -> None:
    x = far(np.zeros(5, np.float32))
    with pytest.raises(ReadOnlyError):
        scale[cb.over(5)](x, np.broadcast_to(far(np.zeros(1, np.float32)), (5,)), 2.0)


def test_memory_is_let_go_with_the_last_view(backend: PretendBackend) -> None:
    a = far(np.zeros((4, 4), np.float32))
    part = a[1:, 2]
    del a
    assert backend.gpu.live == 1
    del part
    assert backend.gpu.live == 0


def test_streams_wait_for_each_other(backend: PretendBackend) -> None:
    """A launch on another stream comes after the work that it depends on; one on the same stream
    waits for nothing.
    """
    x, out = far(np.ones(5, np.float32)), empty((5,), np.float32, HERE)
    one, two = cb.Stream("pretend"), cb.Stream("pretend")
    scale[cb.over(5)](x, out, 2.0, stream=one)
    scale[cb.over(5)](x, out, 2.0, stream=one)
    assert not one.native.waits
    scale[cb.over(5)](x, out, 3.0, stream=two)
    assert one.native in two.native.waits
    with two:
        scale[cb.over(5)](x, out, 4.0)
    assert look(out)[0] == 4.0 and not one.native.waits


def test_a_stream_of_another_device_is_refused(backend: PretendBackend) -> None:
    x = far(np.ones(5, np.float32))
    with pytest.raises(LaunchError):
        scale[cb.over(5)](x, x, 2.0, stream=cb.Stream("cpu"))


def test_without_a_driver_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.backends.cuda.native.driver import DRIVER

    monkeypatch.setattr(DRIVER, "library", None)
    monkeypatch.setattr(DRIVER, "reason", None)
    monkeypatch.setattr(DRIVER, "libraries", ("libnothing.so",))
    assert (
        "no NVIDIA driver" in str(cb.devices())
        and "no NVIDIA driver" in cb.devices().missing["cuda"]
    )
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        cb.use("cuda")
    with pytest.raises(DeviceError, match="no NVIDIA driver"):
        cb.tensor([1.0], device="cuda:0")
    monkeypatch.setattr(DRIVER, "reason", None)
