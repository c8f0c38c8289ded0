"""Random kernels whose work is indices, on a CPU and on the python backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.random_kernels.compare import load, one_walk
from tests.conformance.random_kernels.indices import compared, indices_case


@pytest.mark.parametrize("seed", range(40))
def test_random_indices_read_and_write_what_the_python_backend_does(
    seed: int, tmp_path: Path
) -> None:
    source, axes, guarded = indices_case(seed)
    kernel = load(source, tmp_path, f"random_indices_{seed}").random_kernel
    with one_walk():
        assert not compared(kernel, axes, guarded, seed, "cpu", rounds=4), source
