"""Hooks of modules, short conversions, and batch norms that keep no running values."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def test_hooks_see_outputs_and_may_change_them() -> None:
    layer, seen = nn.Linear(3, 2), []
    plain = layer(X).numpy()
    look = layer.register_forward_hook(lambda m, args, out: seen.append((m, args[0].shape)))
    double = layer.register_forward_hook(lambda m, args, out: out * 2)
    assert np.array_equal(layer(X).numpy(), plain * 2)
    look.remove()
    double()
    assert np.array_equal(layer(X).numpy(), plain)
    assert seen == [(layer, (5, 3))]
    with pytest.raises(ArgumentError, match=r"function of \(module, args, output\), not 3"):
        layer.register_forward_hook(3)


def test_copies_have_the_hooks_of_then() -> None:
    layer, seen = nn.Linear(3, 2), []
    handle = layer.register_forward_hook(lambda m, args, out: seen.append(m))
    others = [layer.clone(), copy.deepcopy(layer)]
    handle.remove()
    layer(X)
    for other in others:
        other(X)
    assert [id(m) for m in seen] == [id(m) for m in others]


def test_a_hook_is_seen_by_programs() -> None:
    layer = nn.Linear(3, 2)
    program = cb.jit(layer)
    x = cb.tensor(X)
    plain = program(x).numpy()
    handle = layer.register_forward_hook(lambda m, args, out: out + 1)
    np.testing.assert_allclose(program(x).numpy(), plain + 1, rtol=1e-6)
    handle.remove()
    assert np.array_equal(program(x).numpy(), plain)


@pytest.mark.parametrize(
    ("name", "dtype"), [("half", "f16"), ("bfloat16", "bf16"), ("double", "f64"), ("float", "f32")]
)
def test_short_conversions(name: str, dtype: str) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    assert getattr(net, name)() is net
    assert {value.dtype.name for value in net.state_dict().values()} == {dtype, "i64"}
    assert net.cpu()[0].weight.dtype.name == dtype


@pytest.mark.parametrize("program", [False, True])
def test_batch_norms_without_running_values(program: bool) -> None:
    norm: Any = nn.BatchNorm1d(3, track_running_stats=False)
    assert set(norm.state_dict()) == {"weight", "bias"} and norm.running_mean is None
    right = (X - X.mean(axis=0)) / np.sqrt(X.var(axis=0) + 1e-5)
    for _ in range(2):
        run = cb.jit(norm) if program else norm
        np.testing.assert_allclose(run(cb.tensor(X)).numpy(), right, atol=1e-5)
        norm.eval()
    assert "track_running_stats=False" in repr(norm)


def test_running_means_of_weights() -> None:
    mean, new = nn.Parameter(X.copy()), cb.tensor(X * 3)
    with cb.no_grad():
        assert mean.lerp_(new, 0.25) is mean
    np.testing.assert_allclose(mean.numpy(), X * 1.5, rtol=1e-6)
