"""Results that no cache holds are stored past the caches wherever `out` begins: up to a line of the
cache first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.kernels.elementwise import problem
from cubepy.kernels.normalization import rows_cpu
from cubepy.kernels.primitives.vector_width import to_line
from cubepy.runtime import recording
from cubepy.runtime.memory.address import address
from cubepy.runtime.replay import host
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="kernels of the CPU")
GUARD = 77
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def no_cache_holds_anything(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, name in (
        (problem, "STREAMING_BYTES"),
        (rows_cpu, "STREAMING_BYTES"),
        (host, "PEELED"),
    ):
        monkeypatch.setattr(module, name, 4096)
    recording.forget()
    yield
    recording.forget()


def framed(shape: tuple[int, ...], dtype: Any, byte: int) -> tuple[np.ndarray, np.ndarray]:
    """An array that begins so many bytes past a line, and the memory that it is in, full of guards."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.full(size + 512, GUARD, np.uint8)
    start = 128 - address(memory) % 64 + byte
    return memory[start : start + size].view(dtype).reshape(shape), memory


def some(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32).astype(dtype)


def kernels_of(call: Callable[[], Any]) -> dict[str, int]:
    with cb.profile() as found:
        call()
    return {name: timing.calls for name, timing in found.kernels.items()}


WIDE = 256
CALLS = {
    "copy": K.copy,
    "gelu": K.gelu,
    "softmax": K.softmax,
    "layer_norm": lambda x, out=None: K.layer_norm(
        x, x.shape[-1], W[: x.shape[-1]], W[: x.shape[-1]], out=out
    ),
    "transpose": K.transpose,
}
W = some(8 * WIDE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same_wherever_out_begins(name: str, dtype: Any) -> None:
    call = CALLS[name]
    for _ in range(6):
        x = some(
            int(rng.integers(40, 70)),
            WIDE * int(rng.integers(1, 4)) + 32 * int(rng.integers(0, 2)),
            dtype=dtype,
        )
        fresh = call(x)
        for byte in rng.permutation(np.arange(0, 64, np.dtype(dtype).itemsize))[:6]:
            out, memory = framed(fresh.shape, dtype, int(byte))
            for _ in range(3):  # the third call repeats the second
                memory[...] = GUARD
                assert call(x, out=out) is out
                np.testing.assert_array_equal(out, fresh)
                out[...] = 0
                assert np.count_nonzero(memory != GUARD) <= out.nbytes
                assert (memory[: address(out) - address(memory)] == GUARD).all()
                assert (memory[address(out) - address(memory) + out.nbytes :] == GUARD).all()


@pytest.mark.parametrize("byte", [4, 16, 60])
def test_lines_are_stored_past_the_caches_wherever_out_begins(byte: int) -> None:
    x = some(64, 4 * WIDE)
    out, _ = framed(x.shape, x.dtype, byte)
    lanes = cb.device_properties_of().register_bytes // 4
    assert kernels_of(lambda: K.copy(x, out=out)) == {"map_flat": 1, "map_streaming": 1}
    assert kernels_of(lambda: K.map(K.functions.add, x, x, out=out)) == {
        "map_flat": 1,
        "map_streaming": 1,
    }
    assert kernels_of(lambda: K.softmax(x, out=out)) == {"softmax_streaming": 1}
    assert rows_cpu.streaming_head(x, out, lanes) == (-byte % (4 * lanes)) // 4
    square, _ = framed((64, 64), np.float32, byte)
    assert kernels_of(lambda: K.transpose(some(64, 64), out=square)) == {"transpose_tiles": 2}


def test_out_that_no_element_of_begins_at_a_line_is_written_the_ordinary_way() -> None:
    memory = np.zeros(64 * 256 * 8 + 256, np.uint8)
    out = memory[4 - address(memory) % 8 + 64 :][: 64 * 256 * 8].view(np.float64).reshape(64, 256)
    assert to_line(out) is None
    assert to_line(out, 4) is None
