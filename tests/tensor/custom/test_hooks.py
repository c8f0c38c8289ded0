"""Hooks on the way back: of tensors that were computed, of leaves, of modules and of optimizers."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, GradientError
from cubepy.tensor.custom import hooks

RNG = np.random.default_rng(0)
A, B, W = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4)), RNG.standard_normal((4, 2))


def leaf(a: np.ndarray) -> Any:
    return cb.tensor(a, requires_grad=True)


def test_each_hook_gets_the_whole_gradient_and_what_the_one_before_made_of_it() -> None:
    x, seen = leaf(A), list[Any]()
    h = x @ cb.tensor(W)
    h.register_hook(lambda g: seen.append(g.numpy()))
    h.register_hook(lambda g: g * 2)
    h.register_hook(lambda g: g + 1)
    (h.sum() + (h * h).sum()).backward()
    whole = 1 + 2 * (A @ W)
    np.testing.assert_allclose(seen[0], whole)
    np.testing.assert_allclose(x.grad.numpy(), (2 * whole + 1) @ W.T)


def test_of_several_results_each_has_its_own() -> None:
    x = leaf(A)
    values, _ = x.topk(2, -1)
    values.register_hook(lambda g: g * 3)
    values.sum().backward()
    assert x.grad.sum().item() == 3 * 2 * len(A)


def test_a_hook_of_a_leaf_is_called_before_and_another_one_after_its_gradient_grows() -> None:
    x, seen = leaf(A), list[Any]()
    known = id(x)
    before = x.register_hook(lambda g: g * 5)
    x.register_post_accumulate_grad_hook(
        lambda t: seen.append((id(t) == known, t.grad.numpy().copy()))
    )
    (x * x).sum().backward()
    before.remove()
    (x * x * x).sum().backward()
    assert [same for same, _ in seen] == [True, True]
    np.testing.assert_allclose(seen[0][1], 10 * A)
    np.testing.assert_allclose(seen[1][1], 10 * A + 3 * A * A)
    key = known, "after"
    assert key in hooks._of_leaves
    del x, before
    seen.clear()
    gc.collect()
    assert key not in hooks._of_leaves


def test_gradients_of_gradients_go_through_hooks() -> None:
    x = leaf(A)
    y = x * x
    handle = y.register_hook(lambda g: g * g)
    (y * y).sum().backward(create_graph=True)  # (2 y)^2 2 x = 8 x^5
    first = x.grad
    handle.remove()
    x.grad = None
    first.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 40 * A**4, rtol=1e-12)


def test_kept_gradients_of_what_was_computed() -> None:
    x = leaf(A)
    h, other = x * 2, x * 3
    h.retain_grad()
    h.register_hook(lambda g: g * 10)
    assert h.retains_grad and not other.retains_grad and not x.retains_grad
    (h * other).sum().backward(retain_graph=True)
    np.testing.assert_allclose(h.grad.numpy(), 30 * A)
    assert other.grad is None
    (h * other).sum().backward()
    np.testing.assert_allclose(h.grad.numpy(), 60 * A)


def test_what_has_no_gradient_and_what_is_no_hook_are_refused() -> None:
    plain, x = cb.tensor(A), leaf(A)
    for call in (
        lambda: plain.register_hook(print),
        plain.retain_grad,
        lambda: (x * 2).register_post_accumulate_grad_hook(print),
    ):
        with pytest.raises(GradientError):
            call()
    with pytest.raises(ArgumentError):
        x.register_hook(3)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(GradientError, match="None or another one"):
        (x * 2).sum().backward()


def layer() -> Any:
    made: Any = nn.Linear(4, 2).double()
    made.load_state_dict({"weight": W.T.copy(), "bias": W[0]})
    return made


def test_modules_have_their_gradients_and_may_give_others() -> None:
    m, x, seen = layer(), leaf(A), list[Any]()
    m.register_full_backward_pre_hook(lambda m, out: (out[0] + 1,))
    m.register_full_backward_hook(lambda m, given, out: seen.extend([*given, *out]))
    m.register_full_backward_hook(lambda m, given, out: (given[0] * 2,))
    (m(x) ** 2).sum().backward()
    out = 2 * (A @ W + W[0]) + 1
    np.testing.assert_allclose(seen[1].numpy(), out)
    np.testing.assert_allclose(seen[0].numpy(), out @ W.T)
    np.testing.assert_allclose(x.grad.numpy(), 2 * out @ W.T)
    np.testing.assert_allclose(m.weight.grad.numpy(), out.T @ A)


def test_modules_of_several_arguments_and_results() -> None:
    class Both(nn.Module):
        def forward(self, a: Any, k: float, b: Any) -> Any:
            return a * b * k, a + b

    m, x, y, seen = Both(), leaf(A), leaf(B), list[Any]()
    m.register_full_backward_hook(lambda m, given, out: seen.append((given, out)))
    product, total = m(x, 3.0, y)
    (product.sum() + (total * total).sum()).backward()
    ((by_a, by_k, by_b), (by_product, by_total)) = seen[0]
    assert by_k is None and (by_product.numpy() == 1).all()
    np.testing.assert_allclose(by_total.numpy(), 2 * (A + B))
    np.testing.assert_allclose(by_a.numpy(), 3 * B + 2 * (A + B))
    np.testing.assert_allclose(x.grad.numpy(), by_a.numpy())
    np.testing.assert_allclose(y.grad.numpy(), by_b.numpy())


def test_modules_whose_inputs_need_no_gradient() -> None:
    m, seen = layer(), list[Any]()
    m.register_full_backward_hook(lambda m, given, out: seen.append((given, out[0].numpy())))
    m(cb.tensor(A)).sum().backward()
    assert seen[0][0] == (None,) and (seen[0][1] == 1).all()
    with cb.no_grad():
        m(cb.tensor(A))
    assert len(seen) == 1


def test_programs_have_the_hooks_that_there_are() -> None:
    m, x = layer(), cb.tensor(A)

    @cb.jit
    def gradient(x: Any) -> Any:
        m.zero_grad()
        (m(x) ** 2).sum().backward()
        return m.weight.grad

    def thrice() -> np.ndarray:
        found = [gradient(x).numpy().copy() for _ in range(3)]
        for one in found[1:]:
            np.testing.assert_array_equal(one, found[0])
        return found[0]

    plain = thrice()
    of_weight = m.weight.register_hook(lambda g: g * 2)
    np.testing.assert_allclose(thrice(), 2 * plain)
    of_module = m.register_full_backward_pre_hook(lambda m, out: (out[0] * 3,))
    np.testing.assert_allclose(thrice(), 6 * plain)
    of_weight.remove()
    of_module.remove()
    np.testing.assert_allclose(thrice(), plain)


def test_kept_gradients_in_programs() -> None:
    @cb.jit
    def kept(x: Any) -> Any:
        h = x * x
        h.retain_grad()
        h.register_hook(lambda g: g + 1)
        (h * h).sum().backward()
        return h.grad

    for _ in range(3):
        np.testing.assert_allclose(kept(leaf(A)).numpy(), 2 * A * A + 1)


def test_copies_of_modules_have_the_hooks_of_their_own() -> None:
    m, seen = layer(), list[str]()
    m.register_full_backward_hook(lambda m, given, out: seen.append("both"))
    copy = m.clone()
    copy.register_full_backward_hook(lambda m, given, out: seen.append("copy"))
    m(leaf(A)).sum().backward()
    assert seen == ["both"]
    copy(leaf(A)).sum().backward()
    assert seen == ["both", "both", "copy"]


@pytest.mark.parametrize("kind", [nn.optim.SGD, nn.optim.AdamW, nn.optim.LBFGS])
def test_optimizers_call_hooks_around_each_step(kind: Any) -> None:
    m, seen = layer(), list[Any]()
    optimizer = kind(m.parameters(), lr=0.1)
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append(len(args)))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(o is optimizer))

    def loss() -> Any:
        optimizer.zero_grad()
        found = (m(cb.tensor(A)) ** 2).sum()
        found.backward()
        return found

    optimizer.step(loss)
    assert seen == [1, True]
    before.remove()
    optimizer.step(loss)
    assert seen == [1, True, True]
    optimizer.register_step_pre_hook(lambda o, args, kwargs: args)
    with pytest.raises(ArgumentError, match="args, kwargs"):
        optimizer.step(loss)


def test_programs_have_the_hooks_of_optimizers() -> None:
    m, x = layer(), cb.tensor(A)
    optimizer = nn.optim.SGD(m.parameters(), lr=0.1)

    @cb.jit
    def step(x: Any) -> None:
        optimizer.zero_grad()
        (m(x) ** 2).sum().backward()
        optimizer.step()

    for _ in range(3):
        step(x)
    assert (m.bias.numpy() != 0).all()
    optimizer.register_step_post_hook(lambda *_: m.bias.assign_(m.bias.detach() * 0))
    for _ in range(3):
        step(x)
        assert (m.bias.numpy() == 0).all()
