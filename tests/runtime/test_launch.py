"""Launching: binding, statistics, profiles, specialisations that are shared, memory rules,
inspection.
"""

from __future__ import annotations

import inspect
import sys
import threading
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy.runtime.deep_stack import in_one_piece

F = np.float32


@cb.kernel
def axpy(alpha, x: cb.Array, y: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int] = 4):
    i = cb.ABSOLUTE_POS * lanes
    if i < out.size:
        out.store(i, cb.fma(cb.splat(alpha, lanes), x.load(i, lanes), y.load(i, lanes)))


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(1003).astype(F) for _ in range(2))
    return x, y, np.zeros_like(x)


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_bound_launch_runs_again_with_new_scalars(device: str) -> None:
    x, y, out = np.arange(6, dtype=F), np.ones(6, F), np.zeros(6, F)
    run = axpy[cb.over(out, lanes=4)].bind(2.0, x, y, out, device=device)
    run()
    assert out.tolist() == (x * 2 + 1).tolist()
    x[:] = 3
    run()
    assert out.tolist() == [7] * 6
    run(alpha=-1.0)
    assert out.tolist() == [-2] * 6
    run()
    assert out.tolist() == [-2] * 6, "a new scalar stays"
    for bad in ({"x": x}, {"nothing": 1}, {"lanes": 8}, {"alpha": x}):
        with pytest.raises(errors.LaunchError, match="no scalar parameter"):
            run(**bad)


def test_a_bound_launch_keeps_its_arrays_alive() -> None:
    out = np.zeros(4, F)
    run = axpy[1, 1].bind(2.0, np.full(4, 3, F), np.full(4, 1, F), out)
    rubbish = [np.full(4, np.nan, F) for _ in range(100)]
    run()
    assert out.tolist() == [7] * 4 and len(rubbish) == 100


def test_strides_shapes_and_scalars_share_one_specialisation() -> None:
    @cb.kernel
    def fresh(x: cb.Array, factor, out: cb.Array):
        i, j = cb.ABSOLUTE_POS_X, cb.ABSOLUTE_POS_Y
        if i < out.shape[0] and j < out.shape[1]:
            out[i, j] = x[i, j] * factor

    def count(
        x: np.ndarray, factor: Any = 2.0, grid: Any = ((5, 4), (2, 3)), **keywords: Any
    ) -> int:
        out = np.zeros(x.shape, x.dtype)
        before = cb.stats().specialised
        fresh[grid](x, factor, out, **keywords)
        np.testing.assert_array_equal(out, x * np.array(factor, x.dtype))
        return cb.stats().specialised - before

    base = np.arange(48, dtype=F).reshape(6, 8)
    assert count(base) == 1
    assert count(base[:3].copy()) == 0, "another shape"
    assert count(base, 3.5) == 0, "another scalar"
    assert count(base, grid=((3, 3), (2, 3))) == 0, "another cube count"
    assert count(base[:, :5]) == 1, "rows with gaps"
    assert count(base[::2, 1:4]) == 0, "other rows with gaps"
    assert count(base.T) == 1, "any strides"
    assert count(base[::-1, ::-2]) == 0, "any other strides"
    assert count(base, grid=((6, 8), (1, 1))) == 1, "another cube dim"
    assert count(base, 3) == 1, "an int scalar"
    assert count(base, -7) == 0
    assert count(base.astype(np.float64)) == 1, "another dtype"
    assert count(base, mode="unchecked") == 1, "another mode"


def test_statistics_count_launches(data: tuple[np.ndarray, ...]) -> None:
    x, y, out = data
    axpy[cb.over(out, lanes=4)](1.0, x, y, out)
    before = cb.stats()
    run = axpy[cb.over(out, lanes=4)].bind(1.0, x, y, out)
    for _ in range(3):
        run()
        axpy[cb.over(out, lanes=4)](2.0, x, y, out)
    after = cb.stats()
    assert after.launches - before.launches == 6
    assert (after.specialised, after.compiled, after.loaded) == (
        before.specialised,
        before.compiled,
        before.loaded,
    )


def test_the_profile_is_a_table_by_kernel(data: tuple[np.ndarray, ...]) -> None:
    x, y, out = data
    run = axpy[cb.over(out, lanes=4)].bind(1.0, x, y, out)
    with cb.profile() as p:
        for _ in range(3):
            axpy[cb.over(out, lanes=4)](2.0, x, y, out)
        run()
        doubled[cb.over(out)](out, out)
    assert {name: t.calls for name, t in p.kernels.items()} == {"axpy": 4, "doubled": 1}
    header, *rows, total = str(p).splitlines()
    assert header.split() == ["kernel", "calls", "ms", "us/call", "share"]
    assert {row.split()[0] for row in rows} == {"axpy", "doubled"} and total.startswith("kernels ")
    run()
    assert p.kernels["axpy"].calls == 4, "nothing is measured after the block"


