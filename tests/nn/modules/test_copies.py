"""Copies of models: what they hold is their own, whatever attributes it is held by."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import DTypeError, GradientError
from tests.backends.hip.emulator.device import emulated

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2)


class Programmed(nn.Module):
    """Has its forward as a program, and its layers in a list as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.layers = [self.first, {"second": self.second}]
        self.turn = (functools.partial(self.apart, 2.0),)
        self.fast = cb.jit(self.computed)

    def apart(self, factor: float, x: Any) -> Any:
        return self.second(x) * factor

    def computed(self, x: Any) -> Any:
        return self.turn[0](self.layers[0](x))

    def forward(self, x: Any) -> Any:
        return self.fast(cb.tensor(x))


HOW = {
    "clone": lambda model: model.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@pytest.mark.parametrize("how", HOW)
def test_a_copy_computes_with_its_own_layers(how: str) -> None:
    model = Programmed()
    right = model(X).numpy()
    other = HOW[how](model)
    assert np.array_equal(other(X).numpy(), right)
    assert other.layers[0] is other.first and other.layers[1]["second"] is other.second
    with cb.no_grad():
        other.first.weight.mul_(0.0)
        other.first.bias.mul_(0.0)
        other.second.bias.mul_(0.0)
    assert not other(X).numpy().any()
    assert np.array_equal(model(X).numpy(), right)


@pytest.mark.parametrize("how", HOW)
def test_a_copy_of_a_model_on_a_gpu_is_there_and_its_own(how: str) -> None:
    """With gradients, the states of an optimizer, packed weights, and a matrix that is shared."""
    with emulated("gfx1100"):
        model = nn.Sequential(nn.Linear(32, 8), nn.Linear(8, 8), nn.Linear(8, 8)).to("gfx1100")
        model[2].weight = model[1].weight
        x = cb.tensor(np.ones((2, 32), np.float32), device="gfx1100")
        optimizer = nn.optim.Adam(model.parameters())
        model(x).sum().backward()
        optimizer.step()
        packed = cb.quant.quantize(model, measure_speed=False).model
        for one in (model, packed):
            right = one(x).numpy()
            other = HOW[how](one)
            assert other[2].weight is other[1].weight
            assert all(p.device == x.device for p in other.parameters())
            with cb.no_grad():
                other[0].bias.add_(1.0)
            assert np.array_equal(one(x).numpy(), right)
            assert not np.array_equal(other(x).numpy(), right)
        states = copy.deepcopy(optimizer.state_dict())
        assert states["state"][0]["exp_avg"].device == x.device


def test_a_model_that_calls_its_layers_by_a_program_is_quantized() -> None:
    model = Programmed().eval()
    result = cb.quant.quantize(model, "int8", measure_speed=False).model
    assert result.layers[0].weight.storage.kind == "quantized"
    assert not np.array_equal(result(X).numpy(), model(X).numpy())


def test_a_list_that_holds_itself_is_left_alone() -> None:
    model = Programmed()
    model.around = [1]
    model.around.append(model.around)
    assert model.clone().around is model.around


@cb.jit
def doubled(x: Any) -> Any:
    return x * 2


def test_programs_are_copied_and_pickled_without_what_was_traced() -> None:
    program = cb.jit(nn.Linear(2, 2))
    right = program(cb.tensor(X)).numpy()
    for other in (copy.deepcopy(program), pickle.loads(pickle.dumps(program))):
        assert not other.programs
        assert np.array_equal(other(cb.tensor(X)).numpy(), right)
    assert pickle.loads(pickle.dumps(doubled)) is doubled


def test_integers_are_no_floats_to_convert_a_module_to() -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight.numpy().copy()
    with pytest.raises(DTypeError, match=r"float dtype, not to i8(.|\n)*quantize"):
        layer.to("int8")
    assert np.array_equal(layer.weight.numpy(), before)


def test_packed_weights_follow_the_dtype_of_their_model() -> None:
    model = nn.Sequential(nn.Linear(32, 8)).eval()
    x = cb.tensor(np.ones((2, 32), np.float32)).astype("f16")
    late = cb.quant.quantize(model, measure_speed=False).model.to("f16")
    assert late(x).dtype is cb.f16
    assert late[0].weight.storage.kind == "quantized" and late[0].weight.dtype is cb.f16


def test_packed_weights_do_not_learn() -> None:
    model = cb.quant.quantize(nn.Sequential(nn.Linear(32, 8)), measure_speed=False).model
    model.requires_grad_()
    optimizer = nn.optim.Adam(model.parameters(), lr=0.1)
    before = model[0].bias.numpy().copy()
    model(np.ones((2, 32), np.float32)).sum().backward()
    optimizer.step()
    assert model[0].weight.grad is None
    assert not np.array_equal(model[0].bias.numpy(), before)
    with pytest.raises(GradientError, match=r"stays as it is(.|\n)*adapters"):
        model[0].weight.requires_grad_()


def test_packed_weights_are_kept_as_states_are() -> None:
    """`{name: value.clone()}` is how training keeps the best state."""
    model = cb.quant.quantize(nn.Sequential(nn.Linear(32, 8)), measure_speed=False).model
    x = np.ones((2, 32), np.float32)
    right = model(x).numpy()
    best = {name: value.clone() for name, value in model.state_dict().items()}
    with cb.no_grad():
        model[0].bias.add_(1.0)
    model.load_state_dict(best)
    assert np.array_equal(model(x).numpy(), right)
