"""An LSTM that projects its states, all steps in one launch, against its formula: in random shapes,
dtypes and lengths, with its gradients, and however cubes share a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.recurrent.projected import back_cpu, steps_cpu
from cubepy.nn.modules.recurrent import LSTM
from cubepy.tensor.array import apply
from cubepy.tensor.control import projected as ops
from tests.staging import WHERE

pytestmark = pytest.mark.skipif(bool(WHERE), reason="a CPU has the launch")
FORMULAS = {
    True: lambda *given, **how: apply("projected_recurrence", *given, **how),
    False: ops.formula,
}


def drawn(rng: Any, sizes: tuple[int, ...], dtype: Any, lengths: bool) -> list[Any]:
    """Inputs of the op; sizes are steps, sequences, directions, cells, states."""
    steps, batch, directions, wide, narrow = sizes

    def some(*shape: int) -> Any:
        return (rng.standard_normal(shape) * max(shape[-1], 1) ** -0.5).astype(dtype)

    return [
        some(steps, batch, directions * 4 * wide),
        some(directions, 4 * wide, narrow),
        some(directions, narrow, wide),
        rng.integers(0, steps + 1, batch).astype(np.int32) if lengths else None,
        some(directions, batch, narrow),
        some(directions, batch, wide),
    ]


def results(given: list[Any], by: list[Any], reverse: bool, one_launch: bool) -> list[np.ndarray]:
    """What comes out, and the gradients by all that goes in."""
    tensors = [
        None if x is None else cb.tensor(x, requires_grad=x.dtype.kind == "f") for x in given
    ]
    made = FORMULAS[one_launch](*tensors, reverse=reverse)
    total = sum((m * cb.tensor(w)).sum() for m, w in zip(made, by, strict=True) if w is not None)
    total.backward()
    learnt = [t.grad for t in tensors if t is not None and t.requires_grad]
    return [t.detach().numpy() for t in made] + [
        np.zeros(()) if g is None else g.numpy() for g in learnt
    ]


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    ("dtype", "most"), [(np.float64, 1e-12), (np.float32, 1e-5), (np.float16, 2e-2)]
)
def test_states_and_gradients_are_those_of_the_formula(dtype: Any, most: float) -> None:
    rng = np.random.default_rng()
    for turn in range(6):
        steps, batch, directions = (int(rng.integers(1, n)) for n in (9, 9, 3))
        wide = int(rng.choice([2, 7, 16, 33, 70, 130]))
        sizes = steps * bool(turn), batch, directions, wide, int(rng.integers(1, wide))
        given = drawn(rng, sizes, dtype, bool(rng.integers(2)))
        shapes = [(*sizes[:2], directions * sizes[4]), given[4].shape, given[5].shape]
        by = [rng.standard_normal(s).astype(dtype) if rng.random() < 0.7 else None for s in shapes]
        at = int(not sizes[0])  # without steps only states depend on what is given
        by[at] = np.ones(shapes[at], dtype) if all(w is None for w in by[at:]) else by[at]
        by.append(np.ones((*sizes[:2], directions * wide), dtype) if rng.random() < 0.3 else None)
        reverse = bool(rng.integers(2))
        pairs = [results(given, by, reverse, one_launch) for one_launch in (True, False)]
        for found, wanted in zip(*pairs, strict=True):
            scale = max(1, float(np.abs(wanted.astype(np.float64)).max(initial=0)))
            np.testing.assert_allclose(found, wanted, 0, most * scale, err_msg=str(sizes))


@pytest.mark.parametrize("cut", [(1, 1, 2), (3, 1, 3), (2, 2, 2), (1, 4, 1)])
@pytest.mark.parametrize("threads", [1, 3])
def test_results_do_not_depend_on_how_cubes_share_a_step(
    cut: tuple[int, int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor on whether somebody does a slice again, as if another had been held up in it."""
    given = drawn(np.random.default_rng(5), (9, 4, 2, 300, 150), np.float32, True)
    by = [np.ones((9, 4, 300), np.float32), given[4], given[5], None]
    modules = steps_cpu, back_cpu
    for module in modules:
        monkeypatch.setattr(module, "cut_of", lambda *_, **__: (1, 1, 1))
    alone = results(given, by, False, True)
    for module in modules:
        monkeypatch.setattr(module, "cut_of", lambda *_, **__: cut)
    with cb.config.override(num_threads=threads, serial_elements=1):
        for kept in (0, steps_cpu.KEPT):
            for module in modules:
                monkeypatch.setattr(module, "KEPT", kept)
            for found, wanted in zip(results(given, by, False, True), alone, strict=True):
                np.testing.assert_array_equal(found, wanted)


def test_second_gradients_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(2)
    given = drawn(rng, (3, 2, 1, 4, 2), np.float64, False)

    def slope(one_launch: bool) -> np.ndarray:
        tensors = [None if x is None else cb.tensor(x, requires_grad=True) for x in given]
        y = FORMULAS[one_launch](*tensors, reverse=False)[0]
        (first,) = cb.grad_of((y * y).sum(), [tensors[1]], create_graph=True)
        (first * first).sum().backward()
        return tensors[2].grad.numpy()

    np.testing.assert_allclose(slope(True), slope(False), rtol=1e-10)


@pytest.mark.parametrize("learns", [True, False])
def test_layers_are_one_launch(learns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequences of several lengths in both directions, as step by step."""
    net = nn.LSTM(3, 20, 2, bidirectional=True, proj_size=6).requires_grad_(learns)
    rng = np.random.default_rng(1)
    parts = [cb.tensor(rng.standard_normal((n, 3)).astype(np.float32)) for n in (5, 1, 3)]
    packed = nn.utils.rnn.pack_sequence(parts, enforce_sorted=False)
    with monkeypatch.context() as patch:
        patch.setattr(LSTM, "_at_once", lambda *_: None)
        wanted, ends = net(packed)
    monkeypatch.setattr(LSTM, "_step_by_step", None)
    for _ in range(4):  # as a program, from some call on
        found, last = net(packed)
        np.testing.assert_allclose(
            found.data.detach().numpy(), wanted.data.detach().numpy(), atol=1e-6
        )
        for a, b in zip(last, ends, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=1e-6)


def test_weights_that_stay_are_laid_out_once() -> None:
    net = nn.LSTM(7, 40, proj_size=12, bidirectional=True).requires_grad_(False)
    x = cb.tensor(np.random.default_rng(0).standard_normal((9, 3, 7)).astype(np.float32))
    program = cb.jit(lambda x: net(x)[0])
    for _ in range(4):
        np.testing.assert_allclose(program(x).numpy(), net(x)[0].numpy(), atol=1e-6)
    assert "= packed_projected_recurrence" in str(cb.explain(program, x))


def test_what_does_not_go_together() -> None:
    given = drawn(np.random.default_rng(3), (3, 2, 1, 4, 2), np.float32, True)
    for at, part in ((0, given[0][:, :, :8]), (1, given[1][:, :8]), (2, given[2][:, :, :3])):
        wrong = [*given[:at], part, *given[at + 1 :]]
        with pytest.raises(ShapeError, match="of shape .* expected"):
            apply("projected_recurrence", *map(cb.tensor, wrong), reverse=False)
    wrong = [*given[:2], given[2].astype(np.float64), *given[3:]]
    with pytest.raises(DTypeError, match="projection is f64"):
        apply("projected_recurrence", *map(cb.tensor, wrong), reverse=False)
