"""Another shape seldom needs another specialisation: a user with images of many sizes does not
compile for each.
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
ROOT = Path(__file__).resolve().parents[2]
MOST = 4  # for eight shapes; those that differ are the tile, whether it is packed, and classes of sizes
MORE = {
    "reduce_columns": 5,  # lines side by side, and whether they are whole, along the first axis and the last
    "convolve": 7,  # the tile, and how channels that are fewer than lanes are shuffled: `Plan` says so
    "convolve_rows": 5,  # a tile of two sizes
    "map_rows": 8,  # of batch_norm, which maps with six functions of several arrays
    "map_flat": 8,
    "interleave": 6,  # two to four lines side by side, both ways
    "standing_product": 6,  # the register tile of a small result: at most 12 rows, 5 lines
    "block_product": 6,  # with AVX2 and less few rows have a tile of their own; packed ones have two
}
"""Kernels of which a function may need more, and why."""


def made(module: str, folder: Path) -> dict[str, dict[str, int]]:
    """What a program counts: specialisations by case and kernel."""
    run = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.{module}"],
        cwd=ROOT,
        env={**os.environ, "CUBEPY_CACHE_DIR": str(folder), "CUBEPY_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout)  # type: ignore[no-any-return]


def test_other_shapes_seldom_need_other_code(tmp_path: Path) -> None:
    found = made("specialisations", tmp_path)
    assert all(found.values())
    many = {
        (case, kernel): n
        for case, kernels in found.items()
        for kernel, n in kernels.items()
        if n > MOST
    }
    assert not many


def test_no_public_function_compiles_for_each_size(tmp_path: Path) -> None:
    """Sizes from 1 to some hundreds, where classes of sizes and single sizes are hardest to tell
    apart.
    """
    found = made("specialisations_everywhere", tmp_path)
    assert found.pop("over") == {"over": 1}, (
        "a size decides how many cubes there are, not how large"
    )
    assert found.pop("over axes") == {"over_axes": 1}
    assert sum(map(len, found.values())) > 50, (
        "cases share kernels, and the first one to need it has it counted"
    )
    many = {
        (case, kernel): n
        for case, kernels in found.items()
        for kernel, n in kernels.items()
        if n > MORE.get(kernel, MOST if "conv" in case else 3)
    }
    assert not many
