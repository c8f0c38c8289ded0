"""`deterministic` on a CPU: the same bits whatever the number of cores is, where sums are divided
among them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="kernels of the CPU")
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import hashlib, json
import numpy as np
from cubepy import kernels as K

rng = np.random.default_rng(0)
def some(*shape): return rng.standard_normal(shape, dtype=np.float32)
image, heads = some(2, 16, 40, 40), some(1, 1, 900, 64)
found = {
    "sum": K.sum(some(300000)), "var": K.var(some(40, 3000), 0),
    "matmul": K.matmul(some(8, 20000), some(20000, 8)),
    "conv_weight": K.conv_weight(image, (8, 16, 3, 3), some(2, 8, 40, 40), 1, 1),
    "conv_weight, depthwise": K.conv_weight(image, (16, 1, 3, 3), some(2, 16, 40, 40), 1, 1, 1, 16),
    "attention_gradients": np.stack(
        K.attention_gradients(heads, heads, heads, heads, heads, some(1, 1, 900))
    ),
}
print(json.dumps({k: hashlib.sha256(np.asarray(v).tobytes()).hexdigest() for k, v in found.items()}))
"""


def test_results_have_the_same_bits_on_any_number_of_cores() -> None:
    found = []
    for threads in ("1", "6"):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            cwd=ROOT,
            env={**os.environ, "CUBEPY_NUM_THREADS": threads, "CUBEPY_DETERMINISTIC": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr[-2000:]
        found.append(json.loads(run.stdout))
    one, six = found
    assert {name for name in one if one[name] != six[name]} == set()
