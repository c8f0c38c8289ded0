"""Calls on a GPU that came before are repeated by machine code: they do what the long way does, or
take it.

The driver is the one of `tests.backends.cuda.fake_cuda`: it runs work late, and in any order that
is not forbidden.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.cuda import replay
from cubepy.backends.cuda.backend import CudaBackend
from cubepy.backends.cuda.gpu import CudaGpu
from cubepy.backends.cuda.native.module import Loadable, Wish, launch_config
from cubepy.backends.cuda.run import CudaRunner
from cubepy.errors import AliasError, DeviceError, LaunchError, ReadOnlyError
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.runtime import memory, recording
from cubepy.runtime.device import Device
from cubepy.runtime.interop import foreign
from cubepy.runtime.interop.arrays import QUICK
from cubepy.runtime.memory.constants import constant_on
from cubepy.runtime.memory.device_array import DeviceArray, upload
from cubepy.runtime.memory.layout import layout_of
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.stats import counters
from cubepy.runtime.tensor_map import ArrayMap
from cubepy.tensor import Tensor
from tests.backends.cuda.fake_cuda import FakeCuda, fake_cuda, kernel

HERE = Device("cuda")
GPU = CudaGpu()


def adding() -> Any:
    """A kernel that was never launched."""

    @cb.kernel
    def far_add(a: cb.Array, b: cb.Array, out: cb.Array):
        """out = a + b."""
        i = cb.ABSOLUTE_POS
        if i < out.size:
            out[i] = a[i] + b[i]

    return far_add


far_add = adding()


def memory_of(words: list[int]) -> np.ndarray:
    """The array of three words of a launch: address, size, stride in elements."""
    at, size, stride = words
    low = min(0, (size - 1) * stride)
    raw = (ctypes.c_float * (1 + abs((size - 1) * stride))).from_address(at + 4 * low)
    return np.lib.stride_tricks.as_strided(
        np.frombuffer(raw, np.float32)[-low:], (size,), (4 * stride,)
    )


@kernel(9)
def added(words: list[int]) -> None:
    """What `far_add` does."""
    a, b, out = (memory_of(words[k : k + 3]) for k in (0, 3, 6))
    out[...] = a.copy() + b


@repeated
def plus(x: Any, y: Any, *, out: Any = None) -> Any:
    """x + y."""
    wrap, a, b = wrapper(x, y), array_of(x), array_of(y)
    result = output(out, a.shape, a.dtype)
    far_add[1, max(1, a.size)](a, b, result)
    return finish(result, out, wrap)


@repeated
def much(x: Any, y: Any, times: int = 3, *, out: Any = None) -> Any:
    """x + times * y + 2, through scratch, a constant, a fill and a copy."""
    a, b = array_of(x), array_of(y)
    scratch, zeros = memory.empty(a.shape, a.dtype), memory.empty(a.shape, a.dtype)
    scratch[...] = a
    zeros.fill(0)
    for _ in range(times):
        far_add[1, a.size](scratch, b, scratch)
    far_add[1, a.size](scratch, zeros, scratch)
    result = output(out, a.shape, a.dtype)
    far_add[1, a.size](scratch, constant_on(a.device, np.full(a.shape, 2, np.float32)), result)
    return result if out is None else out


class Executable:
    """Machine code that is a function of Python."""

    def __init__(self, program: Any) -> None:
        self.program, self.loadable, self.units = program, Loadable(b"", program.name), (1, 1, 1)
        self.shared_bytes, self.cluster, self.overlap, self.sites, self.loose, self.whole = (
            0,
            None,
            False,
            (),
            0,
            None,
        )

    def prepare(self, leaves: Any, values: Any, cubes: Any, ordinal: int = 0) -> CudaRunner:
        return CudaRunner(self, leaves, cubes, ordinal)


@pytest.fixture(params=range(3))
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """The driver, with another order of work each time."""
    yield from start(monkeypatch, request.param)


def start(monkeypatch: pytest.MonkeyPatch, seed: int, devices: int = 1) -> Iterator[FakeCuda]:
    monkeypatch.setattr(
        CudaBackend, "executable", lambda self, k, program, specs, in_place: Executable(program)
    )
    monkeypatch.setitem(globals(), "far_add", adding())  # another driver
    gc.freeze()  # what other tests left is not looked at
    with fake_cuda(monkeypatch, seed, devices=devices) as f:
        f.kernels["far_add"] = added
        yield f
        recording.forget()
        gc.collect()
    gc.unfreeze()


def new(values: Any, ordinal: int = 0) -> DeviceArray:
    return upload(np.asarray(values, np.float32), Device("cuda", ordinal))


def some(n: int = 10) -> np.ndarray:
    return (
        np.random.default_rng(some.calls.append(0) or len(some.calls))
        .standard_normal(n)
        .astype(np.float32)
    )  # type: ignore[attr-defined]


some.calls = []  # type: ignore[attr-defined]


def same(found: Any, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found.numpy(), expected)


class Repetitions:
    """Counts calls that took the long way, by what was recorded of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.long = 0
        begin = Recorder.__enter__

        def count(recorder: Recorder) -> Recorder:
            self.long += 1
            return begin(recorder)

        monkeypatch.setattr(Recorder, "__enter__", count)


