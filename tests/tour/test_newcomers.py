"""What a newcomer does wrong in the first hour is answered by a typed error that says what to write
instead.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy.runtime import cache


@cb.kernel
def copies(x: cb.Array, out: cb.Array):
    out[cb.UNIT_POS] = x[cb.UNIT_POS]


@cb.kernel
def marks(out: cb.Array):
    if cb.ABSOLUTE_POS < 0:
        out[0] = 1


@cb.kernel
def unrolls(out: cb.Array, *, n: cb.Comptime[int]):
    for i in cb.unroll(range(n)):
        out[0] += i


X = np.ones(4, np.float32)


@pytest.mark.parametrize("thing", [3, len, dict, functools.partial(print, 1), X])
@pytest.mark.parametrize("decorator", [cb.kernel, cb.func])
def test_a_decorator_refuses_what_is_no_function(decorator: Any, thing: Any) -> None:
    with pytest.raises(errors.KernelTypeError, match="takes a function written in Python"):
        decorator(thing)


def test_struct_refuses_what_is_no_class() -> None:
    with pytest.raises(errors.KernelTypeError, match=r"@cb\.struct takes a class, not 3"):
        cb.struct(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn", "int64", "bool"])
def test_dtypes_of_torch(name: str) -> None:
    kind = type("dtype", (), {"__module__": "torch", "__str__": lambda self: f"torch.{name}"})
    assert cb.as_dtype(kind()) is cb.as_dtype(name)
    assert cb.tensor([1, 0]).astype(kind()).dtype is cb.as_dtype(name)


def test_nothing_is_no_dtype() -> None:
    for wrong in (None, "f17"):
        with pytest.raises(cb.errors.DTypeError, match=r"is not a dtype(.|\n)*the dtypes are"):
            cb.as_dtype(wrong)


def test_promote_refuses_what_is_no_dtype() -> None:
    with pytest.raises(errors.DTypeError, match="not cb.f16 and 'f32'"):
        cb.promote(cb.f16, "f32")  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [3, object()])
def test_a_stream_of_another_library_is_refused_with_the_way_to_wrap_it(stream: Any) -> None:
    with pytest.raises(errors.LaunchError, match="is a cb.Stream") as info:
        copies[1, 4](X, X.copy(), stream=stream)
    assert "handle=" in info.value.hint
    with pytest.raises(errors.LaunchError, match="is a cb.Stream"):
        copies[1, 4].bind(X, X.copy(), stream=stream)


def test_an_argument_that_cannot_be_hashed_is_named() -> None:
    with pytest.raises(errors.KernelTypeError, match="'x' of copies is an array but is given set"):
        copies[1, 4]({1.0, 2.0}, X.copy())


@pytest.mark.parametrize(
    ("cubes", "why"),
    [
        ((2**31, 2**31, 2), r"less than 2\*\*31 along every axis"),
        (2**63, r"less than 2\*\*31 along every axis"),
        ((2**21,) * 3, "more units than 64 bits can count"),
    ],
)
def test_a_launch_of_more_units_than_can_be_counted_is_refused(cubes: Any, why: str) -> None:
    with pytest.raises(errors.LaunchError, match=why):
        marks[cubes, 1](X.copy())


@pytest.mark.parametrize("units", [(64, 1, 1), (1, 64, 1), (1, 8, 8)])
def test_positions_of_a_launch_of_two_thousand_million_units_are_64_bit(units: Any) -> None:
    launcher = marks.launches
    for cubes, wide in ((2**25 - 1, False), (2**25, True)):
        program = launcher.find((cubes, units), None, "python", (X,))[0].program
        assert (program.index is cb.i64) is wide


@pytest.mark.parametrize(
    ("call", "name"),
    [(np.exp, "exp"), (np.maximum, "nan_max"), (np.where, "select"), (np.clip, "clamp")],
)
def test_a_function_of_numpy_is_answered_with_the_builtin(call: Any, name: str) -> None:
    @cb.kernel
    def hosts(x: cb.Array, out: cb.Array):
        out[0] = call(x[0])

    with pytest.raises(errors.KernelTypeError) as info:
        hosts[1, 1](X, X.copy())
    assert info.value.hint == f"cb.{name} does it in a kernel" and name in cb.__all__


def test_a_plain_function_is_answered_with_func() -> None:
    def select(v: Any) -> Any:  # the name of a builtin
        return v

    @cb.kernel
    def calls(x: cb.Array, out: cb.Array):
        out[0] = select(x[0])

    with pytest.raises(errors.KernelTypeError, match=r"decorate it with @cb\.func"):
        calls[1, 1](X, X.copy())


def test_a_loop_too_long_to_write_out_is_refused() -> None:
    with pytest.raises(errors.ComptimeError, match="at most 16384 turns, not 10000000") as info:
        unrolls[1, 1](X.copy(), n=10**7)
    assert info.value.location is not None


class Guarded:
    """An array of a library that does not give it away, as PyTorch's with `requires_grad`."""

    requires_grad = True

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("Can't export tensors that require gradient")


def test_an_array_that_its_library_does_not_give_away_is_refused() -> None:
    for use in (lambda: copies[1, 4](Guarded(), X.copy()), lambda: cb.tensor(Guarded())):
        with pytest.raises(
            errors.LaunchError, match="type Guarded cannot be used as it is: Can't export"
        ) as info:
            use()
        assert info.value.hint == "pass x.detach()"


class HostTensor:
    """What cubepy asks a PyTorch tensor on the host, which NumPy has no dtype for."""

    is_cuda, requires_grad = False, False

    def __init__(self, values: Any, dtype: str) -> None:
        self.array, self.dtype = (
            np.asarray(values).astype(cb.as_dtype(dtype).numpy),
            f"torch.{self.NAMES[dtype]}",
        )

    NAMES = {"bf16": "bfloat16", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"}  # noqa: RUF012

    def view(self, dtype: Any) -> np.ndarray:
        return self.array.view(dtype)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise RuntimeError("Unsupported dtype in DLTensor.")


@pytest.mark.parametrize("dtype", HostTensor.NAMES)
def test_tensors_of_pytorch_in_dtypes_that_numpy_lacks_are_shared(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = types.SimpleNamespace(Tensor=HostTensor, int16=np.int16, uint8=np.uint8)
    monkeypatch.setitem(sys.modules, "torch", torch)
    given = HostTensor([1.0, -2.0, 0.5, 4.0], dtype)
    taken = cb.tensor(given)
    assert taken.dtype is cb.as_dtype(dtype) and np.shares_memory(taken.numpy(), given.array)
    out = np.zeros(4, np.float32)
    copies[1, 4](given, out, device="python")
    assert out.tolist() == [1.0, -2.0, 0.5, 4.0]


@pytest.mark.skipif(os.name == "nt", reason="permissions of POSIX")
def test_files_of_the_cache_can_be_read_by_whom_new_files_can(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        cache.write_atomically(tmp_path / "entry", b"code")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "entry").stat().st_mode) == 0o644


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.write_atomically(tmp_path / "entry", b"code")
    assert list(tmp_path.iterdir()) == []
