"""A kernel has one text, whatever order a process has for the names in a set: else the next process
would not find its code.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(778100, 778106)
"""Of random kernels; some have several variables that a path may leave without a value."""
TEXTS = """
import hashlib, sys
from pathlib import Path
import numpy as np
from cubepy.backends.llvm.processes import jobs
from tests.conformance.random_kernels.compare import inputs, load, random_case

folder, *seeds = sys.argv[1:]
with jobs.rehearsal() as known:
    for seed in seeds:
        source, (cubes, units) = random_case(int(seed))
        module = load(source, Path(folder), f"random_kernel_{seed}")
        count = cubes * int(np.prod(units))
        x, arguments = inputs(module, 0, 2, count)
        out, whole = np.zeros((count, 6), np.float32), np.zeros((count, 4), np.int32)
        module.random_kernel[cubes, units](x, out, whole, *arguments, device="cpu")
for job in known.values():
    print(hashlib.sha256(job.text.encode()).hexdigest())
"""


def texts(folder: Path, order: int) -> list[str]:
    """The hashes of the texts of random kernels, in a process with an order of its own for sets."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", TEXTS, str(folder), *map(str, SEEDS)],
        env=os.environ
        | {
            "PYTHONHASHSEED": str(order),
            "PYTHONPATH": str(ROOT),
            "CUBEPY_CACHE_DIR": str(folder / "cache"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_text_of_a_kernel_is_the_same_in_every_process(tmp_path: Path) -> None:
    one, other = (texts(tmp_path / str(order), order) for order in (1, 2))
    assert len(one) == len(SEEDS)
    assert one == other
