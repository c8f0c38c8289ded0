"""Processes that play other CPUs compile for them, and compute the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import other_cpus

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
from tests import other_cpus
other_cpus.begin()
import ml_dtypes
import numpy as np
import cubepy as cb
from cubepy import kernels as K

rng = np.random.default_rng(1)
for dtype in (np.float32, ml_dtypes.bfloat16):
    a, b = (rng.integers(-8, 8, shape).astype(dtype) for shape in ((37, 29), (29, 45)))
    want = a.astype(float) @ b.astype(float)
    assert (K.matmul(a, b, dtype=cb.f32) == want).all()
x = rng.standard_normal((5, 77)).astype(np.float32)
exact = np.exp(x.astype(float))
exact /= exact.sum(1, keepdims=True)
assert np.abs(K.softmax(x) / exact - 1).max() < 1e-5
here = cb.runtime.device.device_properties("cpu")
print(here.register_bytes, "tiles" in here.features)
"""


@pytest.mark.parametrize("cpu", ["avx2", "sse4"])
def test_a_process_plays_a_cpu(cpu: str, tmp_path: Path) -> None:
    try:
        environment = other_cpus.environment(cpu)
    except ValueError as error:
        pytest.skip(str(error))
    environment = {**os.environ, **environment, "CUBEPY_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.split() == [{"avx2": "32", "sse4": "16"}[cpu], "False"], run.stderr[-2000:]


def test_a_cpu_that_is_not_known_and_a_process_that_began_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ValueError, match="no CPU 'z80' is known here; these are: avx2"):
        other_cpus.environment("z80")
    monkeypatch.setattr(other_cpus, "environment", lambda cpu: {"NUMBA_CPU_NAME": "z80"})
    monkeypatch.setenv(other_cpus.VARIABLE, "avx2")
    with pytest.raises(RuntimeError, match="a process that plays 'avx2' needs NUMBA_CPU_NAME=z80"):
        other_cpus.begin()
