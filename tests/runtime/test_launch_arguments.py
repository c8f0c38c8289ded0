"""What is given to kernels: numbers of odd kinds, memory that no stack holds, kernels as values."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import DTypeError, KernelTypeError, SharedMemoryError


@cb.kernel
def whole(out: cb.Array, v: cb.i32):
    out[0] = v


@cb.kernel
def real(out: cb.Array, v: cb.f32):
    out[0] = v


@cb.func
def twice(v):
    return 2 * v


@cb.kernel
def tabled(out: cb.Array, n, *, size: cb.Comptime[int], meet: cb.Comptime[bool] = False):
    table = cb.local(size, cb.f32)
    for i in range(size):
        table[i] = i * n
    if meet:
        cb.sync_cube()
    out[cb.ABSOLUTE_POS] = table[n] + table[size - 1 - n]


@pytest.mark.parametrize(
    ("kernel", "value", "error"),
    [
        (real, 10**400, DTypeError),
        (whole, 10**400, DTypeError),
        (real, np.datetime64(3, "s"), KernelTypeError),
        (whole, np.datetime64(3, "s"), KernelTypeError),
        (whole, np.timedelta64(3, "s"), KernelTypeError),
        (real, np.complex64(1), KernelTypeError),
        (whole, np.complex128(1), KernelTypeError),
        (real, np.str_("1"), KernelTypeError),
        (whole, np.bytes_(b"1"), KernelTypeError),
    ],
)
def test_what_is_no_number_of_the_dtype_is_refused(
    kernel: Any, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="the parameter 'v' of"):
        kernel[1, 1](np.zeros(1), value)


@pytest.mark.parametrize(("size", "units", "meet"), [(20_000_000, 1, False), (4096, 1024, True)])
def test_local_memory_that_no_stack_holds_is_refused(size: int, units: int, meet: bool) -> None:
    with pytest.raises(SharedMemoryError, match="on a thread's stack") as told:
        tabled[1, units](np.zeros(units, np.float32), 3, size=size, meet=meet, device="cpu")
    assert told.value.location is not None and "cb.local" in told.value.location.excerpt()


@pytest.mark.parametrize(("size", "units", "meet"), [(500_000, 2, False), (500, 1024, True)])
def test_local_memory_up_to_the_limit_works(size: int, units: int, meet: bool) -> None:
    out = np.zeros(units, np.float32)
    tabled[1, units](out, 3, size=size, meet=meet, device="cpu")
    np.testing.assert_allclose(out, 3.0 * (size - 1))


def test_kernels_and_funcs_are_passed_on_by_their_names() -> None:
    for value in (whole, twice):
        assert pickle.loads(pickle.dumps(value)) is value
        assert copy.deepcopy(value) is value and copy.copy(value) is value
