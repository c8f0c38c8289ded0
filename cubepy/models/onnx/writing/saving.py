"""`cb.save`: a module, or a function of tensors, as an ONNX file of opset 21."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, ModelError
from cubepy.kernels.entry.options import shown
from cubepy.models.formats.onnx_schema import CODES
from cubepy.models.onnx.writing import control, elementwise, messages, networks, reductions, shapes
from cubepy.models.onnx.writing.graph import FORMS, Unwritable, Writer
from cubepy.nn import Module, arguments
from cubepy.nn.module import tables
from cubepy.runtime.device import use
from cubepy.runtime.whole_file import whole_file
from cubepy.tensor import Tensor, TensorSpec, as_tensor
from cubepy.tensor.ir import ABSENT, Graph
from cubepy.tensor.namespace.creation import zeros
from cubepy.tensor.record import Recorder, record

FAMILIES = (control, elementwise, networks, reductions, shapes)  # imported for their forms
MOST = (1 << 31) - 1
"""Bytes of a message of protobuf."""


def save(
    model: Callable[..., Any],
    path: str | os.PathLike[str],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Write what a module, or a function of tensors, computes as an ONNX file of opset 21.

    The model is called once, as it is (`eval()` before, for one that learns); what it computed of
    tensors is written, with the shapes of these arguments. The file is complete or not there.

    Args:
        model: called with the arguments; it gives a tensor, or a tuple, list or dict of tensors.
        path: ends with ".onnx".
        args, kwargs: tensors, arrays of any library and each `cb.TensorSpec` become inputs, named
            as the model's parameters are; what else is there is part of what is written. An input
            of a list has its number in its name. One array stands for the only argument.

    Raises:
        ArgumentError: another path, a model that cannot be called, or not with these arguments, or
            gives no tensors.
        ModelError: ops without a form in ONNX, all of them, with the first line that asked for one;
            weights that are quantized; more than 2 GB.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from cubepy import load, nn
        >>> path = tempfile.mkdtemp() + "/net.onnx"
        >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
        >>> save(net, path, [np.ones((2, 3), np.float32)])
        >>> load(path)(np.ones((2, 3), np.float32))["output"].shape
        (2, 4)
    """
    target = arguments.path("path", path)
    if target.suffix != ".onnx":
        raise ArgumentError(
            f"the path must end with .onnx, not {target.name!r}",
            hint="cb.save writes what a model computes; its weights are kept by "
            "nn.save_safetensors(model.state_dict(), 'net.safetensors'), and pickle keeps states "
            "of optimizers, numbers and tensors together",
        )
    if not callable(model):
        raise ArgumentError("a module or a function of tensors is written", hint="give a model")
    given: dict[str, Tensor] = {}
    if _is_array(args):
        args = (args,)
    _refuse_what_is_no_list(args, kwargs)
    home = next((p.device for p in model.parameters()), None) if isinstance(model, Module) else None
    with nullcontext() if home is None else use(home):
        args, kwargs = _named(model, args, dict(kwargs or {}), given)
    with cb.no_grad(), record(*given.values()) as recorder:
        results = _results(model(*args, **kwargs))
        copies = {name: as_tensor(t) for name, t in results.items()}
    pieces = Writing(model, recorder, given, copies).pieces()
    if sum(map(len, pieces)) > MOST:
        raise ModelError("a file of more than 2 GB, which protobuf does not have")
    with whole_file(target) as file:
        for piece in pieces:
            file.write(piece)


