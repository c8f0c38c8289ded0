"""Reductions give the same bits in processes of one thread and of two."""

from __future__ import annotations

import os
import subprocess
import sys

import cubepy as cb

PROGRAM = """
import hashlib
import numpy as np
import cubepy as cb
from cubepy import kernels as K

bits = hashlib.sha256()
rng = np.random.default_rng(7)
with cb.config.override(serial_elements=0):
    for shape in ((64, 5000), (3, 70001), (2001, 33)):
        x = rng.standard_normal(shape).astype(np.float32)
        for axis in (None, 0, 1):
            for name in ("sum", "mean", "prod", "max", "min", "argmax", "argmin"):
                bits.update(np.ascontiguousarray(getattr(K, name)(x, axis)).tobytes())
        for found in cb.jit(lambda t: ((t * t).sum(axis=0), (t + 1.5).mean(axis=0)))(cb.tensor(x)):
            bits.update(found.numpy().tobytes())
print(bits.hexdigest())
"""


CORES = """
import cubepy as cb
print(cb.device_properties_of("cpu").cores)
"""


def digest(threads: int, program: str = PROGRAM) -> str:
    """What a program prints in a process of so many threads."""
    environment = {**os.environ, "NUMBA_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_plans_are_for_as_many_threads_as_there_are() -> None:
    assert digest(1, CORES) == "1"
    assert digest(10**6, CORES) == str(cb.device_properties_of("cpu").cores)


def test_reductions_have_the_same_bits_in_processes_of_one_and_two_threads() -> None:
    one = digest(1)
    assert len(one) == 64
    assert digest(2) == one