@pytest.fixture
def repetitions(monkeypatch: pytest.MonkeyPatch) -> Repetitions:
    return Repetitions(monkeypatch)


def test_the_second_call_is_a_repetition(fake: FakeCuda, repetitions: Repetitions) -> None:
    for _ in range(6):
        x, y = some(), some()
        before = counters.launches
        same(plus(new(x), new(y)), x + y)
        assert counters.launches == before + 1 and repetitions.long == 1


def test_scratch_constants_copies_and_fills_are_repeated(
    fake: FakeCuda, repetitions: Repetitions
) -> None:
    for _ in range(8):
        x, y = some(), some()
        same(much(new(x), new(y), 2), ((x + y) + y) + 2)
        out = new(some())
        assert much(new(x), new(y), out=out) is out
        same(out, (((x + y) + y) + y) + 2)
    assert repetitions.long == 2


def test_results_that_are_dropped_and_used_in_turn(fake: FakeCuda) -> None:
    x, y = some(), some()
    far, expected = new(x), x
    step = new(y)
    for _ in range(40):
        far, expected = plus(far, step), expected + y
        plus(step, far)
    same(far, expected)


def test_options_and_layouts_are_told_apart(fake: FakeCuda) -> None:
    whole = some(40)
    for times in (1, 2, 1, 2, 1, 2, True):
        for part in (slice(0, 10), slice(0, 20, 2), slice(9, None, -1), slice(3, 13)):
            x, y = new(whole)[part], new(whole)[10:20]
            same(plus(x, y), whole[part] + whole[10:20])
        expected = whole[3:13]
        for _ in range(times):
            expected = expected + whole[10:20]
        same(much(new(whole)[3:13], y, times), expected + 2)


def test_work_in_place_and_arrays_that_share_memory(fake: FakeCuda) -> None:
    whole = some(40)
    for n in range(12):
        far = new(whole)
        part = slice(n, n + 20)
        same(plus(far[:20], far[part]), whole[:20] + whole[part])
        same(plus(far[:20], far[20:]), whole[:20] + whole[20:])
        x, y = new(whole[:20]), new(whole[20:])
        assert plus(x, y, out=x) is x
        same(x, whole[:20] + whole[20:])
        same(plus(y, y), 2 * whole[20:])
        same(plus(y, y, out=y), 2 * whole[20:])
        with pytest.raises(AliasError):
            plus(far[:20], new(whole[:20]), out=far[7:27])
        fixed = new(whole[:20])
        fixed.writeable = False
        with pytest.raises(ReadOnlyError):
            plus(far[:20], far[20:], out=fixed)


