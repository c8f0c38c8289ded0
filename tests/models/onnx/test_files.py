"""ONNX files: element types, external data, order, and everything that may be wrong."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from cubepy.errors import FileFormatError, ModelError
from cubepy.models.formats.onnx import read
from cubepy.models.formats.onnx_schema import DTYPES
from cubepy.models.onnx import load, look
from tests.models.onnx.writer import (
    Graph,
    attribute,
    entry,
    external,
    field,
    fields,
    graph,
    model,
    node,
    tensor,
    value,
    varint,
)

RNG = np.random.default_rng(0)


def identity(*weights: bytes) -> bytes:
    return model(graph([node("Identity", "x", "y")], ["x"], ["y"], list(weights)))


@pytest.mark.parametrize(
    "code", [c for c in sorted(DTYPES) if c not in (8, 21, 22, 23, 25, 26, 27, 28)]
)
def test_weights_keep_their_dtype_and_are_views_of_the_file(code: int, tmp_path: Path) -> None:
    dtype = DTYPES[code]
    numbers = RNG.integers(0, 2, (3, 5))
    array = numbers.astype(dtype)
    path = tmp_path / "m.onnx"
    path.write_bytes(identity(tensor("w", array)))

    found = read(path).graph.weights["w"].array()

    assert found.dtype == dtype
    assert found.tobytes() == array.tobytes()
    assert not found.flags.owndata and not found.flags.writeable


@pytest.mark.parametrize(
    ("code", "bits"), [(21, 4), (22, 4), (23, 4), (25, 2), (26, 2), (27, 6), (28, 6)]
)
def test_narrow_elements_are_packed_with_the_low_bits_first(code: int, bits: int) -> None:
    if code not in DTYPES:
        pytest.skip(f"this ml_dtypes has no element type {code}")
    codes = RNG.integers(0, 1 << bits, 7)
    whole = sum(int(c) << bits * k for k, c in enumerate(codes))
    raw = whole.to_bytes(-(-7 * bits // 8), "little")
    made = fields(1, (7,)) + field(2, code) + field(8, "w") + field(9, raw)

    found = read(identity(made)).graph.weights["w"].array()

    assert (found.view(np.uint8) & ((1 << bits) - 1)).tolist() == codes.tolist()
    if code == 22:
        assert found.astype(np.int32).tolist() == [c - 16 if c > 7 else c for c in codes]


def test_typed_elements_and_texts() -> None:
    floats, ints = np.float32([1.5, -2]), np.array([[3, -4]] * 40, np.int64)
    halves = np.float16([1, 2, -3]).view(np.uint16)
    half = fields(1, (3,)) + field(2, 10) + field(8, "h") + fields(5, halves)
    texts = np.array(["a", "ä"], object)

    found = read(
        identity(tensor("f", floats, False), tensor("i", ints, False), half, tensor("t", texts))
    ).graph.weights

    assert found["f"].array().tolist() == [1.5, -2]
    assert np.array_equal(found["i"].array(), ints)
    assert found["h"].array().tolist() == [1, 2, -3]
    assert found["t"].array().tolist() == ["a", "ä"]


def test_a_sparse_initializer_is_dense_here() -> None:
    sparse = (
        field(1, tensor("s", np.float32([5, 6])))
        + field(2, tensor("", np.array([[0, 1], [2, 0]], np.int64)))
        + fields(3, (3, 2))
    )
    made = graph([node("Add", "x s", "y")], ["x"], ["y"]) + field(15, sparse)

    found = load(model(made))(np.zeros((3, 2), np.float32))["y"].numpy()

    assert found.tolist() == [[0, 5], [0, 0], [6, 0]]


def with_external(folder: Path, **said: str) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(
        model(graph([node("Add", "x w", "y")], ["x"], ["y"], [external("w", (2, 3), "f4", **said)]))
    )
    return path


def test_external_data_are_views_of_their_file(tmp_path: Path) -> None:
    array = RNG.standard_normal((2, 3)).astype(np.float32)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data.bin").write_bytes(b"12345678" + array.tobytes())
    path = with_external(tmp_path, location="sub/data.bin", offset="8", length="24")

    found = load(path)(np.zeros((2, 3), np.float32))["y"].numpy()

    assert np.array_equal(found, array)


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ({"location": "../data.bin"}, "no path below"),
        ({"location": "a/../../data.bin"}, "no path below"),
        ({"location": "/etc/hostname"}, "no path below"),
        ({"location": "C:\\data.bin"}, "no path below"),
        ({"location": ""}, "no path below"),
        ({"location": "nothing.bin"}, "no such file"),
        ({"location": "link.bin"}, "leads out"),
        ({"location": "d.bin", "offset": "20"}, "end at byte 44"),
        ({"location": "d.bin", "offset": "-4"}, "no number of bytes"),
        ({"location": "d.bin", "offset": "9" * 30}, "no number of bytes"),
        ({"location": "d.bin", "length": "8"}, "takes 24 bytes"),
    ],
)
def test_external_data_stay_in_the_folder_and_in_the_file(
    said: dict[str, str], rule: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (tmp_path / "data.bin", folder / "d.bin"):
        name.write_bytes(bytes(32))
    os.symlink(tmp_path / "data.bin", folder / "link.bin")

    with pytest.raises(FileFormatError, match=rule):
        read(with_external(folder, **said))


def test_a_model_of_bytes_has_no_folder() -> None:
    made = graph([], [], [], [external("w", (1,), "f4", location="d.bin")])
    with pytest.raises(FileFormatError, match="has no folder"):
        read(model(made))


def test_nodes_may_come_in_any_order() -> None:
    made = graph(
        [node("Neg", "b", "y"), node("Exp", "a", "b"), node("Abs", "x", "a")], ["x"], ["y"]
    )

    found = load(model(made))

    assert [n.op for n in found.graph.nodes] == ["Abs", "Exp", "Neg"]
    assert np.allclose(found(np.float32([-1, 2]))["y"].numpy(), -np.exp([1, 2]))


X, Y = ["x"], ["y"]
SIMPLE = node("Identity", "x", "y")


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "no graph"),
        (b"\x02\x00", "field 0"),
        (model(graph([SIMPLE], X, Y), ir=15), "IR version 15"),
        (model(graph([node("Neg", "b", "a"), node("Neg", "a", "b")], X, ["a"])), "circle"),
        (model(graph([node("Neg", "q", "y")], X, Y)), "reads 'q'"),
        (model(graph([SIMPLE, SIMPLE], X, Y)), "two nodes"),
        (model(graph([SIMPLE], ["x", "x"], Y)), "two inputs named 'x'"),
        (model(graph([SIMPLE], X, ["z"])), "'z' of graph 'g' is computed by no node"),
        (model(graph([node("", "x", "y")], X, Y)), "has no operator"),
        (identity(tensor("w", np.zeros(2)), tensor("w", np.zeros(2))), "two initializers"),
        (identity(fields(1, (4,)) + field(2, 1) + field(9, bytes(15))), "takes 16 bytes"),
        (identity(fields(1, (-4,)) + field(2, 1)), "dims"),
        (identity(fields(1, (2**40, 2**40)) + field(2, 1)), "dims"),
        (identity(fields(1, [1] * 65) + field(2, 1)), "dims"),
        (identity(fields(1, (4,)) + field(2, 99)), "element type 99"),
        (identity(fields(1, (4,)) + field(2, 1) + field(4, bytes(8))), "takes 4 numbers, not 2"),
        (model(graph([SIMPLE + field(5, attribute("a", 1)) * 2], X, Y)), "attribute 'a' twice"),
        (model(graph([SIMPLE + field(5, field(1, "a") + field(20, 77))], X, Y)), "type 77"),
        (model(graph([SIMPLE + field(5, field(1, "a") + field(20, 4))], X, Y)), "no value"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(data: bytes, rule: str) -> None:
    with pytest.raises(FileFormatError, match=rule):
        read(data)


def test_an_empty_file_and_one_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "e.onnx").write_bytes(b"")
    with pytest.raises(FileFormatError, match="empty"):
        read(tmp_path / "e.onnx")
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "n.onnx")


def test_every_missing_operator_is_named_with_its_nodes() -> None:
    nodes = [
        node("Foo", "x", "a", name="first"),
        node("Foo", "a", "b", name="second"),
        node("Bar", "b", "y", domain="my.own", name="third"),
    ]
    with pytest.raises(ModelError, match=r"Foo of ai.onnx 17 \(nodes first, second\)") as raised:
        load(model(graph(nodes, X, Y)))

    assert "Bar of my.own (no version imported) (nodes third)" in str(raised.value)


def test_look_says_what_is_in_a_file_without_running_it() -> None:
    branch = graph([node("Foo", "x", "t", name="inside")], [], ["t"])
    nodes = [node("If", "c", "y", then_branch=branch, else_branch=branch)]
    weights = [tensor("w", np.zeros((2, 3), np.float32)), tensor("h", np.zeros(4, np.float16))]
    made = graph(nodes, [value("x", shape=("n", 3)), value("c", bool, ())], Y, weights)

    found = look(model(made, 21, 10))

    assert found.format == "ONNX, IR version 10"
    assert found.facts == {"opsets": "ai.onnx 21", "producer": "tests"}
    assert [i.describe() for i in found.inputs] == ["x: f32 (n, 3)", "c: bool ()"]
    assert found.dtypes == {"f32": 1, "f16": 1}
    assert (found.parameters, found.nbytes) == (10, 32)
    assert found.operators == {"Foo": 2, "If": 1}
    assert found.unsupported == {"Foo": ("inside", "inside")}
    assert "cannot run  Foo: inside, inside" in str(found)


def test_a_function_of_the_model_runs_and_may_not_call_itself() -> None:
    def function(*nodes: bytes) -> bytes:
        made = field(1, "Twice") + field(4, "a") + field(5, "b") + fields(7, nodes)
        return field(25, made + field(9, field(2, 17)) + field(10, "my"))

    call = node("Twice", "x", "y", domain="my")
    good = model(graph([call], X, Y), more=function(node("Add", "a a", "b")), my=1)
    bad = model(graph([call], X, Y), more=function(node("Twice", "a", "b", domain="my")), my=1)

    assert load(good)(np.float32([3]))["y"].tolist() == [6]
    with pytest.raises(ModelError, match="calls itself"):
        load(bad)


def big_sample() -> bytes:
    """A file with a bit of everything, to be mutated."""
    branch = graph([node("Mul", "h two", "t")], [], ["t"], [tensor("two", np.float32([2]))])
    other = Graph(branch.replace(b"Mul", b"Add"))
    nodes = [
        node("Conv", "x w b", "h", pads=[1, 1, 1, 1]),
        node("Shape", "h", "s"),
        node("Constant", "", "c", value=np.array(True)),
        node("If", "c", "u", then_branch=branch, else_branch=other),
        node("Reshape", "u s", "y"),
    ]
    weights = [
        tensor("w", RNG.standard_normal((2, 1, 3, 3)).astype(np.float32)),
        tensor("b", np.zeros(2, np.float32), False),
        tensor("n", np.zeros(3, ml_dtypes.bfloat16)),
        external("e", (1,), "f4", location="gone"),
    ]
    made = graph(nodes, [value("x", shape=(1, 1, "h", 4))], [value("y")], weights[:3])
    return model(made, more=field(14, entry("k", "v" * 20)))


def test_mutated_files_are_refused_or_read_and_never_crash() -> None:
    whole = big_sample()
    assert load(whole)(np.ones((1, 1, 4, 4), np.float32))["y"].shape == (1, 2, 4, 4)
    rng, refused, rounds = np.random.default_rng(1), 0, 3000
    for k in range(rounds):
        data = bytearray(whole)
        for _ in range(int(rng.integers(1, 6))):
            at = int(rng.integers(len(data)))
            kind = rng.integers(4)
            if kind == 0:
                data[at] = int(rng.integers(256))
            elif kind == 1:
                data[at] ^= 1 << int(rng.integers(8))
            elif kind == 2:
                data[at : at + 1] = varint(int(rng.integers(2**62)))
            else:
                del data[at : at + int(rng.integers(1, 9))]
        if k % 4 == 0:
            data = data[: int(rng.integers(len(data)))]
        try:
            load(bytes(data))
        except (FileFormatError, ModelError):
            refused += 1
    assert rounds // 2 < refused
