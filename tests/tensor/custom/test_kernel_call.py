"""`cb.kernel_call`: kernels as functions of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, DeviceError, GradientError, LaunchError
from cubepy.tensor import Tensor
from tests.tensor.custom.test_launches import (
    add_to,
    planned,
    scale,
    some,
    sum_and_difference,
    weak_scale,
)


def like(x: Tensor) -> cb.TensorSpec:
    return cb.TensorSpec(x.shape, x.dtype)


def test_it_gives_what_the_kernel_writes() -> None:
    for _ in range(4):
        x = some(50)
        found = cb.kernel_call(scale[cb.over(x)], x, like(x), 2.5)
        np.testing.assert_array_equal(found.numpy(), x.numpy() * np.float32(2.5))
    y = some(50)
    a, b = cb.kernel_call(
        sum_and_difference[cb.over(x)], (x, y), like(x), difference=like(x), n=2, mode="validate"
    )
    np.testing.assert_array_equal(a.numpy(), x.numpy() + y.numpy() * 2)
    np.testing.assert_array_equal(b.numpy(), x.numpy() - y.numpy())
    array = np.ones(3, np.float32)
    assert cb.kernel_call(scale[cb.over(3)], array, cb.TensorSpec((3,)), 2.0).tolist() == [2.0] * 3


def test_in_programs_numbers_are_run_time_numbers() -> None:
    program, x = cb.jit(lambda x, s: cb.kernel_call(scale[cb.over(x)], x, like(x), s) + 1), some(50)
    for s in (1.0, 2.0, 3.0, 4.0, 5.0):
        np.testing.assert_array_equal(program(x, s).numpy(), x.numpy() * np.float32(s) + 1)
    assert planned(program)
    assert sum(program.traces.values()) == 1


def test_of_nothing() -> None:
    for program in (cb.kernel_call, cb.jit(cb.kernel_call)):
        empty = cb.tensor(np.zeros((0,), np.float32))
        assert program(scale[cb.over(empty)], empty, like(empty), 2.0).shape == (0,)


def test_what_it_refuses() -> None:
    x = some(3)
    wrong: list[tuple[Any, str, Any]] = [
        (ArgumentError, "a kernel with its grid, not Kernel", lambda: cb.kernel_call(scale, x)),
        (ArgumentError, "no cb.TensorSpec", lambda: cb.kernel_call(scale[1, 1], x, x, 1.0)),
        (
            LaunchError,
            "writes 'total', for which it is given a tensor",
            lambda: cb.kernel_call(add_to[cb.over(3)], like(x), x),
        ),
        (
            LaunchError,
            "does not write 'x'",
            lambda: cb.kernel_call(weak_scale[cb.over(3)], like(x), like(x), 1.0),
        ),
        (
            DeviceError,
            "on cpu and python",
            lambda: cb.kernel_call(scale[1, 1], x, cb.TensorSpec((3,), cb.f32, "python"), 1.0),
        ),
    ]
    for kind, said, call in wrong:
        with pytest.raises(kind, match=said) as error:
            call()
        assert error.value.location is not None
        assert error.value.location.file == __file__
    with pytest.raises(LaunchError, match="'x' of scale is given an array"):
        cb.jit(
            lambda y: (
                cb.kernel_call(scale[cb.over(y)], y.numpy, like(y), 1.0)
                if False
                else (cb.kernel_call(scale[cb.over(y)], np.ones(3, np.float32), like(y), 1.0))
            )
        )(x)


def test_a_gradient_through_it_is_an_error_with_the_line() -> None:
    x = some(3).requires_grad_()
    y = cb.kernel_call(scale[cb.over(x)], x, like(x), 2.0)  # here
    with pytest.raises(GradientError, match="the op 'launch' has no gradient") as error:
        y.sum().backward()
    assert "# here" in str(error.value)
    assert "cb.custom_vjp" in str(error.value)
