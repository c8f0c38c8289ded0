"""Names of a kernel's variables and parameters: any that Python has, also those that generated code
uses.
"""

from __future__ import annotations

import importlib.util
import keyword
import random
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.gpu.names import SHARED

HARD = (
    *(f"{word}_" for word in keyword.kwlist), *sorted(SHARED - {"range", "abs"}),
    "_", "_1", "__2", "_3_", "x_n0", "x_s0", "y_n0", "out_s1", "out_n1", "p_n0", "shared", "local", "t", "t_1", "t1",
    "both", "either", "chosen", "left", "old", "first", "last", "start", "stop", "index", "é", "Φ_n0", "変数", "self",
)  # fmt: skip
"""Names that generated code may have for something else."""
KERNEL = """
import cubepy as cb

@cb.kernel
def named({0}: cb.Array, {1}: cb.Array, {2}: cb.f32, {3}: cb.Array):
    i = cb.ABSOLUTE_POS
    {4} = cb.shared(8, cb.f32)
    {5} = cb.local(2, cb.i32)
    {4}[cb.UNIT_POS] = {0}[i, 0]
    cb.sync_cube()
    {5}[0] = cb.cast({4}[(i + 1) % 8], cb.i32) // 2
    {5}[1] = {5}[0] % 3 << 1
    {6} = {0}[i, 1] * {2} if {1}[i] > 0 else {4}[0]
    {7} = ({6} > 1) & ({1}[i] != 2) | ~({6} < {2}) ^ ({5}[0] == 0)
    {8} = ({6} or {2}) and not {7}
    for {9} in range({0}.shape[0]):
        if {9} == 3 and {7}:
            continue
        {6} = cb.max({6}, {1}[{9}]) - cb.min({2}, {4}[{9} % 8])
        while {6} > 9:
            {6} = {6} * 0.5
    line = {0}.load((i, 0), 2)
    {3}[i, 0] = {6} + {7} + 2 * {8}
    {3}[i, 1] = line.sum() + {5}[1] + {1}.size + {9}
"""
PLAIN = KERNEL.format(*"x y p out s keep a c d k".split())


def _kernel(text: str, folder: Path, name: str) -> cb.Kernel:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.named  # type: ignore[no-any-return]


@pytest.mark.parametrize("turn", range(2))
def test_names_mean_nothing(device: str, turn: int, tmp_path: Path) -> None:
    names = random.Random().sample(HARD, 10)
    rng = np.random.default_rng()
    x, y = rng.integers(-4, 5, (8, 2)), rng.integers(-4, 5, 8)
    found = []
    for text, where in ((PLAIN, "python"), (KERNEL.format(*names), device)):
        out = np.zeros((8, 2), np.float32)
        kernel = _kernel(text, tmp_path, f"names_{len(found)}")
        with cb.use(where):
            kernel[1, 8](x.astype(np.float32), y.astype(np.float32), 2.0, out)
            cb.sync(where)
        found.append(out)
    np.testing.assert_array_equal(*found, err_msg=str(names))
