"""`cb.tile_dot`: what its rule refuses, its machine code for a CPU with a matrix unit, and products
made with it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as ll
import numpy as np
import pytest
from llvmlite import ir

import cubepy as cb
from cubepy.backends.cpu import backend
from cubepy.backends.llvm.ops.amx import INSTRUCTIONS, _Function
from cubepy.errors import FeatureError, KernelTypeError
from tests.backends.cpu.amx_stand_in import compare

HERE = "tiles" in backend._properties().features
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("kind", INSTRUCTIONS)
def test_a_step_is_four_products_of_four_tiles(kind: str) -> None:
    ll.initialize_all_targets()
    ll.initialize_all_asmprinters()
    module = ir.Module()
    _Function(module, kind, "tiles").function.linkage = ""
    parsed = ll.parse_assembly(str(module))
    machine = ll.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
        cpu="sapphirerapids", features="+amx-tile,+amx-bf16,+amx-int8", opt=3
    )
    text = machine.emit_assembly(parsed)
    assert text.count("ldtilecfg") == 6 and text.count("tilerelease") == 1
    loops = [
        re.findall(r"^\s+(\w+)", body, re.M) for body in re.split(r"^\.\w+:", text, flags=re.M)
    ]
    widest = max(loops, key=lambda loop: loop.count(INSTRUCTIONS[kind]))
    assert widest.count(INSTRUCTIONS[kind]) == 4 and widest.count("tileloadd") == 4
    assert "call" not in text


@cb.kernel
def product(
    a: cb.Array, b: cb.Array, out: cb.Array, width: cb.Comptime[int], units: cb.Comptime[int]
):
    sums = cb.local((32, width), cb.f32)
    cb.tile_dot(sums, 1, a, (0, 0), b, (0, 0), a.shape[1], cb.bf16)
    out[0] = sums[0, 0]


def refused(
    error: type[Exception], pattern: str, a: np.ndarray, width: int = 32, units: int = 1
) -> None:
    b, out = np.zeros((4, 32), np.uint32), np.zeros(1, np.float32)
    with pytest.raises(error, match=pattern):
        product[1, units](a, b, out, width, units)


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.zeros((4, 8), np.uint32)
    if not HERE:
        refused(FeatureError, "needs the feature 'tiles'", words)
        properties = backend._properties()
        features = properties.features | {"tiles"}
        monkeypatch.setattr(
            backend,
            "_properties",
            lambda: cb.DeviceProperties(**{**vars(properties), "features": features}),
        )
    refused(KernelTypeError, "rows of 32", words, width=16)
    refused(KernelTypeError, "rows of words", words.astype(np.float32))
    refused(KernelTypeError, "must be neighbours", words.T)
    refused(KernelTypeError, "cubes of one unit", words, units=2)


def test_products_agree_with_numpy(tmp_path: Path) -> None:
    """In a process of its own where a stand-in takes the matrix unit's place: its kernels are not
    this machine's.
    """
    if HERE:
        compare()
        return
    run = subprocess.run(
        [sys.executable, "-m", "tests.backends.cpu.amx_stand_in"],
        cwd=ROOT,
        env={**os.environ, "CUBEPY_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == "equal", run.stderr[-2000:]
