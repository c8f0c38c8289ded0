"""Opening files that are drawn: a result or an error of ours, soon, in little memory."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cubepy as cb
from cubepy.errors import CubeError
from cubepy.models.formats.gguf import read_gguf
from cubepy.models.generation.tokenizer import gguf_tokenizer
from cubepy.models.onnx import load, look
from tests.models.folders import fixture, folder
from tests.models.gguf_files import gguf_of, metadata_of
from tests.models.odd import folders, graphs, pickles, texts
from tests.models.onnx.drawn import tabular
from tests.models.onnx.drawn.fused import DRAWS
from tests.models.onnx.drawn.node import Drawn, file_of
from tests.models.onnx.writer import graph, model, node, tensor
from tests.models.written import typed

TABLES = (
    tabular.tree_regressor,
    tabular.tree_classifier,
    tabular.tree_ensemble,
    tabular.linear,
    tabular.support_vectors,
    tabular.features,
)
SECONDS = 1.0
MEMORY = 64 << 20
"""What a file may take beside its own bytes."""


class Found(NamedTuple):
    """What became of a file: whether it was refused, and what is wrong with that ("": nothing)."""

    refused: bool
    seconds: float
    memory: int
    wrong: str


class Kind(NamedTuple):
    """A kind of files: what draws one, and what opens it."""

    suffix: str
    draw: Callable[[np.random.Generator, Path], tuple[bytes, Any]]
    open: Callable[[Path, Any], None]


def _run_onnx(path: Path, given: Any) -> None:
    look(path)
    found = load(path)
    found(**given) if isinstance(given, dict) else found(given)


def _onnx_bytes(rng: np.random.Generator, home: Path) -> tuple[bytes, Any]:
    """A graph with weights and a branch of which some bytes are others."""
    made, given = graphs.of_functions(rng) if rng.random() < 0.5 else graphs.of_sequences(rng)
    if rng.random() < 0.3:
        nodes = [node("Gemm", "x w b", "h", alpha=0.5), node("Softmax", "h", "y", axis=-1)]
        kept = [
            tensor("w", np.ones((3, 4), np.float32)),
            tensor("b", np.ones(4, np.float32), False),
        ]
        made, given = model(graph(nodes, ["x"], ["y"], kept)), graphs.X
    return mutated(made, rng), given


def _odd(value: Any, rng: np.random.Generator) -> Any:
    """A number or text that stands nowhere in a right file."""
    if isinstance(value, str):
        return str(rng.choice(["", "x", "BRANCH_GT", "LEAF", "SOFTMAX", "\u00e9" * 300]))
    if isinstance(value, float):
        return float(rng.choice([0.0, -1.0, 1e30, -1e38, np.nan, np.inf]))
    return int(rng.choice([0, 1, -1, 2, 7, 1 << 20, 2**31, 2**62, -(2**63)]))


def _changed(drawn: Drawn, rng: np.random.Generator) -> None:
    """Other numbers in attributes of a node."""
    name = list(drawn.how)[rng.integers(len(drawn.how))]
    value, what = drawn.how[name], rng.integers(4)
    if not isinstance(value, (list, np.ndarray)):
        drawn.how[name] = _odd(value, rng)
    elif isinstance(value, np.ndarray):
        drawn.how[name] = value[: rng.integers(len(value) + 1)] if what else value[::-1].copy()
    elif value and what == 0:
        del value[rng.integers(len(value)) :]
    elif value and what == 1:
        value[rng.integers(len(value))] = value[rng.integers(len(value))]
    elif value:
        value[rng.integers(len(value))] = _odd(value[0], rng)


def _moved(drawn: Drawn, rng: np.random.Generator) -> None:
    """An input that is absent, of another shape, length or dtype, or holds other numbers."""
    at, what = int(rng.integers(len(drawn.given))), rng.integers(6)
    one = drawn.given[at]
    if one is None:
        return
    name, array = one[0], np.asarray(one[1])
    if what == 0 and at:
        drawn.given[at] = None
    elif what == 1 and array.ndim:
        array = array[: int(rng.integers(len(array) + 1))]
    elif what == 2:
        array = array.reshape([array.shape, (-1,), (1, *array.shape)][int(rng.integers(3))])
    elif what == 3:
        array = array.T
    elif what == 4 and array.dtype.kind in "fiu":
        array = array.astype(str(rng.choice(["u1", "i4", "i8", "f2", "f4", "f8"])))
    elif array.dtype.kind in "iu" and array.size:
        array = array.copy()
        extremes = np.iinfo(array.dtype)
        array.flat[rng.integers(array.size)] = rng.choice([extremes.min, extremes.max, 0])
    if drawn.given[at] is not None:
        drawn.given[at] = (name, np.ascontiguousarray(array).reshape(array.shape))


def _nodes(draws: Sequence[Any], inputs: bool) -> Callable[..., tuple[bytes, Any]]:
    """Models of one node of which some bytes, numbers of attributes, or inputs are others."""

    def draw(rng: np.random.Generator, home: Path) -> tuple[bytes, Any]:
        drawn = draws[rng.integers(len(draws))](rng)
        if rng.random() < 0.2:
            made, given, _ = file_of(drawn)
            return mutated(made, rng), given
        for _ in range(rng.integers(0, 4)):
            if inputs and (not drawn.how or rng.random() < 0.5):
                _moved(drawn, rng)
            elif drawn.how:
                _changed(drawn, rng)
        if not any(drawn.given):
            return b"", {}
        made, given, _ = file_of(drawn)
        return made, given

    return draw


def mutated(raw: bytes, rng: np.random.Generator) -> bytes:
    """A few bytes changed, cut, repeated, or made large."""
    data = bytearray(raw)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(0, max(len(data), 1)))
        what = rng.integers(0, 6)
        if what == 0:
            data[at : at + 1] = bytes([int(rng.integers(0, 256))])
        elif what == 1:
            data[at : at + 8] = b"\xff" * 8
        elif what == 2:
            del data[at : at + int(rng.integers(1, 32))]
        elif what == 3:
            data[at:at] = data[: int(rng.integers(1, 64))]
        elif what == 4:
            data = data[:at]
        else:
            data[at : at + 4] = bytes(4)
    return bytes(data)


_llama: list[Any] = []


def _gguf(rng: np.random.Generator, home: Path) -> tuple[bytes, Any]:
    """A small Llama whose metadata and tensors are drawn from the right ones."""
    if not _llama:
        net = cb.load(folder(home / "llama", fixture("decoders")["llama"]))
        data = {k: typed(v) for k, v in metadata_of(net.config).items()}
        (home / "right.gguf").write_bytes(gguf_of(net))
        tensors = read_gguf(home / "right.gguf").tensors.values()
        rows = [(t.name, t.shape[::-1], 0, np.asarray(t.data).tobytes()) for t in tensors]
        _llama.append((data, rows))
    data, rows = _llama[0]
    more = texts.vocabulary(rng) if rng.random() < 0.2 else {}
    return texts.gguf_file(rng, data | more, rows), None


def _open_model(path: Path, given: Any) -> None:
    cb.look(path)
    found = cb.load(path)
    if not isinstance(found, dict):
        with cb.no_grad():
            found(np.array([[3, 4, 5]]))


def _vocabulary(rng: np.random.Generator, home: Path) -> tuple[bytes, Any]:
    data = {"general.architecture": typed("llama")} | texts.vocabulary(rng)
    return texts.gguf_file(rng, data, [("x", (2,), 0, bytes(8))]), None


def _open_vocabulary(path: Path, given: Any) -> None:
    found = gguf_tokenizer(read_gguf(path), str(path))
    if found is not None:
        tokens = found.encode("a b ab \u4e16\n<s>")
        found.decode([*tokens, 0, 5])


KINDS = {
    "functions": Kind("onnx", lambda rng, home: graphs.of_functions(rng), _run_onnx),
    "sequences": Kind("onnx", lambda rng, home: graphs.of_sequences(rng), _run_onnx),
    "onnx": Kind("onnx", _onnx_bytes, _run_onnx),
    "tables": Kind("onnx", _nodes(TABLES, False), _run_onnx),
    "nodes": Kind("onnx", _nodes(tuple(DRAWS.values()), True), _run_onnx),
    "gguf": Kind("gguf", _gguf, _open_model),
    "vocabularies": Kind("gguf", _vocabulary, _open_vocabulary),
    "safetensors": Kind(
        "safetensors", lambda rng, home: (texts.safetensors_file(rng), None), _open_model
    ),
    "pickles": Kind("pt", lambda rng, home: (pickles.torch_file(rng), None), _open_model),
    "folders": Kind("json", folders.folder, folders.open_folder),
    "states": Kind("safetensors", folders.state, folders.open_state),
}


def tried(kind: str, seed: tuple[int, ...], home: Path) -> Found:
    """What becomes of the file of a seed."""
    one = KINDS[kind]
    raw, given = one.draw(np.random.default_rng(seed), home)
    path = home / f"drawn.{one.suffix}"
    path.write_bytes(raw)
    tracemalloc.reset_peak()
    before, start = tracemalloc.get_traced_memory()[0], time.process_time()
    wrong, refused = "", False
    try:
        one.open(path, given)
    except CubeError:
        refused = True
    except Exception as error:
        wrong = f"{type(error).__name__}: {str(error)[:200]}"
    seconds = time.process_time() - start
    memory = tracemalloc.get_traced_memory()[1] - before
    if not wrong and memory > len(raw) + MEMORY:
        wrong = f"{memory >> 20} MB for a file of {len(raw)} bytes"
    return Found(refused, seconds, memory, wrong)
