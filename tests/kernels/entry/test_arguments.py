"""Arguments that make no sense: every function of the library says so in an error of its own, never
in one from inside.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from tests.staging import WHERE

X, INDEX = np.ones((3, 4), np.float32), np.zeros((3, 4), np.int64)
IMAGE, FILTERS = np.ones((1, 2, 8, 8), np.float32), np.ones((2, 2, 3, 3), np.float32)
ONES = np.ones(4, np.float32)
WRONG: tuple[Any, ...] = (
    None, "abc", object(), 3.7, -5, 9, (1, 2, 3, 4, 5), {}, np.array(["a"]), np.array([None]), np.ones((2, 3, 4)),
    np.zeros(0, np.float32), float("nan"), X.astype(complex), X.astype(np.int64), [[1], [1, 2]],
)  # fmt: skip
CALLS: dict[str, tuple[Any, ...]] = {
    "adaptive_avg_pool2d": (IMAGE, 2), "adaptive_max_pool2d": (IMAGE, 2), "any": (X, 1), "argmax": (X, 1),
    "argsort": (X, 1), "attention": (IMAGE, IMAGE, IMAGE),
    "attention_gradients": (IMAGE, IMAGE, IMAGE, IMAGE, IMAGE, np.ones((1, 2, 8), np.float32)), "avg_pool2d": (IMAGE, 2, 2, 0),
    "batch_norm": (IMAGE, np.zeros(2, np.float32), np.ones(2, np.float32)), "bernoulli": (0.5, (2,)),
    "concat": ([X, X], 0), "conv2d": (IMAGE, FILTERS, None, 1, 0, 1, 1),
    "conv_input": ((1, 2, 8, 8), FILTERS, np.ones((1, 2, 6, 6), np.float32)), "copy": (X,), "cumprod": (X, 1),
    "cumsum": (X, 1), "embedding": (INDEX, X), "flip": (X, 1), "gather": (X, 1, INDEX), "gelu": (X,),
    "group_norm": (IMAGE, 2), "index_put": (X, (np.array([0]),), 1.0), "interpolate": (IMAGE, (4, 4)),
    "layer_norm": (X, 4, ONES, ONES, 1e-5), "log_softmax": (X, -1), "logsumexp": (X, 1),
    "map": (K.functions.add, X, X), "matmul": (X, X.T), "max": (X, 1), "max_pool2d": (IMAGE, 2, 2, 0, 1),
    "mean": (X, 1), "norm": (X, 2, 1), "normal": (0.0, 1.0, (2, 3)), "pad": (X, (1, 1), "constant", 1.5), "prepack": (X,),
    "prepack_filter": (FILTERS, 1),
    "randint": (0, 5, (2,)), "rms_norm": (X, 4, ONES), "scatter": (X, 1, INDEX, X, "add"),
    "select": (X, 1, np.array([0])), "softmax": (X, -1), "sort": (X, 1), "sum": (X, 1),
    "take_along_axis": (X, INDEX, 1), "topk": (X, 2, 1), "transpose": (X, (1, 0)), "uniform": (0.0, 1.0, (2, 3)),
    "var": (X, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_makes_no_sense_is_refused_or_has_a_meaning(name: str) -> None:
    call, good = getattr(K, name), CALLS[name]
    refused = 0
    with (
        cb.use(WHERE or "python"),
        warnings.catch_warnings(),
    ):  # arguments are looked at before there is any code
        warnings.simplefilter("ignore")  # a complex number becomes a real one
        call(*good)
        for n in range(len(good)):
            for value in WRONG:
                try:
                    call(*good[:n], value, *good[n + 1 :])
                except cb.errors.CubeError as error:
                    refused += 1
                    assert str(error).strip()
    assert refused >= 4


@pytest.mark.parametrize("name", CALLS)
def test_a_flag_is_true_or_false_and_a_name_is_a_string(name: str) -> None:
    call, signature = getattr(K, name), inspect.signature(getattr(K, name))
    good = signature.bind(*CALLS[name]).arguments
    for option in signature.parameters.values():
        if option.annotation in ("bool", "bool | None", "str", "str | None"):
            for value in ([True], np.array([True, False]), np.zeros(0), {}, 3.5, 7, object()):
                with pytest.raises(cb.errors.CubeError, match=f"{option.name} (must be|is) "):
                    call(**good | {option.name: value})


def test_a_flag_may_come_from_numpy_and_may_be_0_or_1() -> None:
    for yes in (True, 1, np.True_, np.int64(1)):
        assert K.sum(X, 1, yes).shape == (3, 1)
    for no in (False, 0, np.False_, np.uint8(0)):
        assert K.sum(X, 1, keepdims=no).shape == (3,)
    assert K.interpolate(IMAGE, 4, mode="bilinear", align_corners=None).shape == (
        1,
        2,
        4,
        4,
    )  # as torch's default


def test_sizes_that_no_axis_has_are_refused_before_anything_is_made_for_them() -> None:
    for size in (2**31, 2**63, 2**70, (2**31, 2**31)):
        for call in (
            lambda n: K.interpolate(IMAGE, n), lambda n: K.adaptive_avg_pool2d(IMAGE, n), lambda n: K.avg_pool2d(IMAGE, 2, n),
            lambda n: K.adaptive_max_pool2d(IMAGE, n), lambda n: K.max_pool2d(IMAGE, n), lambda n: K.conv2d(IMAGE, FILTERS, None, n),
            lambda n: K.avg_pool2d_input((1, 2, *np.broadcast_to(n, 2).tolist()), IMAGE, 2),
        ):  # fmt: skip
            with pytest.raises(cb.errors.ShapeError, match=r"must be below 2\*\*31, not"):
                call(size)
    with pytest.raises(
        cb.errors.ShapeError, match=r"size times scale_factor must be below 2\*\*31"
    ):
        K.interpolate(IMAGE, scale_factor=1e20)


def test_what_does_not_fit_into_memory_is_an_error_of_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_much(*args: Any) -> None:
        raise MemoryError("Unable to allocate 16 GiB")

    monkeypatch.setattr("cubepy.kernels.pooling.avg_pool.part_band", too_much)
    with pytest.raises(
        cb.errors.OutOfMemoryError,
        match="adaptive_avg_pool2d needs more memory than there is: Unable",
    ):
        K.adaptive_avg_pool2d(IMAGE, 7)


def test_the_messages_name_the_argument() -> None:
    with pytest.raises(cb.errors.ArgumentError, match=r"axis must be an int, not 'rows'"):
        K.softmax(X, "rows")
    with pytest.raises(cb.errors.ArgumentError, match=r"pad\[0\] must be an int, not \(1, 1\)"):
        K.pad(X, ((1, 1), (0, 0)))
    with pytest.raises(
        cb.errors.ShapeError,
        match=r"stride must be an int of at least 1 or 2 of them, not \(1, 2, 3\)",
    ):
        K.conv2d(IMAGE, FILTERS, stride=(1, 2, 3))
    with pytest.raises(TypeError, match="std must be a number, not an array of shape"):
        K.normal(0.0, X, 3)


def test_options_that_make_no_sense_are_refused() -> None:
    for option, value in {
        "alpha": "a",
        "fill": None,
        "activation": "magic",
        "precision": "low",
    }.items():
        with pytest.raises(cb.errors.CubeError):
            K.matmul(X, X.T, mask=np.ones((3, 3), bool), **{option: value})
    with pytest.raises(cb.errors.ArgumentError, match="no activation 'magic'"):
        K.conv2d(IMAGE, FILTERS, activation="magic")
    for scale in ("a", (), np.ones(2)):
        with pytest.raises(cb.errors.ArgumentError, match="scale must be a number"):
            K.attention(IMAGE, IMAGE, IMAGE, scale=scale)
    with pytest.raises(cb.errors.ShapeError, match=r"attn_mask of shape \(3, 4\)"):
        K.attention(IMAGE, IMAGE, IMAGE, X)
    for factor in (0, float("nan"), (2.0,), -1):
        with pytest.raises(
            cb.errors.ShapeError, match="scale_factor must be a positive number or 2 of them"
        ):
            K.interpolate(IMAGE, scale_factor=factor)
    with pytest.raises(cb.errors.ArgumentError, match="divisor_override"):
        K.avg_pool2d(IMAGE, 2, divisor_override="a")
    with pytest.raises(cb.errors.ArgumentError, match="generator must be a Generator"):
        K.uniform(size=3, generator=np.random.default_rng(0))
    with pytest.raises(cb.errors.ArgumentError, match="momentum"):
        K.batch_norm(IMAGE, None, None, training=True, momentum="much")
    assert K.prepack(np.ones((0, 1 << 20), np.float32)).panels.size == 0
    with pytest.raises(cb.errors.OutOfMemoryError, match="no machine|bytes to give"):
        K.copy(np.broadcast_to(np.float32(1), (1 << 20, 1 << 20, 1 << 20)))


def test_an_output_without_memory_to_write_is_refused() -> None:
    fixed = np.ones((3, 4), np.float32)
    fixed.flags.writeable = False
    for out, wrong in ((fixed, cb.errors.ReadOnlyError), (X.tolist(), cb.errors.ArgumentError)):
        for call in (
            K.softmax,
            K.copy,
            lambda x, **o: K.layer_norm(x, 4, **o),
            lambda x, **o: K.sum(x[None], 0, **o),
        ):
            with pytest.raises(wrong):
                call(X, out=out)
    with pytest.raises(cb.errors.ArgumentError, match="out must be an array, not"):
        K.sum(X, out=np.float32(0))
    here = memoryview(np.zeros((3, 4), np.float32))
    if WHERE in ("", "cpu", "python"):
        assert K.copy(X, out=here) is here and here[2, 3] == 1
    else:  # memory of the host
        with pytest.raises(cb.errors.CubeError):
            K.copy(X, out=here)