def test_work_in_place_is_repeated(fake: FakeCuda, repetitions: Repetitions) -> None:
    for _ in range(6):
        x, y = some(), some()
        a, b = new(x), new(y)
        assert plus(a, b, out=a) is a and plus(b, b, out=b) is b
        c = new(x)
        assert plus(a, b, out=c) is c  # the same layouts, but not in place
        same(a, x + y)
        same(b, y + y)
        same(c, (x + y) + (y + y))
    assert repetitions.long == 3
    fixed = new(x)
    fixed.writeable = False
    with pytest.raises(ReadOnlyError):
        plus(DeviceArray(fixed.address, fixed.layout, fixed.owner), b, out=fixed)


def test_tensors_give_tensors(fake: FakeCuda) -> None:
    for _ in range(5):
        x, y = some(), some()
        found = plus(cb.tensor(new(x)), new(y))
        assert type(found) is Tensor
        same(found, x + y)
        assert type(plus(new(x), new(y))) is DeviceArray


def test_other_streams_come_after_what_they_need(fake: FakeCuda) -> None:
    streams = [cb.Stream(HERE) for _ in range(3)]
    x, y = some(), some()
    far, step, expected = new(x), new(y), x
    for n in range(30):
        with streams[n % 3]:
            far, expected = plus(far, step), expected + y
            if n % 4 == 0:
                same(much(far, step, 1), expected + y + 2)
            if n % 5 == 0:
                step, y = plus(step, step), y + y
    same(far, expected)


def test_a_graph_records_what_would_be_repeated(fake: FakeCuda, repetitions: Repetitions) -> None:
    x, y = new(some()), new(some())
    for _ in range(4):
        plus(x, y)
    long = repetitions.long
    with cb.capture(HERE) as graph:
        found = plus(plus(x, y), y)
    assert repetitions.long == long + 2
    for _ in range(3):
        a, b = some(), some()
        graph.put(x, a)
        graph.put(y, b)
        graph.replay()
        same(found, a + b + b)
    for _ in range(3):
        same(plus(x, y), a + b)


def test_a_setting_that_changes_is_heeded(fake: FakeCuda, repetitions: Repetitions) -> None:
    x, y = new(some()), new(some())
    for _ in range(4):
        plus(x, y)
    before = repetitions.long
    plus(x, y)
    assert repetitions.long == before
    with cb.config.override(deterministic=not cb.config.deterministic):
        plus(x, y)
    assert repetitions.long == before + 1


