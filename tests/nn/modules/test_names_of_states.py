"""Under which names a module gives and takes its state."""

from __future__ import annotations

import numpy as np
import pytest

from cubepy import nn
from cubepy.errors import CubeError


def test_a_module_that_is_there_twice_has_both_names_in_its_state() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 3)
            self.inner = nn.Sequential(nn.ReLU(), self.first)
            self.again = self.inner

    a, b = Twice(), Twice()
    state = a.state_dict()
    names = [f"{m}.{p}" for m in ("first", "inner.1", "again.1") for p in ("weight", "bias")]
    assert list(state) == names
    for given in (state, {name: state[name] for name in names[2:4]}):
        b.first.weight.fill_(0)
        assert b.load_state_dict(given) == ([], [])
        np.testing.assert_array_equal(b.first.weight.numpy(), a.first.weight.numpy())
    assert len(list(b.parameters())) == 2
    with pytest.raises(CubeError, match=r"first.bias, inner.1.bias, again.1.bias"):
        b.load_state_dict({"first.weight": state["first.weight"]})


def test_names_of_a_state_may_begin_with_a_prefix() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    plain, named = net.state_dict(), net.state_dict(prefix="net.")
    assert list(named) == [f"net.{name}" for name in plain]
    assert net.to("cpu", non_blocking=True) is net
