"""Programs on an emulated GPU are explained and profiled."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated


def layer(x: Tensor) -> Tensor:
    return (x * 3.5).exp().sum(axis=-1)


def test_steps_on_a_gpu_have_kernels_and_lines() -> None:
    with emulated() as gpu:
        x = cb.tensor(np.ones((4, 8), np.float32), device=gpu)
        with cb.use(gpu):
            found = cb.explain(layer, x)
            with cb.profile() as p:
                layer(x)
    (program,) = found.programs
    assert program.planned
    kernels = [k for s in program.steps for k in s.kernels or ()]
    assert kernels and all(s.lines for s in program.steps if s.kernels)
    line = f"{__file__}:{layer.__code__.co_firstlineno + 1}"
    assert set(p.by_line()) == {line}
    launched = {op for op, t in p.by_op().items() if t.launched > 0}
    assert p.kernels and launched == {"mul", "exp", "sum"}
