"""Errors name what is wrong: the function, the parameter, the option, the place, and what to write
instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K
from cubepy.runtime.interop import foreign as interop
from cubepy.runtime.memory.device_array import upload
from cubepy.tensor import Tensor
from tests.backends.gpu.fake_driver import fake_driver

X = np.zeros((4, 4), np.float32)
IMAGE = np.zeros((1, 3, 8, 8), np.float32)


@cb.struct
class Pair:
    left: cb.Array
    right: cb.Array


@cb.kernel
def takes(x: cb.Array, pair: Pair, both):
    x[0, 0] = 1


@cb.kernel
def takes_any(x, *rest):
    x[0] = 1


@cb.kernel
def takes_options(x: cb.Array, **options):
    x[0] = 1


@cb.kernel
def takes_list(x: cb.Array, y: list):
    x[0] = 1


@pytest.mark.parametrize(
    "dtype", [complex, object, "M8[s]", "U3", ">f4", [("a", "f4")], np.longdouble]
)
@pytest.mark.parametrize("device", ["cpu", "python"])
def test_a_dtype_that_kernels_lack_names_parameter_and_kernel(dtype: Any, device: str) -> None:
    bad, pair = np.zeros(3, dtype), Pair(X, X)
    places = [
        ((bad, pair, 1), "the parameter 'x' of takes is"), ((X, Pair(X, bad), 1), r"'pair' of takes \(pair.right\)"),
        ((X, pair, bad), "the parameter 'both' of takes is"), ((X, pair, (1, bad)), r"'both' of takes \(both.1\)"),
    ]  # fmt: skip
    for arguments, named in places:
        with pytest.raises(errors.DTypeError, match=named) as caught:
            takes[1, 1](*arguments, device=device)
        assert str(bad.dtype) in caught.value.message and "float32" in caught.value.hint


@pytest.mark.parametrize(
    ("kernel", "rest", "said", "line"),
    [
        (takes_any, (1,), "takes_any takes *rest", "def takes_any(x, *rest):"),
        (takes_options, (), "takes_options takes **options", "**options"),
        (
            takes_list,
            (1,),
            "'y' of takes_list is annotated",
            "def takes_list(x: cb.Array, y: list):",
        ),
    ],
)
def test_a_parameter_that_kernels_lack_is_shown(
    kernel: Any, rest: Any, said: str, line: str
) -> None:
    with pytest.raises(errors.KernelTypeError, match=re.escape(said)) as caught:
        kernel[1, 1](X, *rest)
    place = caught.value.location
    assert place is not None and place.file == __file__ and line in place.excerpt()


HOST: list[tuple[Callable[[], Any], str]] = [
    (lambda: K.max_pool2d(IMAGE, 20), r"max_pool2d: kernel_size=20 .* axis of 8 with padding=0"),
    (
        lambda: K.max_pool2d(IMAGE, 3, 1, 2),
        r"max_pool2d: padding=2 is more than half of kernel_size=3",
    ),
    (lambda: K.avg_pool2d(IMAGE, (3, 9)), r"avg_pool2d: kernel_size=9 .* axis of 8 with padding=0"),
    (
        lambda: K.avg_pool1d(IMAGE[0], 3, 1, 2),
        r"avg_pool1d: padding=2 is more than half of kernel_size=3",
    ),
    (
        lambda: K.conv2d(IMAGE, np.zeros((4, 3, 13, 3), np.float32)),
        r"conv2d: a filter of 13 .* axis of 8",
    ),
    (lambda: K.conv2d(IMAGE, np.zeros((4, 5, 3, 3), np.float32)), r"conv2d: filters of shape"),
    (lambda: cb.tensor(X, device="cpu:3"), r"'cpu:3' does not exist\n  Hint: backend cpu has cpu;"),
    (lambda: cb.tensor(X, device="cpu:x"), 'no valid ordinal\n  Hint: write "cpu"'),
    (lambda: cb.tensor(X, device=0), 'a text such as .cpu., not 0\n  Hint: pass "cpu"'),
    (lambda: cb.tensor(X).max(out=X), "without out="),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "said"), HOST)
def test_a_wrong_call_names_function_and_option(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(errors.CubeError) as caught:
        call()
    assert re.search(said, str(caught.value)), str(caught.value)


def test_reductions_of_numpy_reduce_tensors() -> None:
    values = np.arange(1.0, 7, dtype=np.float32).reshape(2, 3)
    t = cb.tensor(values)
    for function in (np.sum, np.mean, np.max, np.min, np.prod, np.argmax, np.argmin):
        assert isinstance(function(t), Tensor)
        np.testing.assert_allclose(np.asarray(function(t)), function(values))
        np.testing.assert_allclose(np.asarray(function(t, axis=1)), function(values, axis=1))


def test_arrays_of_host_and_device_together_name_the_public_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with fake_driver(monkeypatch):
        there = upload(X, cb.Device("cuda"))
        with pytest.raises(
            errors.LaunchError, match="^matmul is given arrays on cuda and a NumPy array"
        ):
            K.matmul(there, X)
        with pytest.raises(errors.DeviceError, match="Hint: backend cuda has cuda; see"):
            cb.tensor(X, device="cuda:5")


def test_sparse_tensors_are_told_to_be_dense() -> None:
    class Sparse:
        layout = "torch.sparse_coo"

        def stride(self) -> Any:
            raise RuntimeError("sparse tensors do not have strides")

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("Can't export tensors with layout other than torch.strided")

        def __dlpack_device__(self) -> Any:
            return 1, 0

        dtype, shape = "float32", (3,)

    for take in (interop.host_array, interop.from_torch, K.softmax):
        with pytest.raises(errors.LaunchError, match=r"it is sparse: pass x.to_dense\(\)"):
            take(Sparse())
