"""What a program on a GPU reads shares no memory while its call is recorded."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy.runtime.device import as_device
from cubepy.runtime.memory.device_array import empty, upload
from cubepy.runtime.memory.spans import meet
from cubepy.tensor.program.plans.gpu import disjoint
from tests.pretend import NAME, pretend


@pytest.mark.parametrize("seed", range(20))
def test_views_of_one_memory(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices, turned ones, and numbers that are everywhere, as gradients of sums are."""
    rng = np.random.default_rng(seed)
    with pretend(monkeypatch), cb.use("cpu"):
        whole = upload(rng.standard_normal((6, 8)).astype(np.float32), as_device(NAME))
        views = [
            whole[1:4],
            whole[::2, 3:],
            whole.transpose((1, 0)),
            whole[2, 3:4].strided((5, 3), (0, 0)),
            whole[:, 1:2].strided((6, 4), (32, 0)),
            whole[3:3],
            empty((2, 2), np.float32, as_device(NAME)),
        ]
        views[-1][...] = 1
        given = [views[n] for n in rng.permutation(len(views))[: rng.integers(2, 7)]]
        found = disjoint(given)
        for n, (one, was) in enumerate(zip(found, given, strict=True)):
            np.testing.assert_array_equal(one.numpy(), was.numpy())
            assert one.strides == was.strides
            assert not any(meet(one, other) for other in found[:n])
