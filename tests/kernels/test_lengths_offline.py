"""Whatever dtype and length an array has, what a GPU's plan launches for it can be written in the
language: code of random dtypes, and of rows that are shared by a plane, a cube, a cluster, cubes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.runtime import device as devices
from cubepy.runtime.memory.device_array import empty

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.recording import recording
from tests.backends.cuda.thorough import ARCHITECTURES, THOROUGH
from tests.kernels.by_axis import functions_of_an_axis

DTYPES = [
    np.dtype(d)
    for d in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.int32, np.uint8)
]
LONGEST = 300_000
FUNCTIONS: dict[str, Callable[[Any, int], Any]] = {
    **{name: lambda x, axis, f=f: f(x, axis) for name, f in functions_of_an_axis().items()},
    "layer_norm": lambda x, axis: K.layer_norm(x, x.shape[1]),
    "rms_norm": lambda x, axis: K.rms_norm(x, x.shape[1]),
    "group_norm": lambda x, axis: K.group_norm(x.reshape(2, 2, -1), 2),
    "topk": lambda x, axis: K.topk(x, 2, axis),
}


def taken(function: Callable[[Any, int], Any], dtype: np.dtype) -> bool:
    """Whether a function is one of this dtype, as it says on a CPU."""
    try:
        with cb.use("cpu"):
            function(np.ones((2, 4), dtype), 1)
    except cb.errors.DTypeError:
        return False
    return True


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_plans_of_every_dtype_and_length_can_be_compiled(name: str, architecture: str) -> None:
    function = FUNCTIONS[name]
    dtypes = [dtype for dtype in DTYPES if taken(function, dtype)]
    rng = np.random.default_rng(zlib.crc32(f"{name} {architecture}".encode()))
    draws = [(dtypes[0], 1, share) for share in (0.8, 0.95)]  # the widest, in rows for clusters
    for _ in range(40 if THOROUGH else 1):
        draws.append((dtypes[rng.integers(len(dtypes))], int(rng.integers(2)), rng.random()))
    for dtype, axis, share in draws:
        n = 2 * int(LONGEST**share / 2 + 1)
        shape = (2, n) if axis else (n, 2)
        with recording(architecture) as launches:
            function(empty(shape, dtype, devices.current()), axis)
            assert launches, f"{name} of {dtype} {shape} launches nothing"
            for _, code in launches:
                assert code.text.text
