"""ONNX graphs as modules: what they compute, how they are called, and that they are programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ModelError, OutOfMemoryError
from cubepy.models.onnx import OnnxModel, load
from cubepy.quant import quantize
from cubepy.tensor.fusion.prepared import NEVER
from tests.models.onnx.writer import graph, model, node, tensor, value

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def small(*nodes: bytes, inputs: Any = ("x",), outputs: Any = ("y",), **weights: Any) -> OnnxModel:
    made = [tensor(name, array) for name, array in weights.items()]
    return load(model(graph(list(nodes), list(inputs), list(outputs), made)))


def mlp() -> tuple[OnnxModel, dict[str, Any]]:
    weights = {"w": floats(4, 8), "b": floats(8), "v": floats(3, 8)}
    nodes = [
        node("MatMul", "x w", "h"),
        node("Add", "h b", "i"),
        node("Relu", "i", "j"),
        node("Gemm", "j v", "y", transB=1),
    ]
    return small(*nodes, inputs=[value("x", shape=("n", 4))], **weights), weights


def mlp_formula(x: Any, w: Any, b: Any, v: Any) -> Any:
    return np.maximum(x @ w + b, 0) @ v.T


def test_a_graph_is_called_with_arrays_or_tensors_in_order_or_by_name() -> None:
    net, weights = mlp()
    x = floats(5, 4)
    expected = mlp_formula(x, **weights)

    for found in (net(x), net(cb.tensor(x)), net(x=x), net(x.tolist())):
        assert list(found) == ["y"]
        assert np.allclose(found["y"].numpy(), expected, atol=1e-5)
    assert [i.name for i in net.inputs] == ["x"] and [o.name for o in net.outputs] == ["y"]
    assert [n.op for n in net.graph.nodes] == ["MatMul", "Add", "Relu", "Gemm"]


@pytest.mark.parametrize(
    ("args", "named", "rule"),
    [
        ((), {}, "'x' is not given"),
        ((np.zeros((1, 4), np.float32),) * 2, {}, "takes 1 inputs, not 2"),
        ((), {"z": 1}, "no input 'z'"),
        ((np.zeros((1, 4), np.float32),), {"x": 1}, "given twice"),
        ((np.zeros((1, 4)),), {}, "f32, not f64"),
        ((np.zeros((1, 5), np.float32),), {}, r"f32\[n, 4\], but a tensor of \[1, 5\]"),
        ((np.zeros(4, np.float32),), {}, r"a tensor of \[4\]"),
    ],
)
def test_a_wrong_call_says_what_the_model_takes(args: Any, named: Any, rule: str) -> None:
    net, _ = mlp()
    with pytest.raises(ModelError, match=rule):
        net(*args, **named)


def test_lists_keep_their_numbers() -> None:
    """What becomes of a list has its values, or is refused."""
    for wanted, fine, wrong in (
        ("f4", [[1, 2.5]], (None, "text", [None], [[1], [1, 2]], {"a": 1}, [1j])),
        ("i8", [1, 2.0], ([0.5], [2**64], ["1"], [float("nan")])),
        ("?", [True, 0], ([2],)),
        ("u1", [0, 255], ([256], [-1])),
    ):
        net = small(node("Identity", "x", "y"), inputs=[value("x", wanted)], outputs=["y"])
        assert net({"x": fine})["y"].tolist() == net(x=fine)["y"].tolist() == fine
        for given in wrong:
            with pytest.raises(ModelError, match=r"'x' is an array of|no input 'a'"):
                net(given)


def test_products_with_constant_matrices_are_linear_layers_with_their_biases() -> None:
    net, weights = mlp()

    layers = {name: m for name, m in net.named_modules() if isinstance(m, nn.Linear)}
    state = net.state_dict()

    assert {name: str(m) for name, m in layers.items()} == {
        "w": "Linear(in_features=4, out_features=8, bias=True)",
        "v": "Linear(in_features=8, out_features=3, bias=False)",
    }
    assert set(state) == {"w.weight", "w.bias", "v.weight"}
    assert np.array_equal(state["w.weight"].numpy(), weights["w"].T)
    assert not any(p.requires_grad for p in net.parameters())


def test_weights_may_become_others() -> None:
    net, weights = mlp()
    x = floats(2, 4)
    for _ in range(3):
        first = net(x)["y"].numpy()
    state = {name: cb.tensor(value.numpy()) for name, value in net.state_dict().items()}

    net.load_state_dict({name: value * 2 for name, value in state.items()})
    doubled = mlp_formula(x, *(2 * a for a in weights.values()))
    assert np.allclose(net(x)["y"].numpy(), doubled, atol=1e-4)
    net.load_state_dict(state)
    copy = net.clone()
    net.to("f64")
    assert net.state_dict()["w.weight"].dtype is cb.f64
    assert net.to("f32").state_dict()["w.weight"].dtype is cb.f32
    assert np.allclose(net(x)["y"].numpy(), first, atol=1e-6)
    net.load_state_dict({name: value * 0 for name, value in state.items()})
    assert not net(x)["y"].numpy().any()
    assert np.array_equal(copy(x)["y"].numpy(), first)


def test_a_graph_is_quantized_as_any_module() -> None:
    w = floats(64, 96) * np.float32(0.1)
    net = small(node("MatMul", "x w", "h"), node("Tanh", "h", "y"), w=w)
    x = floats(3, 64)
    exact = net(x)["y"].numpy()

    quantized, report = quantize(net, scheme="int8")
    for _ in range(3):
        found = quantized(x)["y"].numpy()

    assert quantized.state_dict()["w.weight"].storage.kind != "dense"
    assert 0 < np.abs(found - exact).max() < 0.05
    assert np.array_equal(net(x)["y"].numpy(), exact)
    assert "w" in str(report)


def test_a_graph_is_one_program_and_another_batch_has_no_new_kernels() -> None:
    net, weights = mlp()
    for n in (3, 3, 3, 24, 24, 24):
        net(floats(n, 4))
    compiled = cb.stats().compiled

    x = floats(36, 4)  # of the same register tiles, on any CPU
    found = [net(x)["y"].numpy() for _ in range(4)]

    assert cb.stats().compiled == compiled
    assert np.allclose(found[-1], mlp_formula(x, **weights), atol=1e-5)
    (segment,) = net.runner.segments
    assert not segment.program.refused


def test_arithmetic_of_shapes_leaves_nothing_in_the_program() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n"),
        node("Unsqueeze", "n axes", "m"),
        node("Concat", "m rest", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    zero, axes, rest = np.array(0), np.array([0]), np.array([-1])
    net = small(*nodes, zero=zero, axes=axes, rest=rest)
    for _ in range(3):
        assert net(floats(2, 3, 4))["y"].shape == (2, 12)

    (segment,) = net.runner.segments
    (programs,) = segment.program.programs.values()
    assert [n.op for n in programs[0].graph.nodes if n.op != "input"] == ["reshape"]


def test_data_decide_a_branch() -> None:
    yes = graph([node("Add", "h one", "a")], [], ["a"], [tensor("one", np.float32(1))])
    no = graph([node("Neg", "h", "a")], [], ["a"])
    net = small(
        node("Mul", "x x", "h"),
        node("If", "c", "u", then_branch=yes, else_branch=no),
        node("Mul", "u u", "y"),
        inputs=["x", value("c", bool)],
    )
    x = np.float32([1, 2])
    for _ in range(3):
        assert net(x, np.array(True))["y"].tolist() == [4, 25]
        assert net(x, np.array(False))["y"].tolist() == [1, 16]


def test_filters_of_a_file_are_laid_out_once_whichever_branch_reads_them(tmp_path: Path) -> None:
    w, b, x = floats(16, 8, 3, 3), floats(16), floats(1, 8, 12, 12)
    yes = graph([node("Conv", "h w b", "a", pads=[1, 1, 1, 1])], [], ["a"])
    no = graph([node("Conv", "h w b", "p"), node("Neg", "p", "a")], [], ["a"])
    nodes = [
        node("Conv", "x v", "h", pads=[1, 1, 1, 1]),
        node("If", "c", "u", then_branch=yes, else_branch=no),
        node("Relu", "u", "y"),
    ]
    v = floats(8, 8, 3, 3)
    weights = [tensor("v", v), tensor("w", w), tensor("b", b)]
    path = tmp_path / "branches.onnx"
    inputs = [value("x"), value("c", bool)]
    path.write_bytes(model(graph(nodes, inputs, ["y"], weights)))
    net = load(path)
    conv2d = nn.functional.conv2d
    h = conv2d(x, v, padding=1).numpy()
    expected = {
        True: np.maximum(conv2d(h, w, b, padding=1).numpy(), 0),
        False: np.maximum(-conv2d(h, w, b).numpy(), 0),
    }
    for _ in range(4):
        for c, y in expected.items():
            assert np.allclose(net(x, np.array(c))["y"].numpy(), y, atol=1e-4)

    bodies = net.runner.steps[1].call.state.values()
    assert not any(n in ("w", "b") for body in bodies for n in body.captured)
    segments = [segment for runner in (net.runner, *bodies) for segment in runner.segments]
    programs = [p for s in segments for variants in s.program.programs.values() for p in variants]
    prepared = [p.writer.prepared for p in programs if p.writer.prepared is not None]
    assert len(prepared) == 3 and all(p.state[1] != NEVER for p in prepared)


def test_a_loop_carries_and_stacks_until_its_condition_ends_it() -> None:
    body = graph(
        [
            node("Add", "s step", "t"),
            node("ReduceSum", "t", "r", keepdims=0),
            node("Less", "r most", "go"),
            node("Identity", "t", "u"),
        ],
        [value("k", np.int64), value("c", bool), "s"],
        [value("go", bool), "t", "u"],
        [tensor("most", np.float32(6))],
    )
    net = small(
        node("Loop", "n yes x", "y all", body=body),
        outputs=["y", "all"],
        n=np.array(100),
        yes=np.array(True),
        step=np.float32([1, 1]),
    )
    found = net(np.float32([0, 0]))

    assert found["y"].tolist() == [3, 3]
    assert found["all"].tolist() == [[1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize("steps", [4, 50])
def test_a_scan_is_a_running_sum(steps: int) -> None:
    body = graph([node("Add", "s x", "t"), node("Identity", "t", "u")], ["s", "x"], ["t", "u"])
    net = small(
        node("Scan", "start x", "last y", body=body, num_scan_inputs=1),
        outputs=["last", "y"],
        start=np.zeros(3, np.float32),
    )
    x = floats(steps, 3)
    for _ in range(2):
        found = net(x)
    assert np.allclose(found["y"].numpy(), np.cumsum(x, 0), atol=1e-5)
    assert np.allclose(found["last"].numpy(), x.sum(0), atol=1e-5)


def test_what_data_choose_splits_the_program_and_only_there() -> None:
    net = small(
        node("Mul", "x x", "h"),
        node("NonZero", "h", "at"),
        node("Transpose", "at", "y"),
        outputs=[value("y", np.int64)],
    )
    for numbers in ([1, 0, 2], [0, 0, 5], [1, 1, 1]):
        found = net(np.float32(numbers))["y"].numpy()
        assert found.ravel().tolist() == np.flatnonzero(numbers).tolist()
    assert net.runner.split == {1} and [(s.first, s.last) for s in net.runner.segments] == [
        (0, 1),
        (2, 3),
    ]


def test_convolution_pool_and_norm_are_those_of_nn() -> None:
    w, b, s = floats(6, 2, 3, 3), floats(6), np.abs(floats(4, 6)) + 0.5
    net = small(
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], group=2, strides=[2, 1]),
        node("BatchNormalization", "c s0 s1 s2 s3", "n"),
        node("MaxPool", "n", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "p", "g"),
        node("Flatten", "g", "y"),
        w=w,
        b=b,
        **{f"s{k}": row for k, row in enumerate(s)},
    )
    x = floats(2, 4, 9, 8)
    y = nn.functional.conv2d(x, w, b, stride=(2, 1), padding=1, groups=2).numpy()
    column = s[:, None, :, None, None]
    y = (y - column[2]) / np.sqrt(column[3] + 1e-5) * column[0] + column[1]
    y = nn.functional.max_pool2d(y.astype(np.float32), 2).numpy().mean((2, 3))

    assert np.allclose(net(x)["y"].numpy(), y, atol=1e-4)


@pytest.mark.parametrize("steps", [3, 20])
def test_an_lstm_is_that_of_nn_with_its_gates_in_another_order(steps: int) -> None:
    layer = nn.LSTM(3, 5, bidirectional=True)
    state = {k: v.numpy() for k, v in layer.state_dict().items()}

    def gates(name: str) -> Any:
        parts = []
        for way in ("", "_reverse"):
            i, f, g, o = np.split(state[f"{name}_l0{way}"], 4)
            parts.append(np.concatenate([i, o, f, g]))
        return np.stack(parts)

    bias = np.concatenate([gates("bias_ih"), gates("bias_hh")], 1)
    net = small(
        node("LSTM", "x w r b", "y h c", hidden_size=5, direction="bidirectional"),
        outputs=["y", "h", "c"],
        w=gates("weight_ih"),
        r=gates("weight_hh"),
        b=bias,
    )
    x = floats(steps, 2, 3)
    expected, (h, c) = layer(x)
    for _ in range(3):
        found = net(x)

    joined = found["y"].numpy().transpose(0, 2, 1, 3).reshape(steps, 2, 10)
    assert np.allclose(joined, expected.numpy(), atol=1e-5)
    assert np.allclose(found["h"].numpy(), h.numpy(), atol=1e-5)
    assert np.allclose(found["c"].numpy(), c.numpy(), atol=1e-5)


def test_integer_products_are_exact() -> None:
    a = RNG.integers(0, 256, (3, 900), np.uint8)
    b = RNG.integers(-128, 128, (900, 4), np.int8)
    net = small(
        node("MatMulInteger", "x b za zb", "y"),
        inputs=[value("x", np.uint8)],
        outputs=[value("y", np.int32)],
        b=b,
        za=np.uint8(7),
        zb=np.int8(-3),
    )
    expected = (a.astype(np.int64) - 7) @ (b.astype(np.int64) + 3)

    assert np.array_equal(net(a)["y"].numpy(), expected)


def test_four_bit_weights_of_onnxruntime() -> None:
    n, k, block = 6, 40, 16
    codes = RNG.integers(0, 16, (n, 3, block), np.uint8)
    scales, zeros = np.abs(floats(n, 3)) + 0.1, RNG.integers(0, 16, (n, 4), np.uint8)
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    points = zeros[:, 0::2] | zeros[:, 1::2] << 4
    made = graph(
        [node("MatMulNBits", "x q s z", "y", "com.microsoft", K=k, N=n, bits=4, block_size=block)],
        ["x"],
        ["y"],
        [tensor("q", packed), tensor("s", scales.reshape(-1)), tensor("z", points.reshape(-1))],
    )
    net = load(model(made, com_microsoft=1))
    weight = (codes - zeros[:, :3, None].astype(np.float32)) * scales[..., None]
    x = floats(2, k)

    expected = x @ weight.reshape(n, -1)[:, :k].T
    assert np.allclose(net(x)["y"].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("first", "last", "step", "right"),
    [
        (3, 2**63 - 1, -1, [3, 2, 1, 0]),  # the end, whichever way
        (4, 2**31 - 1, -2, [4, 2, 0]),
        (-1, -(2**63) + 1, -1, [4, 3, 2, 1, 0]),
        (-9, 2**31 - 1, 2, [0, 2, 4]),
        (9, -9, -3, [4, 1]),
    ],
)
def test_slices_end_where_axes_do(first: int, last: int, step: int, right: list[int]) -> None:
    weights = [tensor(k, np.array([v])) for k, v in zip("abcd", (first, last, -1, step))]
    found = load(model(graph([node("Slice", "x a b c d", "y")], ["x"], ["y"], weights)))
    assert found(np.arange(5, dtype=np.float32))["y"].tolist() == right


def test_what_comes_out_empty_has_its_shape() -> None:
    nodes = [node("Resize", "x _ s", "y", mode="linear", antialias=1)]
    weights = [tensor("s", np.array([1, 1, 0.4], np.float32))]
    found = load(model(graph(nodes, ["x"], ["y"], weights), opset=18))
    assert found(np.ones((2, 3, 2), np.float32))["y"].shape == (2, 3, 0)
    found = load(model(graph([node("Hardmax", "x", "y")], ["x"], ["y"])))
    assert found(np.ones((3, 0), np.float32))["y"].shape == (3, 0)


def test_old_opsets_have_their_arguments_as_attributes() -> None:
    nodes = [
        node("Slice", "x", "a", starts=[1], ends=[-1], axes=[1]),
        node("Unsqueeze", "a", "b", axes=[0]),
        node("Pad", "b", "c", pads=[0, 0, 1, 0, 0, 0], value=2.0),
        node("Clip", "c", "d", min=-1.0, max=1.5),
        node("ReduceSum", "d", "e", axes=[0], keepdims=0),
        node("Softmax", "e", "y", axis=0),
    ]
    net = load(model(graph(nodes, ["x"], ["y"]), 9))
    x = floats(2, 5)
    e = np.clip(np.pad(x[:, 1:-1], ((0, 0), (1, 0)), constant_values=2), -1, 1.5)
    powers = np.exp(e - e.max())

    assert np.allclose(net(x)["y"].numpy(), powers / powers.sum(), atol=1e-5)


def test_what_goes_wrong_in_a_node_names_the_node() -> None:
    net = small(node("Add", "x w", "y", name="the sum"), w=floats(3))
    with pytest.raises(ModelError, match=r"node the sum \(Add\): .*do not broadcast"):
        net(floats(4))


def test_a_file_is_opened_by_path(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph([node("Neg", "x", "y")], ["x"], ["y"])))

    assert load(path)(np.float32([1, -2]))["y"].tolist() == [-1, 2]
    assert load(str(path), device="cpu")(np.float32([1]))["y"].tolist() == [-1]


def test_load_and_look_know_onnx_files(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(graph([node("Neg", "x", "y")], ["x"], ["y"])))

    assert cb.load(path)(np.float32([1, -2]))["y"].tolist() == [-1, 2]
    found = cb.look(path)
    assert (found.format, found.operators) == ("ONNX, IR version 8", {"Neg": 1})
    assert "opsets      ai.onnx 17" in str(found)


@pytest.mark.parametrize(
    ("nodes", "rule"),
    [
        ([node("Range", "zero how one", "r"), node("Add", "r zero", "y")], r"node .*\(Range\)"),
        ([node("HannWindow", "how", "r"), node("Mul", "r x", "y")], r"node .*\(HannWindow\)"),
        ([node("Tile", "x how", "y")], "has no [0-9]+ bytes to give"),
    ],
)
def test_results_without_room_say_so(nodes: list[bytes], rule: str) -> None:
    """As an error of ours, whether the host or a program makes them."""
    huge = np.array([1 << 50]) if len(nodes) == 1 else np.int64(1 << 50)
    with pytest.raises(OutOfMemoryError, match=rule):
        small(*nodes, zero=np.int64(0), one=np.int64(1), how=huge)(floats(3))
