"""What may be assigned to an attribute of a module that is a parameter, a module or a buffer: as in
torch, where everything else is a TypeError, so that nothing that learns is lost by a slip.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn

VALUES: dict[str, Any] = {
    "number": lambda: 3,
    "float": lambda: 0.5,
    "list": lambda: [1.0, 2.0],
    "array": lambda: np.ones(2),
    "text": lambda: "w",
    "tensor": lambda: cb.tensor([1.0, 2.0]),
    "parameter": lambda: nn.Parameter([1.0, 2.0]),
    "module": lambda: nn.Linear(2, 1),
    "buffer": lambda: nn.Buffer([1.0, 2.0]),
    "None": lambda: None,
}
ALLOWED = {
    "parameter": {"parameter", "None"},
    "module": {"module", "parameter", "None"},
    "buffer": {"tensor", "buffer", "parameter", "module", "None"},
    "attribute": set(VALUES),
}
"""As torch 2.13 does: a parameter takes any name, a module any but that of a parameter."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parameter = nn.Parameter([3.0])
        self.module = nn.ReLU()
        self.register_buffer("buffer", cb.tensor([4.0]))
        self.attribute = 5


@pytest.mark.parametrize("given", VALUES)
@pytest.mark.parametrize("name", ALLOWED)
def test_what_takes_the_place_of_what(name: str, given: str) -> None:
    net, value = Net(), VALUES[given]()
    before, tables = getattr(net, name), [dict(t) for t in tables_of(net)]
    if given in ALLOWED[name]:
        setattr(net, name, value)
        assert given == "buffer" or getattr(net, name) is value
        assert sum(name in t for t in tables_of(net)) <= 1
        return
    with pytest.raises(TypeError, match=f"'{name}' of Net is a {name}: it can be"):
        setattr(net, name, value)
    assert getattr(net, name) is before and [dict(t) for t in tables_of(net)] == tables


def tables_of(net: nn.Module) -> list[dict[str, Any]]:
    return [net._parameters, net._modules, net._buffers]


@pytest.mark.parametrize("seed", range(20))
def test_a_module_that_was_assigned_to_anyhow_has_each_name_once(seed: int) -> None:
    rng, net, values = np.random.default_rng(seed), Net(), list(VALUES)
    kinds = {name: name for name in ALLOWED}
    for _ in range(30):
        name, given = rng.choice(list(kinds)), str(rng.choice(values))
        if given in ALLOWED[kinds[name]]:
            setattr(net, name, VALUES[given]())
            if given in ("parameter", "module", "buffer"):
                kinds[name] = given
            elif given == "None" and kinds[name] != "buffer":
                kinds[name] = "attribute"
        else:
            with pytest.raises(cb.errors.ArgumentError):
                setattr(net, name, VALUES[given]())
        found = {
            n: k
            for k, t in zip(("parameter", "module", "buffer"), tables_of(net), strict=True)
            for n in t
        }
        assert found == {n: k for n, k in kinds.items() if k != "attribute"}
        assert {n for n, _ in net.named_parameters(recurse=False)} == {
            n for n, k in kinds.items() if k == "parameter"
        }


def test_buffers_that_are_assigned() -> None:
    """They move with the module, and are saved unless they say otherwise."""
    net = nn.Module()
    net.mean, net.angles = nn.Buffer([1.0, 2.0]), nn.Buffer([3.0], persistent=False)
    assert [n for n, _ in net.named_buffers()] == ["mean", "angles"]
    assert list(net.state_dict()) == ["mean"] and not net.mean.requires_grad
    net.mean = net.mean * 2
    assert net.to("f16").mean.dtype is cb.f16 and net.state_dict()["mean"].tolist() == [2.0, 4.0]


def test_a_name_that_was_deleted_is_free() -> None:
    layer = nn.Linear(2, 1)
    del layer.weight
    layer.weight = 3
    assert layer.weight == 3 and [n for n, _ in layer.named_parameters()] == ["bias"]
