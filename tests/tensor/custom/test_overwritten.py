"""Gradients through memory that a kernel of the user's overwrote are an error with both lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import GradientError
from cubepy.tensor import Tensor


@cb.kernel
def double(x: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        x[i] = x[i] * 2


@cb.kernel
def copied(xs, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = xs[0][i] + xs[1][i]


def weights() -> Tensor:
    return cb.tensor([1.0, 2.0, 3.0], requires_grad=True)


def an_input(w: Tensor) -> Any:
    h = w * 3
    y = (h * h).sum()  # op
    with cb.no_grad():
        double[cb.over(3)](h)  # launch
    return y


def a_leaf_by_another_handle(w: Tensor) -> Any:
    y = (w * w).sum()  # op
    double[cb.over(3)](w.detach())  # launch
    return y


def a_result(w: Tensor) -> Any:
    y = w.exp()  # op
    double[cb.over(3)](y.detach())  # launch
    return y.sum()


def a_part_in_a_tuple(w: Tensor) -> Any:
    y = (w * w).sum()  # op
    zeros = cb.tensor([0.0, 0.0])
    copied[cb.over(2)]((zeros, zeros), w.detach()[1:])  # launch
    return y


def of_a_program(w: Tensor) -> Any:
    y = PROGRAM(w)
    double[cb.over(3)](w.detach())  # launch
    return y


PROGRAM = cb.jit(lambda w: (w * w).sum())


@pytest.mark.parametrize(
    "function", [an_input, a_leaf_by_another_handle, a_result, a_part_in_a_tuple, of_a_program]
)
def test_what_was_overwritten_is_an_error(function: Callable[..., Any]) -> None:
    for _ in range(3):
        y = function(weights())
        with pytest.raises(GradientError, match="that the kernel .* wrote over") as error:
            y.backward()
        kernel = "copied" if function is a_part_in_a_tuple else "double"
        assert f"the kernel {kernel} wrote over ({__file__}:" in str(error.value)
        assert function is of_a_program or "# op" in str(error.value)


def test_what_is_not_read_may_be_overwritten() -> None:
    w = weights()
    h = w * 3
    y = (h + 1).sum()
    double[cb.over(3)](h.detach())  # a sum's gradient does not read it
    y.backward()
    assert w.grad.tolist() == [3.0] * 3


def test_before_and_after_is_right() -> None:
    w = weights()
    for _ in range(3):
        h = (w * 3).detach()
        double[cb.over(3)](h)
        w.grad = None
        y = (w * h).sum()
        y.backward()
        double[cb.over(3)](h)
        np.testing.assert_array_equal(w.grad.numpy(), 6 * w.numpy())
    with cb.no_grad():
        double[cb.over(3)](w)
    w.grad = None
    (w * w).sum().backward()
    assert w.grad.tolist() == [4.0, 8.0, 12.0]


def test_a_read_only_input_may_be_read() -> None:
    w = weights()
    y = (w * w).sum()
    out = cb.tensor([0.0, 0.0, 0.0])
    copied[cb.over(3)]((w.detach(), w.detach()), out)
    y.backward()
    assert out.tolist() == [2.0, 4.0, 6.0] == w.grad.tolist()