@cb.kernel
def doubled(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2


@cb.kernel
def add(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] + y[i]


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_which_arguments_may_share_memory(device: str) -> None:
    x = np.arange(8, dtype=F)
    out = np.zeros(8, F)
    add[cb.over(out)](x, x, out, device=device)
    assert out.tolist() == (x * 2).tolist(), "the same input twice"
    add[cb.over(out)](x[:4], x[2:6], out[:4], device=device)
    assert out[:4].tolist() == [2, 4, 6, 8], "inputs that overlap"
    add[cb.over(out)](out, x, out, device=device)
    assert out[:4].tolist() == [2, 5, 8, 11], "in place"
    pairs = np.zeros(16, F)
    add[cb.over(x)](pairs[:8], x, pairs[8:], device=device)
    assert pairs[8:].tolist() == x.tolist(), "neighbours"
    for left, right in (
        (pairs[:8], pairs[1:9]),
        (pairs[:8], pairs[:8][::-1]),
        (pairs[1:9], pairs[:8]),
    ):
        with pytest.raises(errors.AliasError, match="overlaps"):
            add[cb.over(x)](left, x, right, device=device)
        with pytest.raises(errors.AliasError, match="overlaps"):
            add[cb.over(x)].bind(left, x, right, device=device)


def test_a_seen_launch_still_looks_at_the_memory_it_is_given() -> None:
    x, out = np.arange(8, dtype=F), np.zeros(8, F)
    grid = cb.over(out)
    for _ in range(2):
        doubled[grid](x, out)
    frozen = np.zeros(8, F)
    frozen.flags.writeable = False
    with pytest.raises(errors.ReadOnlyError, match="read-only"):
        doubled[grid](x, frozen)
    both = np.zeros(12, F)
    with pytest.raises(errors.AliasError, match="overlaps"):
        doubled[grid](both[:8], both[4:])
    doubled[grid](x, x)
    assert x.tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    doubled[grid](frozen, out)
    assert out.tolist() == [0] * 8, "a read-only input is fine"


def test_misaligned_and_foreign_memory() -> None:
    raw = np.zeros(4 * 64 + 1, np.uint8)
    x = raw[1:].view(F)
    x[:] = np.arange(64)
    out = np.zeros(64, F)
    try:
        axpy[cb.over(out, lanes=4)](2.0, x, x, out)
    except errors.LaunchError as error:
        assert "align" in str(error)
    else:
        assert out.tolist() == (np.arange(64) * 3.0).tolist()
    with pytest.raises(errors.DTypeError, match="byte order"):
        doubled[1, 1](np.arange(4, dtype=">f4"), out)
    odd = np.zeros(4, np.dtype([("a", "u1"), ("b", "f4")]))["b"]
    with pytest.raises(errors.LaunchError, match="no multiple of its element"):
        doubled[1, 1](odd, out)
    single = np.lib.stride_tricks.as_strided(np.full(1, 7, np.float32), (1,), (2,))
    doubled[1, 1](single, out)  # an axis of one element takes no step
    assert out[0] == 14

    class Foreign:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array
            self.__array_interface__ = array.__array_interface__

    doubled[1, 8](Foreign(np.arange(8, dtype=F)), Foreign(out))
    assert out[:8].tolist() == [0, 2, 4, 6, 8, 10, 12, 14], "no copy is made"


def test_inspection_shows_every_stage(data: tuple[np.ndarray, ...]) -> None:
    x, y, out = data
    code = axpy[cb.over(out, lanes=8)].inspect(2.0, x, y, out, lanes=8)
    assert "axpy" in code.python and "fma" in code.llvm and "<8 x float>" in code.llvm
    assert "fmadd" in code.asm or "fmla" in code.asm or "fma" in code.asm
    assert str(code) == code.python
    assert "axpy" in axpy.inspect(2.0, x, y, out, grid=(1, 8)).python
    assert axpy[1, 1].inspect(2.0, x, y, out, device="python").python


def test_the_device_can_be_chosen_in_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    @cb.kernel
    def where(out: cb.Array):
        out[0] = 1 if cb.device_properties().name == "python" else 2

    out = np.zeros(1, F)
    where[1, 1](out, device="python")
    python = float(out[0])
    where[1, 1](out, device="cpu")
    with cb.use("python"):
        where[1, 1](out)
        inside = float(out[0])
    where[1, 1](out)
    assert inside == python and out[0] == 2
    with pytest.raises(errors.DeviceError), cb.use("abacus"):
        pass


def test_threads_may_specialise_one_kernel_at_once() -> None:
    @cb.kernel
    def contended(x: cb.Array, out: cb.Array, *, n: cb.Comptime[int]):
        i = cb.ABSOLUTE_POS
        if i < out.size:
            out[i] = x[i] * n

    failures: list[BaseException] = []
    barrier = threading.Barrier(6)

    def work(n: int) -> None:
        try:
            x, out = np.arange(10, dtype=F), np.zeros(10, F)
            barrier.wait()
            contended[cb.over(out)](x, out, n=n % 2)
            np.testing.assert_array_equal(out, x * (n % 2))
        except BaseException as error:
            failures.append(error)

    before = cb.stats().specialised
    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and cb.stats().specialised - before == 2


def test_a_launch_that_fails_leaves_the_kernel_usable() -> None:
    out = np.zeros(4, F)
    with pytest.raises(errors.KernelTypeError):
        doubled[cb.over(out)](np.zeros((2, 2), F), out)
    doubled[cb.over(out)](np.ones(4, F), out)
    assert out.tolist() == [2] * 4


def test_a_parameter_cannot_have_the_name_of_a_launch_keyword() -> None:
    @cb.kernel
    def wrong(out: cb.Array, stream):
        out[0] = stream

    with pytest.raises(
        errors.KernelSyntaxError, match="'stream', which is a keyword of every launch"
    ):
        wrong[1, 1](np.zeros(1, F), 1.0)


@cb.kernel
def plain_names(exact: cb.Array, type: cb.Array, lift, key_of: cb.Comptime[float] = 2.0):
    """Names that the launcher might use itself: type = exact * lift + key_of."""
    i = cb.ABSOLUTE_POS
    if i < exact.size:
        type[i] = exact[i] * lift + key_of


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_parameters_may_have_any_name(device: str) -> None:
    x, out = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    for _ in range(2):
        plain_names[cb.over(5)](x, out, 3.0, device=device)
        np.testing.assert_array_equal(out, x * 3 + 2)
    plain_names[cb.over(5)](x, out, 3.0, 1.0, device=device)
    np.testing.assert_array_equal(out, x * 3 + 1)


def test_a_caller_deep_in_the_stack_may_compile() -> None:
    @cb.kernel
    def fresh(x: cb.Array, out: cb.Array):
        i = cb.ABSOLUTE_POS
        if i < out.size:
            for j in cb.unroll(range(2)):
                if x[i] > j:
                    out[i] = ((x[i] + j) * 2 + out[i]) * 3

    def deeper(frames: int) -> None:
        if frames:
            deeper(frames - 1)
        else:
            fresh[cb.over(out)](x, out)

    depth = len(inspect.stack(0))
    x, out = np.full(5, 0.5, F), np.zeros(5, F)
    deeper(sys.getrecursionlimit() - depth - 45)  # enough to launch, too few to compile
    assert out.tolist() == [3] * 5


def test_a_kernel_may_be_too_deep_for_any_stack() -> None:
    @cb.kernel
    def endless(x: cb.Array, out: cb.Array, *, depth: cb.Comptime[int]):
        out[0] = x[0] + sum_of(depth)

    def sum_of(depth: int) -> int:
        return depth and 1 + sum_of(depth - 1)

    with pytest.raises(errors.NestingError, match="nests too deeply"):
        endless[1, 1](np.ones(1, F), np.ones(1, F), depth=100000)


def faults(depth: int, times: int = 300) -> int:
    """Pages that the system gives this process while a function so deep calls another one in a loop."""
    import resource

    if depth:
        return faults(depth - 1, times)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        nothing()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def nothing() -> None:
    """A call."""


@pytest.mark.skipif(sys.platform == "win32", reason="faults are counted by resource")
def test_a_loop_on_a_stack_in_one_piece_gets_no_memory_in_each_turn() -> None:
    """Wherever it is: one depth is the end of what Python takes at once."""
    found: list[int] = []
    work = in_one_piece(lambda: found.extend(map(faults, range(300))))
    thread = threading.Thread(target=work)  # whose stack is new
    thread.start()
    thread.join()
    assert len(found) == 300 and max(found) < 150
