"""Results are of the kind that came in: tensors of PyTorch give tensors of PyTorch, in every public
function.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from tests.kernels.entry.every_function import missing
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="kernels of the CPU")
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("library", ["a stand-in", "torch"])
def test_every_function_gives_back_what_came_in(library: str, tmp_path: Path) -> None:
    assert missing() == set()
    if library == "torch" and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.entry.result_kinds", library],
        cwd=ROOT,
        env={**os.environ, "CUBEPY_CACHE_DIR": str(tmp_path), "CUBEPY_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert json.loads(run.stdout) == {}


def test_tensors_and_plain_arrays_stay_what_they_are() -> None:
    x = np.ones((2, 3), np.float32)
    assert type(K.cumsum(x)) is np.ndarray
    assert type(K.cumsum(x.tolist())) is np.ndarray
    assert isinstance(K.cumsum(cb.tensor(x)), cb.tensor(x).__class__)
