"""Candidates of convolution and attention on an emulated Hopper GPU: other tiles than the rules'
give the same.
"""

from __future__ import annotations

from typing import Any

import pytest

from cubepy.kernels.attention.problem import Attention
from cubepy.kernels.attention.routines import ATTENTION
from cubepy.kernels.convolution.problem import Convolution
from cubepy.kernels.convolution.routines import CONVOLUTION
from cubepy.runtime.device import use
from cubepy.tune.check import difference

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.backends.cuda.thorough import some

IMAGE = Convolution(
    "",
    1,
    64,
    64,
    height=6,
    width=8,
    kh=3,
    kw=3,
    ph=1,
    pw=1,
    dtype="f16",
    weight="f16",
    layout="last",
    last=True,
)
HEADS = Attention("", 1, 1, 70, 130, 64, dtype="f16", causal=True, units="wgmma")
WORD = Attention("", 1, 4, 1, 90, 64, groups=2, dtype="f16", units="wgmma")
CASES = [
    (CONVOLUTION, IMAGE, "Boxes(rows=64, columns=128, ranges=1)"),
    (CONVOLUTION, IMAGE, "Boxes(rows=0, columns=0, ranges=2)"),
    (ATTENTION, HEADS, "hopper Shape(groups=2, keys=128"),
    (ATTENTION, HEADS, "planes Shape(planes=2, keys=32)"),
    (ATTENTION, HEADS, "hopper Shape(groups=3, keys=64"),
    (ATTENTION, WORD, "split Shape(row_planes=0"),
]


@pytest.mark.parametrize(
    ("op", "problem", "name"), some(CASES, 0, 1, 2, 3, 5), ids=lambda v: str(v)[-30:]
)
def test_a_candidate_gives_what_it_should(op: Any, problem: Any, name: str) -> None:
    with emulated() as gpu:
        p = problem._replace(device=str(gpu))
        candidate = next(
            c for c in op.candidates(p) if name in c.name
        )  # whatever device is the current one
        with use(gpu):
            args = op.make(p, 1)
            candidate.launch(p, *args)
        found = difference(op.results(p, args), op.reference(p, args), *op.tolerance(p))
        assert found is None


def test_the_guess_on_a_gpu_is_what_the_rules_take() -> None:
    with emulated() as gpu:
        device = str(gpu)
        image = CONVOLUTION.inferred(IMAGE._replace(device=device))
        heads, word = (ATTENTION.inferred(p._replace(device=device)) for p in (HEADS, WORD))
    assert image.name == "boxes Boxes(rows=0, columns=0, ranges=0)"
    assert (heads.routine.name, word.routine.name) == ("hopper", "split")
