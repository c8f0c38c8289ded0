"""Masked arrays are refused wherever arrays come in, whether something is masked or not: no kernel
knows masks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn, quant
from cubepy.errors import ArgumentError
from tests.kernels.entry.every_function import CALLS, DRAWS, F, missing, some, takes_out, variants


def masked(a: np.ndarray) -> Any:
    return np.ma.masked_array(a, a == a.flat[-1])


def test_every_public_function_is_looked_at() -> None:
    assert missing() == set()


@pytest.mark.parametrize("name", CALLS)
def test_no_function_takes_a_masked_array_anywhere(name: str) -> None:
    for args, kwargs in variants(CALLS[name], masked):
        with pytest.raises(ArgumentError, match="is a masked array") as info:
            getattr(K, name)(*args, **kwargs)
        assert "filled" in info.value.hint


@pytest.mark.parametrize("name", [n for n in (*CALLS, *DRAWS) if takes_out(n)])
def test_no_function_writes_into_a_masked_array(name: str) -> None:
    args, kwargs = (CALLS | DRAWS)[name]
    size = args[2] if name in DRAWS else (6, 8)
    with pytest.raises(ArgumentError, match="is a masked array"):
        getattr(K, name)(*args, **kwargs, out=masked(np.zeros(size, F)))


@cb.kernel
def twice(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2


@cb.kernel
def first_of(pair, out: cb.Array):
    out[0] = pair[0][0]


@cb.struct
class Holder:
    x: cb.Array


@cb.kernel
def held(h: Holder, out: cb.Array):
    out[0] = h.x[0]


def test_no_kernel_takes_a_masked_array_even_where_plain_ones_came_before() -> None:
    x, out = some(8), np.zeros(8, F)
    grid = twice[cb.over(out)]
    for _ in range(3):
        grid(x, out)
        held[1, 1](Holder(x), out)
    for call in (
        lambda: grid(masked(x), out),
        lambda: grid(x, masked(out)),
        lambda: grid.bind(masked(x), out),
        lambda: grid.inspect(masked(x), out),
        lambda: grid(masked(x), out, device="python"),
        lambda: first_of[1, 1]((masked(x), 1), out),
        lambda: held[1, 1](Holder(masked(x)), out),
    ):
        with pytest.raises(ArgumentError, match="is a masked array"):
            call()
    with pytest.raises(ArgumentError, match="the argument 'x' is a masked array"):
        grid(masked(x), out)


LAYER = nn.Linear(8, 8)
PLACES: dict[str, Callable[[Any], Any]] = {
    "a tensor": cb.tensor,
    "parts of a tensor": lambda x: cb.tensor([x, x]),
    "an operand of a tensor": lambda x: cb.tensor(some(8, 8)) + x,
    "a layer": LAYER,
    "a parameter": nn.Parameter,
    "a function of nn": nn.functional.relu,
    "weights to quantize": lambda x: quant.QuantizedWeight.from_float(x, "int8"),
    "a sample for calibration": lambda x: quant.quantize(
        nn.Sequential(nn.Linear(8, 8)), "int8", calibrate=x, measure_speed=False
    ),
    "samples for calibration": lambda x: quant.quantize(
        nn.Sequential(nn.Linear(8, 8)), "int8", calibrate=[x], measure_speed=False
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_no_tensor_layer_or_quantization_takes_a_masked_array(place: str) -> None:
    with pytest.raises(ArgumentError, match="masked array"):
        PLACES[place](masked(some(8, 8)))
