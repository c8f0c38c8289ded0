"""Mixtures of experts of com.microsoft beside the same in float64, where onnxruntime has nothing on
a CPU: third matrices, the sparse mixer, fp8, three bits, gradients.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ModelError
from cubepy.models.onnx import load
from cubepy.models.onnx.rules.experts import of_three_bits
from cubepy.models.packed.nbits import BlockCodes
from cubepy.models.packed.picked import in_order, stacked
from cubepy.runtime.device import current, gpu_of
from tests.models.onnx.drawn.node import Drawn, file_of, floats

F8 = ml_dtypes.float8_e4m3fn
BITS = [2, 3, 4, 8]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


PLAIN = {
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}


def activated(how: dict[str, Any], x: Any, side: Any) -> Any:
    name, fusion = how["activation_type"], how.get("swiglu_fusion", 0)
    if name in PLAIN:
        return PLAIN[name](x) * (1 if side is None else side)
    if fusion == 1:
        gate, line = x[:, ::2], x[:, 1::2]
    elif fusion == 2:
        gate, line = np.split(x, 2, axis=1)
    else:
        gate, line = x, side
    if name == "geglu":
        return gelu(gate) * line
    limit, late = how.get("swiglu_limit", np.inf), how.get("swiglu_limit_after_activation", 0)
    gate = gate if late else np.minimum(gate, limit)
    opened = gate * sigmoid(how.get("activation_alpha", 1.0) * gate)
    opened = np.minimum(opened, limit) if late else opened
    return opened * (np.clip(line, -limit, limit) + how.get("activation_beta", 0.0))


def mixer(scores: Any) -> tuple[Any, Any]:
    """Phi-3.5-MoE's router: shares among the scores near the largest one, then the next one."""
    shares, chosen, left = [], [], scores.copy()
    rows = np.arange(len(scores))
    for _ in range(2):
        which = left.argmax(1)
        top = scores[rows, which][:, None]
        far = (top - scores) / np.maximum(np.abs(scores), np.abs(top)) > 0.02
        share = softmax(np.where(far, -np.inf, left))
        shares.append(share[rows, which])
        chosen.append(which)
        left[rows, which] = -np.inf
    return np.stack(shares, 1), np.stack(chosen, 1)


def right_of(how: dict[str, Any], x: Any, scores: Any, networks: list[Any], given: Any) -> Any:
    """The same in f64; networks are (weight, bias) of up, beside and down."""
    x, scores = x.astype("f8"), scores.astype("f8")
    if how.get("use_sparse_mixer"):
        shares, which = mixer(scores)
    else:
        which = np.argsort(-scores, axis=1, kind="stable")[:, : how["k"]]
        full = softmax(scores) if given is None else given.astype("f8")
        shares = np.take_along_axis(full, which, 1)
    if how.get("normalize_routing_weights"):
        shares = shares / shares.sum(1, keepdims=True)
    out = np.zeros((len(scores), networks[2][0].shape[1]))
    rows = x.reshape(-1, x.shape[-1])

    def product(t: Any, network: Any, e: int) -> Any:
        weight, bias = network
        return t @ weight[e].T.astype("f8") + (0 if bias is None else bias[e])

    for n, row in enumerate(rows):
        for share, e in zip(shares[n], which[n], strict=True):
            side = None if networks[1] is None else product(row[None], networks[1], e)
            inner = activated(how, product(row[None], networks[0], e), side)
            out[n] += share * product(inner, networks[2], e)[0]
    return out.reshape(*x.shape[:-1], -1)


def drawn_how(rng: Any) -> tuple[dict[str, Any], bool, int]:
    """Attributes, whether there is a third matrix, and rows of the first for each inner number."""
    name = str(rng.choice([*PLAIN, "swiglu", "geglu"]))
    how: dict[str, Any] = {"activation_type": name, "k": int(rng.integers(1, 4))}
    how["normalize_routing_weights"] = int(rng.integers(2))
    if rng.random() < 0.2:
        how |= {"use_sparse_mixer": 1, "k": 2, "normalize_routing_weights": 0}
    third, times = bool(rng.random() < 0.5), 1
    if name in ("swiglu", "geglu"):
        fusion = int(rng.integers(1 if name == "geglu" else 0, 3))
        third, times = fusion == 0, 1 if fusion == 0 else 2
        how["swiglu_fusion"] = fusion
    if name == "swiglu" and rng.random() < 0.6:
        how |= {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.8}
        how["swiglu_limit_after_activation"] = int(rng.integers(2))
    return how, third, times


