"""Launches from many threads at once, on every threading layer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cubepy.backends.cpu.threads import pool

SCRIPT = """
import threading
import numpy as np
import cubepy as cb
from cubepy import kernels as K
from cubepy.backends.cpu.threads import choice as cpu_threads

@cb.kernel
def scale(x: cb.Array, factor, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * factor

@cb.kernel
def cube_sums(x: cb.Array, out: cb.Array):
    s = cb.shared(32, cb.f32)
    t = cb.UNIT_POS
    s[t] = x[cb.ABSOLUTE_POS]
    cb.sync_cube()
    n = 16
    while n > 0:
        if t < n:
            s[t] += s[t + n]
        cb.sync_cube()
        n = n // 2
    if t == 0:
        out[cb.CUBE_POS] = s[0]

errors = []
def work(number):
    try:
        rng = np.random.default_rng(number)
        x = rng.standard_normal(32 * 2000).astype(np.float32)
        sums = x.reshape(-1, 32).astype(np.float64).sum(1)
        for turn in range(10):
            out = np.zeros_like(x)
            scale[cb.over(out)](x, float(number + turn), out)
            assert (out == x * np.float32(number + turn)).all()
            totals = np.zeros(2000, np.float32)
            cube_sums[2000, 32](x, totals)
            assert np.allclose(totals, sums, rtol=1e-4, atol=1e-4)
            assert np.allclose(K.sum(x.reshape(2000, 32), axis=1), sums, rtol=1e-4, atol=1e-4)
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors
print("right on", cpu_threads.driver().layer)
"""


@pytest.mark.parametrize("layer", ["default", "omp", "workqueue"])
def test_eight_threads_launch_at_once(layer: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer}
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if layer == "omp" and "No threading layer could be loaded" in done.stderr:
        pytest.skip("this system has no OpenMP runtime")
    assert done.returncode == 0, done.stderr
    if layer != "default" or pool.usable():
        assert done.stdout.strip() == f"right on {'own' if layer == 'default' else layer}"
