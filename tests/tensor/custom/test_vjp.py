"""`cb.custom_vjp`: gradients that users give."""

from __future__ import annotations

import gc
import runpy
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, GradientError
from cubepy.tensor import Tensor, empty_like, record
from cubepy.testing import gradcheck, gradgradcheck

RNG = np.random.default_rng(8)


def some(*shape: int) -> Tensor:
    return cb.tensor(RNG.standard_normal(shape), requires_grad=True)


@cb.kernel
def softplus_kernel(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = cb.log(1.0 + cb.exp(x[i]))


@cb.custom_vjp
def softplus(x: Tensor) -> Tensor:
    flat = x.reshape(-1)
    out = empty_like(flat)
    softplus_kernel[cb.over(out)](flat, out)
    return out.reshape(x.shape)


softplus.defvjp(lambda x: (softplus(x), x), lambda x, grad: (grad * x.sigmoid(),))


@cb.custom_vjp
def root(x: Tensor) -> Tensor:
    """Whose gradient is that of a half of it, so that it is known from the formula's."""
    return x.exp().sqrt()


def _root(x: Tensor) -> Any:
    y = x.exp().sqrt()
    return y, y


root.defvjp(_root, lambda y, grad: grad * y / 2)  # what is saved is the result


@cb.custom_vjp
def scaled_pair(pair: Any, factor: float, *, shift: float = 0.0) -> Any:
    a, b = pair["a"], pair["b"]
    return [a * b * factor, (a + shift).sum(), a.argmax()]


def _scaled_pair(pair: Any, factor: float, *, shift: float = 0.0) -> Any:
    a, b = pair["a"], pair["b"]
    product = a * b
    return [product * factor, (a + shift).sum(), a.argmax()], {
        "all": (a, b, factor),
        "n": [product],
    }


def _scaled_pair_gradient(saved: Any, grads: Any) -> Any:
    a, b, factor = saved["all"]
    (product,) = saved["n"]
    by_product, by_sum, by_index = grads
    assert by_index is None
    extra = (product * 0).sum()
    return {"a": by_product * b * factor + by_sum + extra, "b": by_product * a * factor}, None


scaled_pair.defvjp(_scaled_pair, _scaled_pair_gradient)


@pytest.mark.parametrize("f", [softplus, root])
def test_gradients_of_any_order(f: Any) -> None:
    x = some(7)
    assert gradcheck(f, x)
    assert gradgradcheck(f, x)
    third = cb.grad(lambda x: cb.grad(lambda x: cb.grad(lambda x: f(x).sum())(x).sum())(x).sum())
    exact = {
        softplus: lambda s: s * (1 - s) * (1 - 2 * s),
        root: lambda s: (s / (1 - s)).sqrt() / 8,
    }[f](x.detach().sigmoid())
    np.testing.assert_allclose(third(x.detach()).numpy(), exact.numpy(), 1e-12)
    program = cb.jit(third)
    for _ in range(4):
        np.testing.assert_allclose(program(x.detach()).numpy(), exact.numpy(), 1e-12)


def test_trees_numbers_keywords_and_what_was_computed_and_saved() -> None:
    a, b = some(4), some(4)

    def function(a: Tensor, b: Tensor) -> Any:
        product, total, index = scaled_pair({"a": a, "b": b}, 3.0, shift=1.0)
        assert not index.requires_grad
        return product * product, total

    assert gradcheck(function, (a, b))
    assert gradgradcheck(function, (a, b))
    assert gradcheck(cb.jit(function), (a, b))
    with cb.no_grad():
        assert scaled_pair({"a": a, "b": b}, 3.0)[1].item() == pytest.approx(a.sum().item())


@pytest.mark.parametrize("f", [softplus, root])
def test_inside_and_through_programs(f: Any) -> None:
    inside = cb.jit(cb.value_and_grad(lambda x: (f(x * 2) * x).sum()))
    through = cb.jit(lambda x: (f(x * 2) * x).sum())
    for _ in range(4):
        x = some(6)
        wanted = cb.grad(lambda x: (f(x * 2) * x).sum())(x)
        np.testing.assert_array_equal(inside(x.detach())[1].numpy(), wanted.numpy())
        through(x).backward()
        np.testing.assert_allclose(x.grad.numpy(), wanted.numpy(), 1e-14)
    assert "one call of machine code" in inside.explain()
    assert gradgradcheck(through, x)


def test_the_gradient_of_the_user_counts_and_not_that_of_the_ops() -> None:
    @cb.custom_vjp
    def clipped_gradient(x: Tensor) -> Tensor:
        return x * 1

    clipped_gradient.defvjp(lambda x: (x * 1, None), lambda nothing, grad: (grad.clip(-0.5, 0.5),))

    def function(x: Tensor) -> Tensor:
        return (clipped_gradient(x) * cb.tensor([0.1, 3.0, -2.0])).sum()

    x = cb.tensor([1.0, 1.0, 1.0], requires_grad=True)
    wanted = [np.float32(0.1), 0.5, -0.5]
    np.testing.assert_array_equal(cb.grad(function)(x).numpy(), wanted)
    for program in (cb.jit(cb.grad(function)), cb.grad(cb.jit(function))):
        for _ in range(4):
            np.testing.assert_array_equal(program(x.detach()).numpy(), wanted)
    through = cb.jit(function)
    for _ in range(4):
        x.grad = None
        through(x).backward()
        np.testing.assert_array_equal(x.grad.numpy(), wanted)


def test_in_loops_branches_and_checkpoints() -> None:
    def step(carry: Tensor, x: Tensor) -> Any:
        y = root(softplus(carry + x) * 0.2)
        return y, y

    def loop(x: Tensor) -> Tensor:
        return cb.scan(step, x[0], x)[1].sum()

    def branch(x: Tensor) -> Tensor:
        return cb.cond(x[0, 0] > 0, lambda x: softplus(x) * x, lambda x: root(x), x).sum()

    def kept(x: Tensor) -> Tensor:
        return cb.checkpoint(lambda x: softplus(root(x * 0.2) * x), x).sum()

    x = cb.tensor(RNG.standard_normal((4, 3)), requires_grad=True)
    for function in (loop, branch, kept):
        wanted = cb.grad(function)(x.detach()).numpy()
        program = cb.jit(cb.grad(function))
        for _ in range(4):
            np.testing.assert_allclose(program(x.detach()).numpy(), wanted, 1e-12)
        assert gradcheck(cb.jit(function), x)
        assert gradgradcheck(function, x)


def test_a_checkpoint_keeps_nothing_that_was_saved() -> None:
    @cb.custom_vjp
    def large(x: Tensor) -> Tensor:
        return (x * 2).sum()

    def forward(x: Tensor) -> Any:
        kept.append(weakref.ref(saved := x * 2))
        return saved.sum(), saved

    large.defvjp(forward, lambda saved, grad: (saved * 0 + grad * 2,))
    kept: list[Any] = []
    x = some(9)
    y = cb.checkpoint(lambda x: large(x) * 3, x)
    gc.collect()
    assert kept[0]() is None
    y.backward()
    assert x.grad.tolist() == [6.0] * 9


def test_it_is_traced_again_when_the_gradient_is_another_one() -> None:
    @cb.custom_vjp
    def same(x: Tensor) -> Tensor:
        return x * 1

    program = cb.jit(cb.grad(lambda x: same(x).sum()))
    for factor in (1.0, 2.0):
        same.defvjp(lambda x: (x * 1, None), lambda nothing, grad, by=factor: (grad * by,))
        for _ in range(3):
            assert program(cb.tensor([1.0])).item() == factor


def test_a_public_graph_has_the_ops_within() -> None:
    x = some(3)
    with record(x) as recorder:
        y = root(x) + 1
    assert [n.op for n in recorder.graph(y).nodes] == ["input", "exp", "sqrt", "constant", "add"]


def test_what_it_refuses() -> None:
    with pytest.raises(ArgumentError, match="takes a function, not int"):
        cb.custom_vjp(3)  # type: ignore[arg-type]
    bare = cb.custom_vjp(lambda x: x)
    with pytest.raises(ArgumentError, match="has no gradient yet"):
        bare(some(3))
    with pytest.raises(ArgumentError, match="takes two functions, not int"):
        bare.defvjp(1, 2)  # type: ignore[arg-type]
    x = some(3)
    wrong: list[tuple[Any, Any, str]] = [
        (lambda x: x, None, r"gives \(result, saved\), not Tensor"),
        (
            lambda x: ([object(), x], x),
            None,
            "tensors, or tuples, lists and dicts of such, not object",
        ),
        (lambda x: (x * 1, x), lambda x, g: (g, g), "a tuple of 1, one for each .* not of 2"),
        (lambda x: (x * 1, x), lambda x, g: g.sum(), r"shape \(3,\) is a tensor of this shape"),
        (lambda x: (x * 1, x), lambda x, g: (2.0,), r"not float"),
    ]
    for forward, backward, said in wrong:
        bare.defvjp(forward, backward or (lambda saved, grad: grad))
        with pytest.raises(GradientError, match=said) as error:
            y = bare(x)
            y.sum().backward()
        assert error.value.location is not None
        assert error.value.location.file == __file__


def test_the_example_trains() -> None:
    runpy.run_path(str(Path(__file__).parents[3] / "examples" / "gated_activation.py"))["main"]()