def codes_drawn(rng: Any, shape: tuple[int, ...], how: dict[str, Any], bits: int) -> Any:
    """Inputs of a matrix of codes (experts, rows, columns), and what it means."""
    experts, rows, columns = shape
    block = how.get("block_size", 0)
    if how.get("quant_type") == "fp8":
        codes = (rng.standard_normal(shape) * 2).astype(F8)
        if block:
            counts = (experts, -(-rows // block), -(-columns // block))
            by = rng.random(counts).astype(np.float32)
            wide = by.repeat(block, 1)[:, :rows].repeat(block, 2)[..., :columns]
            return codes, by, None, None, codes.astype("f8") * wide
        by = rng.random(experts).astype(np.float32)
        return codes, None, None, by, codes.astype("f8") * by[:, None, None]
    codes = rng.integers(0, 1 << bits, shape)
    blocks = columns // block if block else 1
    by = (rng.random((experts, rows, blocks)) * 2.0**-bits).astype(np.float32)
    zeros = rng.integers(0, 1 << bits, (experts, rows, blocks))
    wide = codes.reshape(experts, rows, blocks, -1) - zeros[..., None]
    meant = (wide * by[..., None].astype("f8")).reshape(shape)
    points = stream(zeros if block else zeros[..., 0], bits)
    return stream(codes, bits), by if block else by[..., 0], points, None, meant


def stream(codes: Any, bits: int) -> Any:
    """Codes as bits one after another, low ones first."""
    single = codes[..., None] >> np.arange(bits) & 1
    flat = single.reshape(*codes.shape[:-1], -1).astype(np.uint8)
    return np.packbits(flat, axis=-1, bitorder="little")


@pytest.mark.parametrize("n", range(40))
def test_experts_of_floats(n: int) -> None:
    rng = np.random.default_rng((1, n))
    how, third, times = drawn_how(rng)
    experts, width, inner = (int(rng.integers(a, b)) for a, b in ((3, 8), (1, 30), (1, 30)))
    rows = int(rng.choice([1, 2, 30]))
    x, scores = floats(rng, rows, width), floats(rng, rows, experts)
    shapes = [(times * inner, width), (inner, width) if third else None, (width, inner)]
    networks: list[Any] = [
        None
        if s is None
        else (floats(rng, experts, *s, by=s[1] ** -0.5), floats(rng, experts, s[0]))
        for s in shapes
    ]
    given = [("x", x), ("scores", scores)]
    for name, one in zip(("w1", "w2", "w3"), (networks[0], networks[2], networks[1]), strict=True):
        given += [] if one is None else [(f"={name}", one[0]), (f"={name}b", one[1])]
    data, feeds, _ = file_of(Drawn("MoE", how, given, [np.float32]))
    right = right_of(how, x, scores, networks, None)
    for _ in range(2):
        found = load(data)(**feeds)["o0"].numpy()
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * max(1, np.abs(right).max()))


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("n", range(40))
def test_experts_of_codes(n: int, constant: bool) -> None:
    """Packed ones of constants, and those that become floats in each call."""
    rng = np.random.default_rng((2, n))
    how, third, times = drawn_how(rng)
    experts, rows = int(rng.integers(3, 6)), int(rng.choice([1, 2, 20]))
    block = int(rng.choice([0, 16, 32]))
    bits = [int(rng.choice(BITS)) for _ in range(3)]
    how["expert_weight_bits"] = bits[0]
    how |= {"fc2_expert_weight_bits": bits[2], "fc3_expert_weight_bits": bits[1]}
    if rng.random() < 0.2:
        how["quant_type"] = "fp8"
        third = third and how["activation_type"] in PLAIN and block > 0
        if how.get("swiglu_fusion") == 0:
            how["activation_type"] = "silu"
    how |= {"block_size": block} if block else {}
    width, inner = (int(rng.integers(1, 3)) * (block or 24) for _ in range(2))
    x, scores = floats(rng, rows, width), floats(rng, rows, experts)
    shapes = [(times * inner, width), (inner, width) if third else None, (width, inner)]
    networks: list[Any] = []
    parts: list[Any] = []
    for shape, width_of in zip(shapes, bits, strict=True):
        if shape is None:
            networks.append(None)
            parts.append((None,) * 5)
            continue
        *stored, meant = codes_drawn(rng, (experts, *shape), how, width_of)
        bias = floats(rng, experts, shape[0]) if rng.random() < 0.5 else None
        networks.append((meant, bias))
        parts.append((*stored, bias))
    mark = "=" if constant else ""
    given: list[Any] = [("x", x), ("scores", scores)]
    ordered = (("1", parts[0]), ("2", parts[2]), ("3", parts[1]))
    for name, (codes, by, _, _, bias) in ordered:
        for kind, array in (("w", codes), ("s", by), ("b", bias)):
            given.append(None if array is None else (f"{mark}{kind}{name}", array))
    for name, part in ordered:
        given.append(None if part[2] is None else (f"{mark}z{name}", part[2]))
    shares = rng.random((rows, experts)).astype(np.float32) if rng.random() < 0.3 else None
    shares = None if how.get("use_sparse_mixer") else shares
    given.append(None if shares is None else ("shares", shares))
    given += [None if p[3] is None else (f"{mark}g{n}", p[3]) for n, p in ordered[:2]]
    data, feeds, _ = file_of(Drawn("QMoE", how, given, [np.float32]))
    net = load(data)
    right = right_of(how, x, scores, networks, shares)
    for _ in range(3):
        found = net(**feeds)["o0"].numpy()
        np.testing.assert_allclose(found, right, rtol=0, atol=2e-5 * max(1, np.abs(right).max()))
    if constant and "quant_type" not in how:
        stores = [p.storage for p in net.parameters() if p.storage.kind == "block_codes"]
        kept = gpu_of(current()) is None  # floats on a GPU
        assert len(stores) == (2 + third) * kept and all(isinstance(s, BlockCodes) for s in stores)


def test_what_experts_do_not_take_is_said() -> None:
    rng = np.random.default_rng(0)

    def refused(op: str, said: str, third: bool = False, **how: Any) -> None:
        weights = [floats(rng, 3, 4, 4), None, floats(rng, 3, 4, 4), None]
        given: list[Any] = [("x", floats(rng, 2, 4)), ("scores", floats(rng, 2, 3))]
        if op == "QMoE":
            weights = [np.zeros((3, 4, 2), np.uint8), np.ones((3, 4), np.float32), None] * 2
        weights += [weights[0]] if third else []
        given += [None if w is None else (f"=w{n}", w) for n, w in enumerate(weights)]
        data, feeds, _ = file_of(Drawn(op, {"k": 1, **how}, given, [np.float32]))
        with pytest.raises(ModelError, match=said):
            load(data)(**feeds)

    refused("MoE", "4 of 3 experts", k=4)
    refused("MoE", "the sparse mixer picks 2", use_sparse_mixer=1)
    refused("MoE", "the activation 'mish'", activation_type="mish")
    refused("MoE", "swiglu with swiglu_fusion 0 without", activation_type="swiglu")
    refused("MoE", "fusion 1 with a third", True, activation_type="swiglu", swiglu_fusion=1)
    refused("QMoE", "quant_type 'nvfp4'", quant_type="nvfp4")
    refused("QMoE", "the order of a GPU", weights_prepacked=1)
    refused("QMoE", "scales .3, 4. of .3, 4, 2. in blocks", quant_type="fp8", block_size=1 << 40)
    refused("QMoE", "5 bits", expert_weight_bits=5)
    refused("QMoE", "in blocks of 32", block_size=32)


def test_experts_learn() -> None:
    """Gradients by rows and weights beside differences of the f64 reference."""
    rng = np.random.default_rng(4)
    how = {"activation_type": "silu", "k": 2, "normalize_routing_weights": 1}
    x, scores = floats(rng, 5, 6), floats(rng, 5, 4)
    up, down = floats(rng, 4, 7, 6), floats(rng, 4, 6, 7)
    given = [("x", x), ("scores", scores), ("=up", up), None, ("=down", down)]
    data, _, _ = file_of(Drawn("MoE", how, given, [np.float32]))
    net = load(data).requires_grad_()
    given_x = cb.tensor(x, requires_grad=True)
    net(x=given_x, scores=scores)["o0"].sum().backward()
    found = {"x": given_x.grad, **{n: p.grad for n, p in net.named_parameters()}}
    arrays = {"x": x.astype("f8"), "up": up.astype("f8"), "down": down.astype("f8")}
    for name, array in arrays.items():
        for at in rng.integers(0, array.size, 6):
            ends = []
            for step in (1e-6, -1e-6):
                moved = {k: a.copy() for k, a in arrays.items()}
                moved[name].flat[at] += step
                networks = [(moved["up"], None), None, (moved["down"], None)]
                ends.append(right_of(how, moved["x"], scores, networks, None).sum())
            wanted = (ends[0] - ends[1]) / 2e-6
            assert abs(found[name].numpy().flat[at] - wanted) < 1e-4 * max(1, abs(wanted))


def test_rows_learn_through_packed_experts() -> None:
    rng = np.random.default_rng(5)
    how = {"activation_type": "silu", "k": 2, "block_size": 16}
    codes, by, _, _, up = codes_drawn(rng, (4, 32, 16), how, 4)
    low, small, _, _, down = codes_drawn(rng, (4, 16, 32), how, 4)
    x, scores = floats(rng, 3, 16), floats(rng, 3, 4)
    zeros = np.full((4, 32, 1), 8, np.uint8), np.full((4, 16, 1), 0x88, np.uint8)
    del up, down
    given = [("x", x), ("scores", scores), ("=w1", codes), ("=s1", by), None, ("=w2", low)]
    given += [("=s2", small), None, None, None, None, ("=z1", zeros[0]), ("=z2", zeros[1])]
    data, _, _ = file_of(Drawn("QMoE", how, given, [np.float32]))
    net, given_x = load(data), cb.tensor(x, requires_grad=True)
    frozen = net(x=x, scores=scores)["o0"].numpy()
    made = net(x=given_x, scores=scores)["o0"]
    np.testing.assert_allclose(made.numpy(), frozen, atol=1e-5 * np.abs(frozen).max())
    made.sum().backward()
    moved = x.copy()
    moved[1, 3] += 1e-2
    wanted = (net(x=moved, scores=scores)["o0"].numpy().sum() - frozen.sum()) / 1e-2
    assert abs(given_x.grad.numpy()[1, 3] - wanted) < 2e-2 * max(1, abs(wanted))


@pytest.mark.parametrize("kind", ["f32", "f16", "codes", "table"])
@pytest.mark.parametrize("n", range(6))
def test_products_by_groups(kind: str, n: int) -> None:
    """Pairs one by one and in order, a program and alone."""
    rng = np.random.default_rng((3, n))
    experts, count, rows, times = (int(rng.integers(1, m)) for m in (6, 40, 30, 4))
    depth = int(rng.integers(1, 5)) * 32 - (0 if kind in ("f32", "f16") else 5)
    if kind in ("f32", "f16"):
        array = floats(rng, experts * count, depth).astype(kind.replace("f", "float"))
        stack, meant = cb.tensor(array), array.astype("f8")
    else:
        nbytes = -(-depth // 32) * 16
        codes = rng.integers(0, 256, (experts * count, nbytes)).astype(np.uint8)
        by = rng.random((experts * count, nbytes // 16)).astype(np.float32)
        table = tuple(rng.standard_normal(16).tolist()) if kind == "table" else None
        zeros = None if table else rng.integers(0, 16, by.shape).astype(np.float32)
        stored = BlockCodes(codes, by, zeros, depth, 4, 32, table)
        stack, meant = cb.Tensor(stored).to(current()), stored.host().astype("f8")
    x, which = floats(rng, rows, depth), rng.integers(0, experts, rows * times)
    matrices = meant.reshape(experts, count, depth)[which]
    right = np.einsum("pk,pnk->pn", x.repeat(times, 0).astype("f8"), matrices)
    given = cb.tensor(x), cb.tensor(which)

    def sorted_ones(t: Any, w: Any) -> Any:
        return stacked(t, stack, w, count, in_order(w, experts))

    program = cb.jit(sorted_ones)
    calls = [lambda t, w: stacked(t, stack, w, count), sorted_ones, *[program] * 4]
    for call in calls:
        found = call(*given).numpy()
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-5 * max(1, np.abs(right).max()))


def test_streams_of_three_bits() -> None:
    codes = np.random.default_rng(0).integers(0, 8, (3, 17))
    np.testing.assert_array_equal(of_three_bits(stream(codes, 3))[:, :17], codes)


def test_blocks_of_any_length_take_no_memory() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, 6).astype(np.uint8)
    how = {"N": 3, "K": 4, "block_size": 1 << 62, "quant_type": 1}
    given = [("x", floats(rng, 2, 4)), ("w", codes), ("s", np.float32([2]))]
    data, feeds, _ = file_of(Drawn("MatMulBnb4", how, given, [np.float32]))
    small, _, _ = file_of(Drawn("MatMulBnb4", how | {"block_size": 16}, given, [np.float32]))
    found, right = (load(d)(**feeds)["o0"].numpy() for d in (data, small))
    np.testing.assert_array_equal(found, right)