def test_a_launch_that_fails_raises(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = new(some()), new(some())
    for _ in range(4):
        plus(x, y)
    monkeypatch.setattr(FakeCuda, "cuLaunchKernel", lambda self, *given: 719)
    with pytest.raises(DeviceError, match="far_add"):
        plus(x, y)


def test_a_thread_that_works_in_another_context(fake: FakeCuda, repetitions: Repetitions) -> None:
    x, y = some(), some()
    a, b = new(x), new(y)
    for _ in range(4):
        plus(a, b)
    fake.cuCtxPushCurrent_v2(0x999)  # another library's
    before = repetitions.long
    same(plus(a, b), x + y)
    assert fake.contexts[-1] == 0x999 and repetitions.long == before
    fake.contexts.pop()


def test_several_devices(monkeypatch: pytest.MonkeyPatch, repetitions: Repetitions) -> None:
    for _ in start(monkeypatch, 1, devices=2):
        for _ in range(5):
            for ordinal in (0, 1):
                x, y = some(), some()
                found = plus(new(x, ordinal), new(y, ordinal))
                assert found.device.ordinal == ordinal
                same(found, x + y)
        assert repetitions.long == 2, "the context of the thread does not matter"
        with pytest.raises(LaunchError):
            plus(new(x, 0), new(y, 1))


def test_clusters_and_tensor_maps_get_stream_and_addresses(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def launch(self: Any, config: int, function: int, parameters: int, extra: int) -> int:
        words = (ctypes.c_int64 * 7).from_address(config)
        grid = (ctypes.c_uint32 * 7).from_address(config)
        at = [ctypes.c_int64.from_address(parameters + 8 * k).value for k in range(3)]
        seen.append(
            (
                list(grid),
                words[4],
                function,
                [ctypes.c_int64.from_address(a).value for a in at],
                at[2] % 64,
            )
        )
        return 0

    def move(self: Any, tensor_map: int, address: int, *rest: int) -> int:
        ctypes.c_int64.from_address(tensor_map).value = address
        return 0

    monkeypatch.setattr(FakeCuda, "cuLaunchKernelEx", launch, raising=False)
    monkeypatch.setattr(FakeCuda, "cuTensorMapReplaceAddress", move, raising=False)
    array = DeviceArray(0x4000, layout_of((64, 64), None, np.dtype(np.float16), HERE), None)
    runner = SimpleNamespace(
        empty=False, arrays=[(0, 0, True)], numbers=[(1, 1, 1)], maps=[(2, 2, False)], loose=0, fault_word=-1,
        block=[0] * 18, starts=[0, 1, 2], exe=SimpleNamespace(program=SimpleNamespace(name="some")),
        config=launch_config((5, 6, 7), (32, 2, 1), 99, Wish(cluster=(2, 1, 1))), head=(ctypes.c_void_p(0x77), *[0] * 7),
    )  # fmt: skip
    table = replay.CudaTable(fake.contexts[-1] if fake.contexts else 0)
    table.launch(
        runner, [array, 1.5, ArrayMap(array, array, (16, 64), 128)], [(0, 8), None, (1, 256)]
    )  # type: ignore[arg-type]
    run, at, alive = table.ready()
    for handle, one, two in ((11, 0x5000, 0x6000), (12, 0x7000, 0x8000)):
        assert run(at, handle, one, two) == 0
        grid = [5, 6, 7, 32, 2, 1, 99]
        assert seen.pop() == (
            grid,
            handle,
            0x77,
            [one + 8, np.float32(1.5).view(np.int32), two + 256],
            0,
        )
    assert alive


def test_threads_share_what_is_repeated(fake: FakeCuda) -> None:
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(20):
            x, y = some(), some()
            if not np.array_equal(plus(new(x), new(y)).numpy(), x + y):
                wrong.append((x, y))

    for _ in range(3):
        plus(new(some()), new(some()))
    thread = threading.Thread(target=work)  # the driver of the test is for one thread at a time
    thread.start()
    thread.join()
    work()
    assert not wrong


def test_launches_are_repeated(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [cb.Stream(HERE) for _ in range(2)]
    whole = some(30)
    bound: list[Any] = []
    binder = far_add.launches.binder
    monkeypatch.setattr(
        far_add.launches, "binder", lambda *a, **k: bound.append(a) or binder(*a, **k)
    )  # type: ignore[func-returns-value]
    for n in range(12):
        x, y, out = (new(whole)[k : k + 10] for k in (0, 10, 20))
        before, many = counters.launches, len(bound)
        with streams[n % 2]:
            far_add[1, 10](x, cb.tensor(y), out)
        same(out, whole[:10] + whole[10:20])
        assert counters.launches == before + 1 and (len(bound) > many) == (n < 2)
        far_add[1, 10](x, x, x)
        same(x, 2 * whole[:10])
        with pytest.raises(AliasError):
            far_add[1, 10](y, out, out[::-1])
        with cb.profile() as p:
            far_add[1, 10](y, y, new(whole)[:10])
        assert p.kernels["far_add"].calls == 1


class FakeTensor:
    """What is asked of a tensor of PyTorch."""

    is_cuda = True

    def __init__(self, array: DeviceArray, requires_grad: bool = False) -> None:
        self.array, self.requires_grad, self.dtype = array, requires_grad, "torch.float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(s // 4 for s in self.array.strides)

    def get_device(self) -> int:
        return self.array.device.ordinal

    def data_ptr(self) -> int:
        return self.array.address


def test_tensors_of_pytorch(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, repetitions: Repetitions
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=FakeTensor))
    monkeypatch.setitem(QUICK, FakeTensor, foreign.from_torch_or_none)
    whole = some(64)
    for n in range(8):
        far = new(whole)
        x, y, out = (FakeTensor(far[k : k + 16]) for k in (0, 16, 32))
        same(plus(x, y), whole[:16] + whole[16:32])
        assert plus(x, y, out=out) is out
        same(out.array, whole[:16] + whole[16:32])
        assert plus(x, y, out=y) is y
        same(y.array, whole[:16] + whole[16:32])
        with pytest.raises(AliasError):
            plus(x, y, out=FakeTensor(far[n + 3 : n + 19]))
        turned = FakeTensor(new(whole)[::-4])
        same(plus(turned, x), whole[::-4] + whole[:16])
        near = FakeTensor(new(whole)[n : n + 16])
        same(plus(near, near), 2 * whole[n : n + 16])
        with pytest.raises(LaunchError, match="gradient"):
            plus(FakeTensor(far[:16], requires_grad=True), y)
    assert repetitions.long < 40


def test_ops_of_tensors_are_repeated(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.tensor.ops import OPS

    monkeypatch.setattr(OPS["add"], "run", lambda dtype, a, b: plus.__wrapped__(a, b))
    long: list[Any] = []
    ops = sys.modules["cubepy.tensor.array"]
    perform = ops.perform
    monkeypatch.setattr(ops, "perform", lambda *given: long.append(given) or perform(*given))  # type: ignore[func-returns-value]
    for n in range(8):
        x, y = some(), some()
        a, b = cb.tensor(new(x)), cb.tensor(new(y))
        same((a + b).reshape(5, 2).reshape(10)[2:9:3] + b[:3], (x + y)[2:9:3] + y[:3])
        if n == 2:
            before = len(long)
    assert len(long) == before


def test_numbers_come_to_the_device_of_the_other_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    from cubepy.tensor.ops import OPS

    def add(dtype: Any, *given: DeviceArray) -> Any:
        shape = np.broadcast_shapes(*(v.shape for v in given))
        return plus.__wrapped__(*(np.broadcast_to(v, shape) for v in given))

    monkeypatch.setattr(OPS["add"], "run", add)
    for _ in start(monkeypatch, 1, devices=2):
        x = some()
        found = cb.tensor(new(x))
        for n in range(6):
            found = (1.0 + found + 2.0).to(f"cuda:{n % 2}")
            same(found, x := 1 + x + 2)
        with cb.use("cuda"):  # where a number that none has seen is made meanwhile
            same(found.to("cuda") + 0.375, x + 0.375)


FACTOR: Any = 1.0


def test_a_global_that_changes_is_seen_by_repetitions(
    monkeypatch: pytest.MonkeyPatch, repetitions: Repetitions
) -> None:
    """Of launches, and of calls of a function that launches; the library's own kernels ask for
    nothing.
    """

    @cb.kernel
    def multiplied(a: cb.Array, out: cb.Array):
        i = cb.ABSOLUTE_POS
        if i < out.size:
            out[i] = a[i] * FACTOR

    def times(factor: float) -> Any:
        def run(words: list[int]) -> None:
            a, out = (memory_of(words[k : k + 3]) for k in (0, 3))
            out[...] = a * np.float32(factor)

        return run

    class Scaled(Executable):
        def __init__(self, program: Any) -> None:
            super().__init__(program)
            self.loadable = Loadable(b"", f"times_{FACTOR}")

    @repeated
    def product(x: Any, *, out: Any = None) -> Any:
        a = array_of(x)
        result = output(out, a.shape, a.dtype)
        multiplied[1, a.size](a, result)
        return result if out is None else out

    monkeypatch.setattr(
        CudaBackend, "executable", lambda self, k, program, specs, in_place: Scaled(program)
    )
    with fake_cuda(monkeypatch, 1) as fake:
        for factor in (1.0, 2.0, 3.0):
            fake.kernels[f"times_{factor}"] = kernel(6)(times(factor))
        before = counters.specialised
        for turn in range(24):
            monkeypatch.setitem(globals(), "FACTOR", [1.0, 2.0, 1.0, 3.0][turn // 6] * 1.0)
            x, out = some(), new(some())
            same(product(new(x)), x * np.float32(FACTOR))
            multiplied[1, 10](new(x), out)
            same(out, x * np.float32(FACTOR))
        assert counters.specialised == before + 3
        assert repetitions.long == 3, "one for each value"
        recording.forget()