def _named(
    model: Any, args: Sequence[Any], kwargs: dict[str, Any], found: dict[str, Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with tensors for arrays; they are put into `found` by name."""
    try:
        signature = inspect.signature(model.forward if isinstance(model, Module) else model)
    except (TypeError, ValueError):
        several, names = True, []
    else:
        names = _names(signature, args, kwargs)
        kinds = [signature.parameters[n].kind for n in names]
        several = inspect.Parameter.VAR_POSITIONAL in kinds
    if several or len(names) < len(args):
        names = [f"input_{n}" for n in range(len(args))] if len(args) > 1 else ["input"]
    made = tuple(_taken(v, n, found) for n, v in zip(names, args, strict=False))
    return made, {key: _taken(value, key, found) for key, value in kwargs.items()}


def _names(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[str]:
    """The parameters that are given."""
    try:
        return list(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise ArgumentError(
            f"the model, which is called as it is written, cannot be: {error}",
            hint="give its inputs: cb.save(model, path, (x, y))",
        ) from None


def _refuse_what_is_no_list(args: Any, kwargs: Any) -> None:
    for name, value, kind in (
        ("args", args, Sequence),
        ("kwargs", {} if kwargs is None else kwargs, Mapping),
    ):
        if not isinstance(value, kind) or isinstance(value, str):
            raise ArgumentError(
                f"{name} of cb.save is a {'tuple' if kind is Sequence else 'dict'} of inputs, "
                f"not {shown(value)}",
                hint="give all inputs in one tuple: cb.save(model, path, (x, y))",
            )


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, TensorSpec, np.ndarray)) or hasattr(value, "__dlpack__")


def _taken(value: Any, name: str, found: dict[str, Tensor]) -> Any:
    if _is_array(value):
        if name in found:
            raise ArgumentError(f"two arguments are named {name!r}")
        if isinstance(value, TensorSpec):
            value = zeros(value.shape, dtype=value.dtype, device=value.device)
        found[name] = as_tensor(value).detach()
        return found[name]
    if isinstance(value, (list, tuple)) and any(map(_is_array, value)):
        made = [_taken(v, f"{name}_{n}", found) for n, v in enumerate(value)]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {k: _taken(v, f"{name}_{k}", found) for k, v in value.items()}
    return value


def _results(value: Any, name: str = "output") -> dict[str, Tensor]:
    """Tensors of a result by name."""
    if isinstance(value, Tensor):
        return {name: value}
    if isinstance(value, dict):
        parts: list[tuple[str, Any]] = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{name}_{n}", v) for n, v in enumerate(value)]
    else:
        raise ArgumentError(f"the model gives a {type(value).__name__}, which is no tensor")
    found: dict[str, Tensor] = {}
    for key, part in parts:
        for inner, tensor in _results(part, key).items():
            if inner in found:
                raise ArgumentError(f"two results are named {inner!r}")
            found[inner] = tensor
    return found


class Writing:
    """A recorded graph as a file."""

    def __init__(
        self, model: Any, recorder: Recorder, given: dict[str, Tensor], results: dict[str, Tensor]
    ) -> None:
        self.given, self.results = given, results
        outputs = [self._recorded(recorder, t) for t in results.values()]
        self.graph: Graph = recorder.graph(*outputs)
        self.lines = recorder.asked_at(self.graph)
        self.handles = dict(zip(self.graph.inputs, recorder.inputs, strict=True))
        self.titles: dict[int, str] = {}
        if isinstance(model, Module):
            for name, table, key in tables(model):
                self.titles.setdefault(id(table[key]), name)
        self.writer = Writer()
        self.writer.names |= {*given, *results}

    def _recorded(self, recorder: Recorder, tensor: Tensor) -> Tensor:
        """A result; one that was not computed in the block is an input that is given back."""
        recorder._input(tensor)
        return tensor

    def pieces(self) -> list[bytes]:
        """The file, in pieces.

        Raises:
            ModelError: ops without a form.
        """
        w, graph = self.writer, self.graph
        self.refuse()
        names: dict[int, str] = {ABSENT: ""}
        inputs = {id(t): name for name, t in self.given.items()}
        linear = self.only_linear()
        for at, handle in self.handles.items():
            if id(handle) in inputs:
                names[at] = inputs[id(handle)]
                continue
            names[at] = w.weight(self.titles.get(id(handle), "constant"), self.array(handle))
            if at in linear:
                w.only_linear.add(names[at])
        try:
            w.write(graph, names)
        except Unwritable as error:
            raise self.error([(error.at, str(error))]) from None
        for name, value in zip(self.results, graph.outputs, strict=True):
            w.result(names[value], name)
        specs = [graph.values[value] for value in graph.outputs]
        outputs = [w.info(n, spec) for n, spec in zip(self.results, specs, strict=True)]
        infos = [
            messages.value_info(name, t.dtype.numpy, t.shape) for name, t in self.given.items()
        ]
        return messages.model(messages.graph(w.nodes, w.weights, infos, outputs), cb.__version__)

    def refuse(self) -> None:
        """Raise where ops have no form.

        Raises:
            ModelError: all of them.
        """
        nodes = zip(self.graph.firsts, self.graph.nodes, strict=True)
        wrong = [(at, n.op) for at, n in nodes if n.op != "input" and n.op not in FORMS]
        if wrong:
            raise self.error(wrong)
        for spec in self.graph.values:
            if spec.dtype.numpy not in CODES:
                raise ModelError(f"ONNX has no {spec.dtype.name}")

    def error(self, wrong: list[tuple[int, str]]) -> ModelError:
        """An error that names ops, and the line of the first."""
        ops = ", ".join(dict.fromkeys(what for _, what in wrong))
        return ModelError(
            f"ops that ONNX has no form for: {ops}",
            location=self.lines.get(wrong[0][0]),
            hint="compute it from other ops; docs/onnx.md lists what is written",
        )

    def array(self, handle: Any) -> np.ndarray:
        """The elements of a weight.

        Raises:
            ModelError: they are codes.
        """
        name = self.titles.get(id(handle), "a constant")
        if handle.storage.kind != "dense":
            raise ModelError(
                f"the weight {name!r} is {handle.storage.kind}, which is not written",
                hint="save the model before it is quantized",
            )
        found: np.ndarray = handle.numpy()
        return found

    def only_linear(self) -> set[int]:
        """Inputs that linear layers of several axes read as their matrix, and nothing else."""
        uses = Counter(i for node in self.graph.nodes for i in node.inputs)
        uses.update(self.graph.outputs)
        layers = Counter(
            node.inputs[1]
            for node in self.graph.nodes
            if node.op == "linear" and len(self.graph.values[node.inputs[0]].shape) != 2
        )
        return {value for value, n in layers.items() if n == uses[value]}
