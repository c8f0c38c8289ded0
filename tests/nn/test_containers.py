"""Containers by name and of parameters, and layers without a file of their own."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError
from cubepy.nn import functional as F
from tests.tensor.finite import check_gradients


def test_modules_by_name_are_registered() -> None:
    heads = nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(2, 1)})
    heads["c"] = nn.ReLU()
    heads.update({"a": nn.Linear(2, 4)})
    assert list(heads) == list(heads.keys()) == ["a", "b", "c"] and len(heads) == 3
    assert [n for n, _ in heads.named_parameters()] == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert [m for _, m in heads.items()] == list(heads.values()) and heads["a"].out_features == 4
    del heads["b"]
    assert "b" not in heads and "c" in heads
    with pytest.raises(ArgumentError, match="holds modules by name"):
        heads["d"] = np.ones(3)


def test_parameters_in_lists_and_by_name_learn() -> None:
    weights = nn.ParameterList([np.ones(2, np.float32), nn.Parameter([3.0])])
    weights.append([5.0])
    weights[0] = [7.0, 7.0]
    assert len(weights) == 3 and [p.tolist() for p in weights] == [[7.0, 7.0], [3.0], [5.0]]
    named = nn.ParameterDict({"a": [1.0]})
    named["b"] = nn.Parameter([2.0])
    assert list(named) == ["a", "b"] and len(named) == 2 and "a" in named
    loss = sum((p * p).sum() for p in (*weights.parameters(), *named.parameters()))
    loss.backward()
    optimizer = nn.optim.SGD([*weights.parameters(), *named.parameters()], lr=0.5)
    optimizer.step()
    assert weights[1].tolist() == [0.0] and named["b"].tolist() == [0.0]


def test_bilinear_layers() -> None:
    rng = np.random.default_rng(0)
    layer = nn.Bilinear(2, 3, 4).to("f64")
    x, y = rng.standard_normal((5, 2)), rng.standard_normal((5, 3))
    w, b = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    want = np.einsum("ni,oij,nj->no", x, w, y) + b
    np.testing.assert_allclose(layer(x, y).detach().numpy(), want, rtol=1e-10)
    check_gradients(layer, x, y)


def test_the_identity_takes_anything() -> None:
    x = cb.tensor([1.0, 2.0])
    assert nn.Identity(3, bias=False)(x) is x


def test_modules_say_what_they_are() -> None:
    assert repr(nn.LeakyReLU(0.2)) == "LeakyReLU(negative_slope=0.2)"
    assert repr(nn.LSTM(3, 4, 2, bidirectional=True)) == (
        "LSTM(3, 4, num_layers=2, bidirectional=True)"
    )
    assert "kernel_size=(3, 3), stride=(1, 1)" in repr(nn.Conv2d(3, 4, 3))


def test_a_target_that_is_no_class_is_an_error() -> None:
    with pytest.raises(IndexError):
        F.cross_entropy([[1.0, 2.0]], [2])


def test_moving_a_model_keeps_its_parameters() -> None:
    model = nn.Linear(2, 2)
    before = model.weight
    assert model.to("f64").weight is before and before.dtype is cb.f64 and before.requires_grad


def test_lists_of_modules_are_changed_like_lists() -> None:
    for made in (nn.ModuleList([nn.ReLU(), nn.GELU()]), nn.Sequential(nn.ReLU(), nn.GELU())):
        made.insert(1, nn.Tanh()).extend([nn.SiLU(), nn.ELU()])
        del made[-1]
        assert type(made.pop(0)) is nn.ReLU
        assert [(n, type(m).__name__) for n, m in made.named_children()] == [
            ("0", "Tanh"), ("1", "GELU"), ("2", "SiLU")
        ]  # fmt: skip


def test_modules_and_parameters_have_names() -> None:
    net = nn.Sequential({"a": nn.Linear(2, 3), "b": nn.Sequential(nn.ReLU())})
    net.register_parameter("scale", nn.Parameter([1.0]))
    net.register_parameter("none", None)
    net.add_module("c", net.a)
    assert [n for n, _ in net.named_parameters("x", recurse=False)] == ["x.scale"]
    assert [n for n, _ in net.named_parameters(remove_duplicate=False)] == [
        "scale", "a.weight", "a.bias", "c.weight", "c.bias"
    ]  # fmt: skip
    assert net.get_parameter("a.weight") is net.a.weight and net.none is None
    net.set_submodule("b.0", nn.BatchNorm1d(3))
    assert net.get_buffer("b.0.running_mean").shape == (3,) and not list(net.buffers(False))
    with pytest.raises(AttributeError, match="'Linear' has no parameter 'scale'"):
        net.get_parameter("a.scale")
    with pytest.raises(ArgumentError, match="scale must be a parameter or None"):
        net.register_parameter("scale", 3)
    with pytest.raises(ArgumentError, match="d must be a module or None, not 3"):
        net.add_module("d", 3)


def test_parameters_by_name_are_a_dict() -> None:
    table = nn.ParameterDict({"a": [1.0], "b": [2.0]})
    table.update({"c": [3.0]})
    assert table.pop("a").item() == 1.0 and table.get("a") is None
    assert [(n, p.item()) for n, p in table.items()] == [("b", 2.0), ("c", 3.0)]
    heads = nn.ModuleDict({"a": nn.ReLU()})
    assert type(heads.pop("a")) is nn.ReLU and not len(heads)
    assert len(nn.ParameterList([[1.0]]).extend([[2.0], [3.0]])) == 3


def test_programs_see_containers_that_change() -> None:
    weights = nn.ParameterDict({"a": [1.0]})
    run = cb.jit(lambda x: sum(x * p for p in weights.values()))
    assert run(cb.tensor([2.0])).item() == 2.0
    weights["b"] = [10.0]
    assert run(cb.tensor([2.0])).item() == 22.0
