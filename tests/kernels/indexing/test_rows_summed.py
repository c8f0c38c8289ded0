"""Sums of rows by index on emulated GPUs, as the gradient of a look-up has them."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.kernels.indexing.embedding import is_large, rows_summed
from tests.backends.hip.emulator.device import emulated

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("processor", ["gfx1100", "gfx942"])
def test_few_rows_of_a_large_table_are_summed_up_by_themselves(processor: str) -> None:
    """Random indices, some again, some negative; of narrow floats, rounded once."""
    with emulated(processor), cb.use(processor):
        for count, rows, width in ((37, 400, 17), (5, 21, 8), (1, 4, 3), (64, 256, 40)):
            dtype = ("bf16", "f16")[count % 2]
            index = RNG.integers(-rows, rows, count) // 3
            values = cb.tensor(RNG.standard_normal((count, width)), dtype=dtype)
            want = np.zeros((rows, width))
            np.add.at(want, index, values.numpy().astype(np.float64))
            given = values.to(processor).storage.dense()
            assert is_large(given, rows)
            found = rows_summed(given, cb.tensor(index, device=processor).storage.dense(), rows)
            away = np.abs(cb.tensor(found).numpy().astype(np.float64) - want)
            assert (away <= np.abs(want) * {"bf16": 2**-8, "f16": 2**-11}[dtype] + 1e-6).all()
            assert not is_large(given, count) and not is_large(values.numpy(), rows)
            whole = values.astype("i16").to(processor).storage.dense()
            assert not is_large(whole, rows), "sums of ints are exact"
