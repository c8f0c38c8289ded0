"""Errors of tensors name the user's line that asked for the op, at once and in programs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import CubeError, DeviceError, GradientError, LaunchError, ShapeError
from cubepy.tensor import Tensor


def some(*shape: int) -> Tensor:
    return cb.tensor(np.ones(shape, np.float32))


def refused(call: Callable[[], Any], kind: type[CubeError], rule: str, marked: Any) -> CubeError:
    """The error of a call, which names the line of a function that has the comment `# here`."""
    with pytest.raises(kind, match=rule) as caught:
        call()
    lines, first = inspect.getsourcelines(inspect.unwrap(marked))
    (line,) = [first + n for n, text in enumerate(lines) if "# here" in text]
    where = caught.value.location
    assert where is not None and (where.file, where.line) == (__file__, line), where
    assert f'File "{__file__}", line {line}' in str(caught.value)
    return caught.value


def mismatched(x: Tensor) -> Any:
    y = x.exp()
    return y + some(3, 5)  # here


def test_shapes_that_do_not_go_together() -> None:
    refused(lambda: mismatched(some(3, 4)), ShapeError, r"\(3, 4\) and \(3, 5\)", mismatched)


def test_shapes_inside_a_jitted_function() -> None:
    f = cb.jit(mismatched)
    for _ in range(3):
        refused(lambda: f(some(3, 4)), ShapeError, r"\(3, 4\) and \(3, 5\)", mismatched)


def chosen(x: Tensor, index: Tensor) -> Any:
    y = x * 2
    return y[index]  # here


def test_indices_outside() -> None:
    x, good, bad = some(5, 3), cb.tensor([0, 4]), cb.tensor([0, 5])
    for _ in range(10):
        chosen(x, good)
    refused(lambda: chosen(x, bad), CubeError, "index 5", chosen)


def test_indices_outside_inside_a_program() -> None:
    f = cb.jit(chosen)
    x, good, bad = some(5, 3), cb.tensor([0, 4]), cb.tensor([0, 5])
    refused(lambda: f(x, bad), CubeError, "index 5", chosen)
    for _ in range(12):
        f(x, good)
        refused(lambda: f(x, bad), CubeError, "index 5", chosen)
    assert f(x, good).shape == (2, 3)


def test_a_step_that_fails_while_launches_are_recorded() -> None:
    f = cb.jit(chosen)
    x, good, bad = some(5, 3), cb.tensor([0, 4]), cb.tensor([0, 5])
    f(x, good)
    refused(lambda: f(x, bad), CubeError, "index 5", chosen)


def mixed(x: Tensor, y: Tensor) -> Any:
    return x.exp() * y  # here


def test_mixed_devices() -> None:
    x, y = some(3), cb.tensor([1.0, 2.0, 3.0], device="python")
    refused(lambda: mixed(x, y), DeviceError, "cpu and python", mixed)
    refused(lambda: cb.jit(mixed)(x, y), DeviceError, "cpu and python", mixed)


def whole(x: Tensor) -> Any:
    (x * 2).astype(cb.i32).sum().backward()  # here


def test_the_way_back_from_integers() -> None:
    x = some(3).requires_grad_()
    refused(lambda: whole(x), GradientError, "only floats", whole)
    refused(lambda: cb.jit(whole)(x), GradientError, "only floats", whole)


def several(x: Tensor) -> Any:
    y = x * 2  # here
    y.backward()


def test_the_way_back_from_several_elements() -> None:
    x = some(3).requires_grad_()
    refused(lambda: several(x), GradientError, "no single number", several)
    refused(lambda: cb.jit(several)(x), GradientError, "no single number", several)


def twice(x: Tensor) -> Any:
    y = (x * x).sum()  # here
    y.backward()
    y.backward()


def test_the_way_back_twice() -> None:
    refused(lambda: twice(some(3).requires_grad_()), GradientError, "walked already", twice)
    f = cb.jit(twice)
    refused(lambda: f(some(3).requires_grad_()), GradientError, "walked already", twice)


def test_an_op_without_gradient() -> None:
    x = some(3).requires_grad_()

    def through(x: Tensor) -> Any:
        y = cb.tensor.apply("trigamma", x)  # here
        y.sum().backward()

    refused(lambda: through(x), GradientError, "'trigamma' has no gradient", through)
    refused(lambda: cb.jit(through)(x), GradientError, "'trigamma' has no gradient", through)


def unrelated(x: Tensor) -> Any:
    x.backward()  # here


def test_nothing_that_needs_a_gradient() -> None:
    refused(lambda: unrelated(some(1)), GradientError, "not computed from", unrelated)


def looked(x: Tensor) -> Any:
    y = x.sum()
    return x if float(y) > 0 else y  # here


def test_elements_asked_for_while_tracing() -> None:
    refused(lambda: cb.jit(looked)(some(3)), LaunchError, "while looked is traced", looked)
