"""Gradients that were traced before are recorded again: the same graph, node by node, as rules give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F
from cubepy.tensor.gradients import retraced
from tests.tensor.program.plans.test_repeated_nodes import count_again

WIDTH = 4
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": lambda x: x.tanh()}
LAYERS = st.sampled_from(
    ["linear", "plain", "frozen", "norm", "unscaled", "rms", "group", "shared", "detached", "twice"]
)


def layer(kind: str, shared: nn.Module) -> Any:
    """A function of (rows, `WIDTH`) tensors, and the modules that it has."""
    if kind == "shared":
        return shared
    if kind in ("linear", "plain", "frozen", "detached"):
        made: Any = nn.Linear(WIDTH, WIDTH, bias=kind != "plain")
        if kind == "frozen":
            made.weight.requires_grad_(False)
        if kind == "detached":
            return nn.Sequential(made, _Detached())
        return made
    if kind == "twice":
        return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), _Doubled())
    if kind == "norm":
        return nn.LayerNorm(WIDTH)
    if kind == "unscaled":
        return nn.LayerNorm(WIDTH, elementwise_affine=False)
    if kind == "rms":
        return nn.RMSNorm(WIDTH)
    return nn.GroupNorm(2, WIDTH)


class _Detached(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + x.detach()


class _Doubled(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * x


def network(kinds: list[str], activation: str) -> tuple[Any, list[Any]]:
    """A function of layers with the same first values each time, and its parameters."""
    shared = nn.LayerNorm(WIDTH)
    layers = nn.Sequential(*(layer(kind, shared) for kind in kinds))
    rng = np.random.default_rng(3)
    with cb.no_grad():
        for p in layers.parameters():
            p.assign_(cb.tensor(rng.standard_normal(p.shape).astype(np.float32)))

    def forward(x: Any) -> Any:
        for one in layers:
            x = ACTIVATIONS[activation](one(x))
        return (x**2).mean()

    return forward, [p for p in layers.parameters() if p.value.needs_grad]


def step_of(kinds: list[str], activation: str) -> Any:
    """A training step that gives the loss and the gradients of the parameters."""
    forward, parameters = network(kinds, activation)

    def step(x: Any) -> Any:
        loss = forward(x)
        if not parameters:
            return [loss]
        loss.backward()
        found = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        return [loss, *found]

    return cb.jit(step)


def twice_of(kinds: list[str], activation: str) -> Any:
    """The gradient of a sum of squares of a gradient."""
    forward, _ = network(kinds, activation)
    return cb.jit(cb.grad(lambda x: (cb.grad(forward)(x) ** 2).sum()))


def seen(step: Any, x: np.ndarray) -> tuple[list[str], list[bytes]]:
    """The graph that was traced, and the results of it."""
    made = step(cb.tensor(x))
    results = [t.numpy().tobytes() for t in (made if type(made) is list else [made])]
    programs = [p for variants in step.programs.values() for p in variants]
    assert programs
    return [str(p.writer.trace.graph) for p in programs], results


@pytest.mark.parametrize("of", [step_of, twice_of])
def test_equal_layers_are_recorded_again(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, kinds = count_again(monkeypatch, retraced), ["norm", "linear"] * 4
    x = np.random.default_rng(0).standard_normal((6, WIDTH)).astype(np.float32)
    found = seen(of(kinds, "gelu"), x)
    assert (counted[0] > 5) == (of is step_of)  # those that have gradients are not
    monkeypatch.setattr(retraced, "FOLLOWS", set())
    assert seen(of(kinds, "gelu"), x) == found


@settings(max_examples=6, deadline=None)
@given(
    st.lists(LAYERS, min_size=2, max_size=6),
    st.sampled_from([(3, WIDTH), (1, WIDTH), (WIDTH, WIDTH), (2, WIDTH, WIDTH), (2, WIDTH, 4)]),
    st.sampled_from(sorted(ACTIVATIONS)),
    st.sampled_from([step_of, twice_of]),
)
def test_random_layers_are_traced_as_rules_trace_them(
    kinds: list[str], shape: tuple[int, ...], activation: str, of: Any
) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    found, before = [], retraced.FOLLOWS
    for follows in (before, set()):
        retraced.FOLLOWS = follows
        try:
            found.append(seen(of(kinds, activation), x))
        finally:
            retraced.FOLLOWS = before
    assert found[0] == found[1]
