"""Products of bytes with signed bytes that were laid out before are exact, whatever the sizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.kernels.matmul.cpu.blocked import Tile
from cubepy.kernels.matmul.cpu.codes import multiply, pack_codes, width_of
from cubepy.kernels.matmul.cpu.split_k import Split
from cubepy.kernels.matmul.measure import unpacked
from cubepy.kernels.matmul.problem import Product
from cubepy.tensor.array import apply
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="panels of a CPU")
HERE = cb.device_properties_of("cpu")
DOTS = pytest.mark.skipif(not HERE.adds_bytes, reason="no dot products of bytes")
LENGTHS = [1, 2, 3, 4, 5, 31, 32, 33, 64, 65, 100, 257, 1030]


def drawn(rng: np.random.Generator, signed: bool) -> tuple[Any, Any]:
    """Rows of bytes, extremes among them, and a matrix of signed ones that lies any way round."""
    m, k, n = (int(rng.choice(LENGTHS)) for _ in range(3))
    low, high = (-128, 128) if signed else (0, 256)
    x = rng.integers(low, high, (m, k)).astype(np.int8 if signed else np.uint8)
    y = rng.integers(-128, 128, (k, n)).astype(np.int8)
    x[rng.random(m) < 0.2] = high - 1
    y[:, rng.random(n) < 0.2] = -128
    return x, (y, np.asfortranarray(y), np.repeat(y, 2, 1)[:, ::2])[int(rng.integers(3))]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_panels_hold_the_matrix(signed: bool, seed: int) -> None:
    rng = np.random.default_rng([seed, signed])
    _, y = drawn(rng, signed)
    for width in (16, 32, 64):
        panels = pack_codes(y, signed, width)
        assert panels.dtype == (np.uint8 if signed else np.int8)
        np.testing.assert_array_equal(unpacked(panels, *y.shape)[0], y)


@DOTS
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_products_are_exact(signed: bool, seed: int) -> None:
    """With matrix units if there are any, and without; K in parts, and in pieces."""
    rng = np.random.default_rng([seed, signed])
    x, y = drawn(rng, signed)
    exact = x.astype(np.int32) @ y.astype(np.int32)
    panels = pack_codes(y, signed, width_of(HERE))
    np.testing.assert_array_equal(multiply(x, panels, y.shape[1]), exact)
    np.testing.assert_array_equal(multiply(x[None, None], panels, y.shape[1])[0, 0], exact)
    plain = replace(HERE, features=HERE.features - {"tiles"}, cores=int(rng.choice([1, 2, 64])))
    width = width_of(plain)
    names = ("i8", "u8") if signed else ("u8", "i8")
    problem = Product("cpu", *x.shape, y.shape[1], 1, *names, packed=width, out="i32")
    routine: Any = Tile() if Split().supports(problem, plain) else Split()
    for plan in list(routine.blueprints(problem, plain))[:3]:
        out = np.zeros((1, *exact.shape), np.int32)
        panels = pack_codes(y, signed, width)
        routine.launch(plan, problem, (x[None], panels, out, None, None, None, 1.0))
        np.testing.assert_array_equal(out[0], exact)


@DOTS
def test_programs_lay_codes_out_once() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.codes = nn.Parameter(rng.integers(-128, 128, (30, 50)).astype(np.int8), False)

        def forward(self, x: Any) -> Any:
            return apply("matmul_codes", x, self.codes)

    rng = np.random.default_rng(0)
    net = Net()
    program = cb.jit(lambda x: net(x))
    for kind in (np.uint8, np.int8):
        x = rng.integers(0, 128, (2, 3, 30)).astype(kind)
        for _ in range(3):
            found = program(cb.tensor(x)).numpy()
            exact = x.astype(np.int32) @ net.codes.numpy().astype(np.int32)
            np.testing.assert_array_equal(found, exact)
        assert "packed_matmul_codes" in str(cb.explain(program, cb.tensor(x)))
