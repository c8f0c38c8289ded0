"""`cb.checkpoint`: what is computed again for gradients is what was computed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, GradientError
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, record

RNG = np.random.default_rng(4)


def some(*shape: int, dtype: Any = np.float32) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape).astype(dtype))


class Block(nn.Module):
    """A block of a small GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).reshape(n, length, 3, self.heads, width // self.heads)
        q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, keep: bool) -> None:
        super().__init__()
        nn.init.manual_seed(1)
        self.tokens, self.keep = nn.Embedding(50, width), keep
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x) if self.keep else cb.checkpoint(block, x)
        return self.head(x)


def step_of(net: GPT) -> Callable[[Tensor], Tensor]:
    parameters = list(net.parameters())

    def step(tokens: Tensor) -> Tensor:
        for p in parameters:
            p.grad = None
        n, length = tokens.shape
        loss = F.cross_entropy(net(tokens).reshape(n * length, 50), tokens.reshape(n * length))
        loss.backward()
        return loss

    return step


def tokens(n: int, length: int) -> Tensor:
    return cb.tensor(RNG.integers(0, 50, (n, length)))


@pytest.mark.parametrize("jit", [False, True])
def test_losses_and_gradients_of_a_gpt_are_those_without(jit: bool) -> None:
    kept, again = GPT(16, 2, 3, True), GPT(16, 2, 3, False)
    steps = [step_of(kept), step_of(again)]
    if jit:
        steps[1] = cb.jit(steps[1])
    for _ in range(5):
        given = tokens(2, 8)
        losses = [step(given).numpy() for step in steps]
        np.testing.assert_array_equal(*losses)
        for one, other in zip(kept.parameters(), again.parameters(), strict=True):
            np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-6, atol=1e-7)
    if jit:
        assert "one call of machine code" in steps[1].explain()
        assert sum(steps[1].traces.values()) == 1


def peak(step: Callable[[Tensor], Any], given: Tensor) -> int:
    """Bytes of the pool at most during a step, beyond what is there before and after."""
    step(given)
    gc.collect()
    from cubepy.runtime.memory.pool import host_pool

    stats = host_pool.stats
    before, stats.peak = stats.in_use, stats.in_use
    step(given)
    return stats.peak - before


def test_a_step_of_a_gpt_needs_less_than_two_fifths_of_the_memory() -> None:
    given, bytes_of = tokens(8, 64), []
    for keep in (True, False):
        net = GPT(128, 4, 8, keep)
        bytes_of.append(peak(step_of(net), given))
    assert 0 < bytes_of[1] <= 0.4 * bytes_of[0]


def test_a_program_needs_less_memory_too() -> None:
    given, arenas = tokens(8, 64), []
    for keep in (True, False):
        program = cb.jit(step_of(GPT(128, 4, 8, keep)))
        for _ in range(8):
            program(given)
        ((made,),) = program.programs.values()
        assert made.operands is not None
        arenas.append(made.operands.arena)
    assert 0 < arenas[1] <= 0.4 * arenas[0]


def test_every_op_runs_twice_and_no_more() -> None:
    x = some(3, 4).requires_grad_()
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.append(x)
        return (x.exp() * x).tanh()

    with record() as recorder:
        cb.checkpoint(function, x).sum().backward()
    ran = [node.op for _, node in recorder._nodes]
    assert [ran.count(op) for op in ("exp", "tanh")] == [2, 2]
    assert len(seen) == 1  # the ops run again, not the function


def test_what_lies_between_is_let_go() -> None:
    x = some(256, 256).requires_grad_()
    gc.collect()
    before = cb.memory_stats("cpu").in_use
    y = cb.checkpoint(lambda x: x.exp().tanh().exp().tanh(), x)
    assert cb.memory_stats("cpu").in_use - before == y.nbytes


def test_dropout_drops_the_same_elements_again_and_its_generator_moves_on_once() -> None:
    grads, states = [], []
    for keep in (True, False):
        generator = cb.Generator(7)
        x = cb.tensor(np.linspace(1, 2, 64, dtype=np.float32), requires_grad=True)
        function = lambda x: generator.dropout(x * x, 0.5) * generator.uniform((64,))
        y = function(x) if keep else cb.checkpoint(function, x)
        generator.uniform((5,))  # whatever happens before the gradients
        y.sum().backward()
        grads.append(x.grad.numpy())
        states.append(generator.state.tolist())
    np.testing.assert_array_equal(*grads)
    assert states[0] == states[1]


