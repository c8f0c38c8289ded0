"""Parametrized tensors: values, gradients, programs, copies, states of other names, removal."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from cubepy.nn.utils.parametrize import (
    cached,
    is_parametrized,
    register_parametrization,
    remove_parametrizations,
)

RNG = np.random.default_rng(0)


class Scaled(nn.Module):
    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Any) -> Any:
        return x * self.by

    def right_inverse(self, x: Any) -> Any:
        return x / self.by


def norm_of(v: np.ndarray, dim: int | None) -> np.ndarray:
    axes = None if dim is None else tuple(k for k in range(v.ndim) if k != dim % v.ndim)
    return np.sqrt((v * v).sum(axis=axes, keepdims=dim is not None))


@pytest.mark.parametrize("dim", [0, 1, -1, None])
@pytest.mark.parametrize("layer", [nn.Linear(3, 4), nn.Conv2d(2, 3, 3)])
def test_weights_of_learned_lengths(layer: Any, dim: int | None) -> None:
    layer = copy.deepcopy(layer).double()
    first = layer.weight.detach().numpy().copy()
    names = ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    assert list(weight_norm(layer, dim=dim).state_dict()) == names
    np.testing.assert_allclose(layer.weight.detach().numpy(), first, rtol=1e-14)
    g, v = (getattr(layer.parametrizations.weight, f"original{n}") for n in (0, 1))
    assert g.shape == norm_of(first, dim).shape
    upper = RNG.standard_normal(first.shape)
    (layer.weight * cb.tensor(upper)).sum().backward()
    n = norm_of(first, dim)
    axes = None if dim is None else tuple(k for k in range(first.ndim) if k != dim % first.ndim)
    inner = (upper * first / n).sum(axis=axes, keepdims=dim is not None)
    np.testing.assert_allclose(g.grad.numpy(), inner, rtol=1e-10)
    np.testing.assert_allclose(v.grad.numpy(), upper - first / n * inner, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("program", [False, True])
def test_weights_over_their_largest_singular_value(program: bool) -> None:
    layer = spectral_norm(nn.Linear(5, 4).double(), n_power_iterations=2)
    own = layer.parametrizations.weight
    assert list(layer.state_dict())[1:] == [
        f"parametrizations.weight.{name}" for name in ("original", "0._u", "0._v")
    ]
    run = cb.jit(lambda x: layer(x)) if program else layer
    w, u, v = own.original.detach().numpy(), own[0]._u.numpy(), own[0]._v.numpy()
    x = RNG.standard_normal((3, 5))
    for _ in range(3):
        for _ in range(2):
            u = w @ v / np.linalg.norm(w @ v)
            v = w.T @ u / np.linalg.norm(w.T @ u)
        want = x @ (w / (u @ w @ v)).T + layer.bias.detach().numpy()
        np.testing.assert_allclose(run(cb.tensor(x)).detach().numpy(), want, rtol=1e-11)
    np.testing.assert_allclose(own[0]._u.numpy(), u, rtol=1e-12)
    layer.eval()
    before = own[0]._u.numpy().copy()
    layer(x)
    np.testing.assert_array_equal(own[0]._u.numpy(), before)
    assert spectral_norm(nn.ConvTranspose1d(3, 4, 2)).parametrizations.weight[0].dim == 1
    assert abs(np.linalg.norm(spectral_norm(nn.PReLU(3)).weight.detach().numpy()) - 1) < 1e-6


def test_a_training_step_changes_what_is_learned() -> None:
    made = []
    for program in (False, True):
        nn.init.manual_seed(0)
        net = nn.Sequential(weight_norm(nn.Linear(3, 4)), nn.Tanh(), spectral_norm(nn.Linear(4, 2)))
        optimizer = nn.optim.Adam(net.parameters(), lr=0.1)

        def step(x: Any, net: Any = net, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward()
            optimizer.step()

        run = cb.jit(step) if program else step
        x = cb.tensor(np.random.default_rng(1).standard_normal((8, 3)).astype(np.float32))
        for _ in range(6):
            run(x)
        made.append(net.state_dict())
        assert not program or sum(run.traces.values()) <= 2
    for name, value in made[0].items():
        np.testing.assert_allclose(made[1][name].numpy(), value.numpy(), rtol=1e-4, atol=1e-6)


def test_copies_and_pickles_are_parametrized_alone() -> None:
    net = nn.Sequential(weight_norm(nn.Linear(3, 4)))
    x = np.ones((1, 3), np.float32)
    for other in (copy.deepcopy(net), net.clone(), pickle.loads(pickle.dumps(net))):
        assert is_parametrized(other[0], "weight") and type(other[0]).__name__ == (
            "ParametrizedLinear"
        )
        np.testing.assert_array_equal(other(x).numpy(), net(x).numpy())
        nn.init.zeros_(other[0].parametrizations.weight.original0)
        assert not other[0].weight.detach().numpy().any() and net[0].weight.detach().numpy().any()


@pytest.mark.parametrize(
    ("make", "older"),
    [
        (weight_norm, {"weight_g": "original0", "weight_v": "original1"}),
        (spectral_norm, {"weight_orig": "original", "weight_u": "0._u", "weight_v": "0._v"}),
    ],
)
def test_older_names_of_torch_are_read(make: Any, older: dict[str, str]) -> None:
    def net() -> Any:
        return nn.Sequential(make(nn.Linear(3, 4)), nn.Linear(4, 2))

    source, target = net(), net()
    state = source.state_dict()
    renamed = {
        **{name: value for name, value in state.items() if "parametrizations" not in name},
        **{f"0.{old}": state[f"0.parametrizations.weight.{new}"] for old, new in older.items()},
    }
    for given in (renamed, state):
        assert target.load_state_dict(given) == ([], [])
        np.testing.assert_array_equal(
            target.eval()[0].weight.detach().numpy(), source.eval()[0].weight.detach().numpy()
        )
    weight = nn.Linear(3, 4)
    remove_parametrizations(target[0], "weight")
    assert list(target[0].state_dict()) == ["weight", "bias"] == list(weight.state_dict())


def test_several_parametrizations_and_assignment() -> None:
    layer = nn.Linear(2, 2)
    first = layer.weight.detach().numpy().copy()
    register_parametrization(layer, "weight", Scaled(2.0))
    register_parametrization(layer, "weight", Scaled(5.0))
    np.testing.assert_allclose(layer.parametrizations.weight.original.detach().numpy(), first / 10)
    layer.weight = cb.tensor(np.eye(2, dtype=np.float32))
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.eye(2))
    np.testing.assert_allclose(
        layer.parametrizations.weight.original.detach().numpy(), np.eye(2) / 10, rtol=1e-6
    )
    with cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight
    remove_parametrizations(layer, "weight", leave_parametrized=False)
    np.testing.assert_allclose(layer.weight.detach().numpy(), np.eye(2) / 10, rtol=1e-6)
    assert type(layer) is nn.Linear and layer.weight.requires_grad


def test_wrong_parametrizations_are_refused_and_leave_the_module() -> None:
    class Narrow(nn.Module):
        def forward(self, x: Any) -> Any:
            return x[:1]

    class Half(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.astype("f16")

    layer = nn.Linear(2, 2)
    for wrong, error in ((Narrow(), ShapeError), (Half(), DTypeError)):
        with pytest.raises(error, match="the parametrization gives"):
            register_parametrization(layer, "weight", wrong)
        assert type(layer) is nn.Linear
    assert register_parametrization(layer, "weight", Half(), unsafe=True).weight.dtype == cb.f16
    with pytest.raises(ArgumentError, match="has no tensor 'scale'"):
        register_parametrization(layer, "scale", Half())
    with pytest.raises(ArgumentError, match="a parametrization is a module, not 3"):
        register_parametrization(layer, "bias", 3)
    with pytest.raises(ArgumentError, match="bias of .* has no parametrization"):
        remove_parametrizations(layer, "bias")
    with pytest.raises(ArgumentError, match="several tensors are learned"):
        remove_parametrizations(weight_norm(nn.Linear(2, 2)), "weight", leave_parametrized=False)


def test_batch_norms_of_old_files_have_no_count() -> None:
    layer = nn.BatchNorm1d(2)
    state = {k: v for k, v in layer.state_dict().items() if k != "num_batches_tracked"}
    assert nn.Sequential(layer).load_state_dict({f"0.{k}": v for k, v in state.items()}) == ([], [])


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (5, 2), (2, 5)])
def test_a_weight_stays_orthogonal(rows: int, columns: int) -> None:
    layer = orthogonal(nn.Linear(columns, rows))
    optimizer = nn.optim.SGD(layer.parameters(), lr=0.5)
    x, first = cb.tensor(np.random.default_rng(0).normal(size=(4, columns))), layer.weight.numpy()
    for _ in range(5):
        optimizer.zero_grad()
        (layer(x.float()) ** 2).sum().backward()
        optimizer.step()
    weight = layer.weight.detach().numpy()
    product = weight @ weight.T if rows <= columns else weight.T @ weight
    np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-5)
    assert abs(weight - first).max() > 0.01
    other = orthogonal(nn.Linear(columns, rows))
    other.load_state_dict(layer.state_dict())
    np.testing.assert_array_equal(other.weight.numpy(), weight)
    with pytest.raises(ArgumentError, match="cayley"):
        orthogonal(nn.Linear(2, 2), orthogonal_map="householder")


def test_hooks_of_states() -> None:
    model, seen = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)), list[Any]()
    removal = model[0].register_state_dict_pre_hook(lambda m, p, keep: seen.append((m, p)))
    model.register_state_dict_post_hook(lambda m, state, p, meta: state.update(version=1))
    state = model.state_dict()
    assert seen == [(model[0], "0.")] and state.pop("version") == 1

    def rename(module: Any, state: Any, prefix: str, *more: Any) -> None:
        state[f"{prefix}weight"] = state.pop(f"{prefix}kernel")

    model[1].register_load_state_dict_pre_hook(rename)
    state["1.kernel"] = state.pop("1.weight")
    del state["1.bias"]
    model.register_load_state_dict_post_hook(lambda m, found: found.missing_keys.clear())
    names = list(state)
    assert model.load_state_dict(state, strict=False).missing_keys == []
    assert list(state) == names  # hooks got a copy
    removal.remove()
    copied = model.clone()
    assert copied.state_dict()["version"] == 1 and len(seen) == 1
