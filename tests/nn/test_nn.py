"""Modules: the tree, state, and values against NumPy written out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import (
    ArgumentError,
    DTypeError,
    FileFormatError,
    LaunchError,
    OutOfBoundsError,
    ShapeError,
)
from cubepy.nn import functional as F
from tests.pretend import NAME, pretend

RNG = np.random.default_rng(1)


def randn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def close(a, b, tol=2e-5) -> None:
    np.testing.assert_allclose(np.asarray(a), b, rtol=tol, atol=tol)


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4, bias=False)
    )


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def test_linear_is_x_times_weight_transposed():
    layer, x = nn.Linear(8, 5), randn(2, 3, 8)
    want = x @ layer.weight.numpy().T + layer.bias.numpy()
    close(layer(x), want)
    residual = randn(2, 3, 5)
    close(layer(x, activation="gelu", residual=residual), gelu(want) + residual)


def test_linear_in_f64():
    x, w, b = (
        randn(3, 4).astype(np.float64),
        randn(2, 4).astype(np.float64),
        randn(2).astype(np.float64),
    )
    close(
        F.linear(x, w, b, activation="relu", residual=np.ones((3, 2))),
        np.maximum(x @ w.T + b, 0) + 1,
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((randn(2, 7), randn(3, 8)), r"\(2, 7\) and a weight \(3, 8\)"),
        ((randn(2, 8), randn(3, 8), randn(4)), r"expected a bias of shape \(3,\), got \(4,\)"),
        ((randn(2, 8), randn(8)), "expected an input"),
    ],
)
def test_linear_names_wrong_shapes(arguments, match):
    with pytest.raises(ShapeError, match=match):
        F.linear(*arguments)


def test_unknown_activation_is_refused():
    with pytest.raises(LaunchError, match="no activation 'swoosh'"):
        F.linear(randn(1, 2), randn(2, 2), activation="swoosh")


def test_embedding_looks_up_rows():
    layer = nn.Embedding(10, 6)
    ids = np.array([[1, 2], [9, 0]])
    np.testing.assert_array_equal(layer(ids).numpy(), layer.weight.numpy()[ids])
    with pytest.raises(OutOfBoundsError, match="10"):
        layer(np.array([10]))
    with pytest.raises(TypeError, match="integer indices"):
        layer(randn(2))


def test_layer_norm_normalises_then_scales():
    layer, x = nn.LayerNorm(6), randn(4, 6)
    layer.weight, layer.bias = nn.Parameter(randn(6)), nn.Parameter(randn(6))
    even = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    close(layer(x), even * layer.weight.numpy() + layer.bias.numpy())
    with pytest.raises(ShapeError, match=r"ends with \(6,\), got \(4, 5\)"):
        layer(randn(4, 5))


def test_activations():
    x = randn(3, 5)
    close(nn.GELU()(x), gelu(x))
    close(nn.ReLU()(x), np.maximum(x, 0))
    close(nn.Tanh()(x), np.tanh(x))
    close(nn.SiLU()(x), x / (1 + np.exp(-x)))
    close(F.normalize(x), x / np.linalg.norm(x, axis=1, keepdims=True))


def test_dropout_works_only_while_training():
    layer, x = nn.Dropout(0.5), np.ones((40, 50), np.float32)
    nn.init.manual_seed(0)
    out = layer(x).numpy()
    assert set(np.unique(out)) == {0.0, 2.0} and 0.4 < (out == 0).mean() < 0.6
    np.testing.assert_array_equal(layer.eval()(x).numpy(), x)
    with pytest.raises(LaunchError, match="probability"):
        nn.Dropout(1.5)


def attention(q, k, v, mask=None):
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def heads(x, n):
    return x.reshape(*x.shape[:2], n, -1).transpose(0, 2, 1, 3)


@pytest.mark.parametrize("cross", [False, True])
def test_multi_head_attention_has_the_layout_of_torch(cross):
    layer, x = nn.MultiHeadAttention(12, 3), randn(2, 5, 12)
    other = randn(2, 7, 12) if cross else x
    w, b = layer.in_proj_weight.numpy(), layer.in_proj_bias.numpy()
    parts = zip((x, other, other), w.reshape(3, 12, 12), b.reshape(3, 12), strict=True)
    q, k, v = (heads(y @ wi.T + bi, 3) for y, wi, bi in parts)
    mask = RNG.random((2, 1, 1, other.shape[1])) > 0.3
    mask[..., 0] = True
    want = attention(q, k, v, mask).transpose(0, 2, 1, 3).reshape(2, 5, 12)
    want = want @ layer.out_proj.weight.numpy().T + layer.out_proj.bias.numpy()
    close(layer(x, other, other, attn_mask=mask) if cross else layer(x, attn_mask=mask), want)
    assert list(layer.state_dict()) == [
        "in_proj_weight",
        "in_proj_bias",
        "out_proj.weight",
        "out_proj.bias",
    ]


def test_length_first_attention_equals_batch_first():
    first, x = nn.MultiHeadAttention(12, 3, batch_first=True), randn(2, 5, 12)
    last = nn.MultiHeadAttention(12, 3, batch_first=False)
    last.load_state_dict(first.state_dict())
    close(last(x.transpose(1, 0, 2)).numpy().transpose(1, 0, 2), first(x).numpy())


def test_attention_checks_its_arguments():
    with pytest.raises(ShapeError, match="5 heads do not divide"):
        nn.MultiHeadAttention(12, 5)
    x = randn(1, 1, 2, 4)
    with pytest.raises(ShapeError, match="broadcasts to"):
        F.scaled_dot_product_attention(x, x, x, np.ones((3, 3), bool))
    with pytest.raises(LaunchError, match="probability of dropout"):
        F.scaled_dot_product_attention(x, x, x, dropout_p=1.5)


def test_names_of_parameters_and_modules():
    model = net()
    assert [n for n, _ in model.named_parameters()] == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
        "3.weight",
    ]
    assert [n for n, _ in model.named_modules()] == ["", "0", "1", "2", "3"]
    assert len(list(model.parameters())) == 5 and len(list(model.children())) == 4
    assert model.get_submodule("3") is model[3] and len(model[1:]) == 3
    with pytest.raises(AttributeError, match="no child 'x'"):
        model.get_submodule("x.y")


def test_shared_modules_are_listed_once():
    layer = nn.Linear(2, 2)
    model = nn.Sequential(layer, layer)
    assert len(list(model.parameters())) == 2 and len(list(model.modules())) == 2
    copy = model.clone()
    assert copy[0] is copy[1] and copy[0] is not layer


def test_state_goes_from_model_to_model():
    a, b, x = net(), net(), randn(2, 8)
    assert b.load_state_dict(a.state_dict()) == ([], [])
    np.testing.assert_array_equal(a(x).numpy(), b(x).numpy())
    assert np.shares_memory(a[0].weight.numpy(), b[0].weight.numpy())


def test_state_is_converted_to_the_dtype_of_the_parameter():
    model = nn.Linear(2, 2, bias=False)
    model.load_state_dict({"weight": np.ones((2, 2), np.float16)})
    assert model.weight.dtype is cb.f32 and isinstance(model.weight, nn.Parameter)


def test_everything_wrong_with_a_state_is_said_at_once():
    model = net()
    state = model.state_dict()
    before = model[2].weight
    state["9.weight"] = state.pop("0.bias")
    state["3.weight"] = randn(3, 3)
    with pytest.raises(FileFormatError) as caught:
        model.load_state_dict(state)
    text = str(caught.value)
    assert "3.weight: expected (4, 16), got (3, 3)" in text
    assert "missing: 0.bias" in text and "unexpected: 9.weight" in text
    assert model[2].weight is before
    del state["3.weight"]
    result = model.load_state_dict(state, strict=False)
    assert result.missing_keys == ["0.bias", "3.weight"] and result.unexpected_keys == ["9.weight"]


def test_clone_shares_memory_but_neither_the_tree_nor_what_comes_later():
    model = net()
    copy, before = model.clone(), model[0].weight.numpy()
    assert copy[0].weight.storage is model[0].weight.storage
    with cb.no_grad():
        copy[0].weight.assign_(randn(16, 8))
    copy.load_state_dict(net().state_dict())
    copy[2].weight = nn.Parameter(randn(4, 16))
    assert model[0].weight.numpy() is before and copy[2].weight is not model[2].weight


def test_replacing_a_parameter_keeps_its_place():
    layer = nn.Linear(2, 3)
    layer.weight = nn.Parameter(randn(3, 2))
    assert list(layer.state_dict()) == ["weight", "bias"]
    layer.bias = None
    assert list(layer.state_dict()) == ["weight"]
    close(layer(np.ones((1, 2), np.float32)), layer.weight.numpy().sum(1)[None])


def test_attributes_follow_their_class():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(2, 2)])
            self.register_buffer("places", np.arange(3))
            self.factor = 2

    model = Net()
    assert "places" in model.state_dict() and "factor" not in model.state_dict()
    model.layers[0] = nn.Linear(2, 4)
    assert model.layers[0].out_features == 4
    del model.factor
    with pytest.raises(AttributeError, match="'factor'"):
        _ = model.factor
    with pytest.raises(NotImplementedError, match="defines no forward"):
        model(1)

    class Forgetful(nn.Module):
        def __init__(self):
            self.x = 1

    with pytest.raises(AttributeError, match=r"call super\(\).__init__"):
        Forgetful()


def test_buffers_that_are_not_saved():
    model, other = nn.Sequential(nn.Linear(2, 2)), nn.Module()
    model[0].register_buffer("angles", np.float32([1, 2]), persistent=False)
    model[0].register_buffer("nothing", None, persistent=False)
    assert [n for n, _ in model.named_buffers()] == ["0.angles"]
    assert list(model.state_dict()) == ["0.weight", "0.bias"]
    model.load_state_dict(model.state_dict())
    copy = model.clone()
    copy[0].register_buffer("angles", np.float32([3]))
    assert "0.angles" in copy.state_dict() and "0.angles" not in model.state_dict()
    assert model.to("f16")[0].angles.dtype is cb.f32 and copy.to("f16")[0].angles.dtype is cb.f16
    other.angles = 1
    other.register_buffer("angles", [1.0], persistent=False)
    assert other.angles.tolist() == [1.0]
    other.angles = cb.tensor([2.0])
    assert [b.tolist() for b in other.buffers()] == [[2.0]] and not other.state_dict()


def test_train_and_eval_reach_all_modules():
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    assert not any(m.training for m in model.eval().modules())
    assert all(m.training for m in model.train().modules())


def test_hooks_see_the_inputs():
    layer, seen = nn.Linear(2, 2), []
    remove = layer.register_forward_pre_hook(
        lambda module, args: seen.append((module, args[0].shape))
    )
    layer(randn(3, 2))
    remove()
    layer(randn(4, 2))
    assert seen == [(layer, (3, 2))]


def test_text_of_a_model_is_that_of_torch():
    assert repr(net()) == (
        "Sequential(\n  (0): Linear(in_features=8, out_features=16, bias=True)\n  (1): GELU(approximate='none')\n"
        "  (2): LayerNorm((16,), eps=1e-05, elementwise_affine=True)\n"
        "  (3): Linear(in_features=16, out_features=4, bias=False)\n)"
    )


def test_first_values_follow_the_seed_and_the_bounds_of_torch():
    nn.init.manual_seed(3)
    a = nn.Linear(64, 32)
    nn.init.manual_seed(3)
    b = nn.Linear(64, 32)
    np.testing.assert_array_equal(a.weight.numpy(), b.weight.numpy())
    assert np.abs(a.weight.numpy()).max() <= 1 / 8 and np.abs(a.weight.numpy()).max() > 0.12
    assert abs(nn.Embedding(100, 50).weight.numpy().std() - 1) < 0.05
    with nn.init.skip():
        assert nn.Linear(64, 32).weight.shape == (32, 64)
    with nn.init.skip(memory=False):
        whole = nn.Linear(1 << 20, 1 << 20)
    assert whole.weight.shape == (1 << 20, 1 << 20) and sum(whole.weight.numpy().strides) == 0


def test_parameters_without_memory_are_the_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU would get copies of all of them."""
    with pretend(monkeypatch), cb.use(NAME), nn.init.skip(memory=False):
        whole = nn.Linear(1 << 20, 1 << 20)
        norm = nn.LayerNorm(1 << 30)
        assert {str(p.device) for m in (whole, norm) for p in m.parameters()} == {"cpu"}
        whole.weight.take_over_(np.ones((2, 3), np.float32))
        assert str(whole.weight.device) == NAME


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_query_that_may_look_at_nothing_gives_zeros(dtype: str) -> None:
    x = cb.tensor(np.ones((2, 3, 4)), dtype)
    mask = cb.tensor(np.array([[True, True, False], [False, False, False], [True, False, False]]))
    found = F.scaled_dot_product_attention(x, x, x, mask)
    assert found.shape == (2, 3, 4)
    np.testing.assert_allclose(found.numpy()[:, :, 0], [[1, 0, 1]] * 2, rtol=1e-6)