def test_values_are_those_of_the_call_whatever_is_assigned_since() -> None:
    w = cb.tensor([2.0, 3.0], requires_grad=True)
    x = cb.tensor([1.0, 4.0], requires_grad=True)
    y = cb.checkpoint(lambda x: (x * w * w).sum(), x)
    with cb.no_grad():
        w.assign_([100.0, 100.0])
    y.backward()
    assert x.grad.tolist() == [4.0, 9.0]


def test_results_may_be_trees_of_which_some_need_no_gradient() -> None:
    x = some(3, 4).requires_grad_()

    def function(x: Tensor, more: dict[str, Tensor]) -> Any:
        values, indices = (x * more["w"]).topk(2)
        return {"v": values, "i": [indices, x, 3], "s": (x.detach() * 2, more["w"].exp())}

    found = []
    for run in (function, lambda *args: cb.checkpoint(function, *args)):
        x.grad, w = None, cb.tensor(np.full((4,), 0.5, np.float32), requires_grad=True)
        tree = run(x, {"w": w})
        assert tree["i"][1] is x and tree["i"][2] == 3
        assert not tree["s"][0].requires_grad
        (tree["v"].sum() * 2 + tree["s"][1].sum()).backward()
        found.append([tree["i"][0].numpy(), x.grad.numpy(), w.grad.numpy()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_do_not_go_through_what_was_detached_inside() -> None:
    def function(x: Tensor) -> Tensor:
        with cb.no_grad():
            y = x * 3
        return x * x.detach() * y

    for run in (function, cb.jit(function)):
        x = cb.tensor([1.0, 2.0], requires_grad=True)
        cb.checkpoint(run, x).sum().backward()
        assert x.grad.tolist() == [3.0, 12.0]


def test_second_and_third_derivatives() -> None:
    function = lambda x, w: ((x * w).sin() * x).sum()
    kept = lambda x, w: cb.checkpoint(function, x, w)
    x, w = some(5, dtype=np.float64), some(5, dtype=np.float64)
    both = lambda f: cb.grad(lambda x, w: cb.grad(f)(x, w).sum(), 1)
    np.testing.assert_allclose(both(kept)(x, w).numpy(), both(function)(x, w).numpy(), rtol=1e-12)
    third = lambda f: cb.grad(lambda x: cb.grad(lambda x: cb.grad(f)(x, w).sum())(x).sum())(x)
    np.testing.assert_allclose(third(kept).numpy(), third(function).numpy(), rtol=1e-12)


def test_inputs_that_depend_on_each_other() -> None:
    for create in (False, True):
        x = cb.tensor([2.0], requires_grad=True)
        y = x * x
        z = cb.checkpoint(lambda x, y: x * y, x, y)
        z.sum().backward(create_graph=create)
        assert x.grad.tolist() == [12.0]


def test_checkpoints_within_checkpoints() -> None:
    inner = lambda x: cb.checkpoint(lambda x: x.exp().tanh(), x) * x
    x = some(4).requires_grad_()
    grads = []
    for function in (lambda x: inner(inner(x)), lambda x: cb.checkpoint(inner, inner(x))):
        x.grad = None
        cb.checkpoint(function, x).sum().backward()
        grads.append(x.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-6)
    x.grad = None
    y = x.exp().tanh() * x
    (y.exp().tanh() * y).sum().backward()
    np.testing.assert_allclose(grads[0], x.grad.numpy(), rtol=1e-6)


def test_running_values_move_once() -> None:
    nets = [nn.BatchNorm1d(3) for _ in range(2)]
    x = some(6, 3).requires_grad_()
    nets[0](x).sum().backward()
    cb.checkpoint(nets[1], x).sum().backward()
    np.testing.assert_array_equal(*[net.running_mean.numpy() for net in nets])
    assert nets[1].num_batches_tracked.item() == 1


def test_without_gradients_it_is_the_function() -> None:
    with cb.no_grad():
        assert not cb.checkpoint(lambda x: x * 2, some(2).requires_grad_()).requires_grad
    assert cb.checkpoint(lambda: 3) == 3
    x = some(2)
    assert cb.checkpoint(lambda x: x, x) is x


def test_what_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"cb.checkpoint takes a function, not Tensor"):
        cb.checkpoint(some(2), some(2))
    x = some(2).requires_grad_()
    y = cb.checkpoint(lambda x: x.exp(), x)
    y.sum().backward()
    with pytest.raises(GradientError, match="walked already"):
        y.sum().backward()
