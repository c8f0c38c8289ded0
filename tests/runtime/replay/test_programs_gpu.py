"""Programs on a GPU: op by op today, with effects as on the host."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor, apply
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import Spec, define
from tests.backends.cuda.fake_cuda import FakeCuda
from tests.runtime.replay.gpu_calls import new, plus, same, some


@pytest.fixture
def adding() -> Iterator[str]:
    """The name of an op whose kernel the pretended driver has."""

    @define("map", {"adding": lambda dtype, x, y: plus(x, y)})
    def rule(x: Spec, y: Spec) -> Spec:
        return x

    yield "adding"
    del OPS["adding"]


def test_a_program_runs_op_by_op_on_a_gpu(fake: FakeCuda, adding: str) -> None:
    kept = cb.tensor(new(np.zeros(64, np.float32)))

    def function(x: Tensor, y: Tensor) -> Tensor:
        z = apply(adding, x, y)
        kept.assign_(z)
        return apply(adding, z.reshape(8, 8).reshape(64), z)

    program = cb.jit(function)
    for _ in range(5):
        x, y = some(64), some(64)
        given = cb.tensor(new(x)), cb.tensor(new(y))
        found = program(*given)
        assert found.device == kept.device == given[0].device
        same(found.storage.array, (x + y) * 2)
        same(kept.storage.array, x + y)
    assert "op by op: programs on" in program.explain()