def test_buffers_have_names() -> None:
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Linear(2, 2))
    names = [name for name, _ in model.named_buffers()]
    assert names == ["0.running_mean", "0.running_var", "0.num_batches_tracked"]
    assert len(list(model.buffers())) == 3


def test_gradients_of_a_module_are_forgotten_or_zeros() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = np.ones((5, 3), np.float32)
    net(x).sum().backward()
    assert all(np.abs(p.grad.numpy()).max() > 0 for p in net.parameters())
    net.zero_grad(set_to_none=False)
    assert all(not p.grad.numpy().any() for p in net.parameters())
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())
    frozen = net.requires_grad_(False)
    assert frozen is net and not net(x).requires_grad
    net.requires_grad_()
    net(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_function_is_applied_to_children_first() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2)))
    seen = []
    assert net.apply(seen.append) is net
    assert seen == [net[0], net[1][0], net[1], net]


def test_modules_and_tensors_take_a_device_and_a_dtype_at_once() -> None:
    model = nn.Sequential(nn.Linear(2, 3))
    assert model.to("python", "f16")[0].weight.dtype is cb.f16
    assert str(model[0].weight.device) == "python"
    there = cb.tensor([1.0, 2.0]).to("python", cb.f64)
    assert there.dtype is cb.f64 and str(there.device) == "python"
    for one in (model, there):
        with pytest.raises(ArgumentError, match="the first argument is a device, not 'f16'"):
            one.to("f16", "f32")
        with pytest.raises(DTypeError):
            one.to("cpu", "cuda")
    assert str(there.device) == "python"


@pytest.mark.parametrize("one", [nn.Sequential(nn.Linear(2, 3)), cb.tensor([1.0, 2.0])], ids=type)
def test_devices_and_dtypes_are_given_by_name_too(one: Any) -> None:
    def seen(found: Any) -> tuple[str, Any]:
        value = found[0].weight if isinstance(found, nn.Module) else found
        return str(value.device), value.dtype

    like = cb.tensor([1.0]).to("python", "bf16")
    assert seen(one.to(dtype="f16")) == ("cpu", cb.f16)
    assert seen(one.to(device="python", dtype="f16")) == ("python", cb.f16)
    assert seen(one.to("f32", device="cpu")) == ("cpu", cb.f32)
    assert seen(one.to(like)) == ("python", cb.bf16)
    for wrong in ({}, {"target": "cpu", "device": "cpu"}, {"target": "f16", "dtype": "f32"}):
        with pytest.raises(ArgumentError, match="to\\(device="):
            one.to(**wrong)
