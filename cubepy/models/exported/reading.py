"""`cb.from_torch`: what `torch.export` finds in a module, as plain data.

The graph is taken before operators are decomposed: linear layers, norms, attention and LSTMs are
whole. Torch is imported here and nowhere else, when it is needed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cubepy.errors import ArgumentError, FileFormatError, ModelError
from cubepy.kernels.entry.options import shown
from cubepy.lang.dtypes import DType, dtype_named
from cubepy.models.exported.archive import harmless
from cubepy.models.exported.model import TorchModel
from cubepy.models.exported.program import Body, Exported, Input, Node, Ref, Tree
from cubepy.models.formats.pickled import DTYPES
from cubepy.runtime.device import use
from cubepy.tensor import as_tensor
from cubepy.tensor.storage import HOST

WRAPPED = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
"""Higher-order operators that only call a subgraph: where it is among their arguments."""
LEFT_OUT = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy")


def from_torch(
    module: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic: Any = None,
    device: Any = None,
    share: bool = False,
) -> TorchModel:
    """A module of ours that computes what a PyTorch module computes.

    Args:
        module: a `torch.nn.Module`; or an `ExportedProgram`, which needs no arguments.
        args, kwargs: what it is called with, as an example; tensors of torch. One tensor stands for
            the only argument.
        dynamic: which lengths calls decide: `dynamic_shapes` of `torch.export.export`. True: all of
            them, as far as the module allows it.
        device: where it runs; by default the current device.
        share: whether weights stay in torch's memory (nothing may change them there); otherwise
            they are copied.

    Raises:
        ArgumentError: torch is not installed, or `module` is none of its modules.
        ModelError: torch cannot export it, or operators are missing, with the lines of the module
            that ask for them.

    Example:
        >>> from_torch(3)
        Traceback (most recent call last):
            ...
        cubepy.errors.ArgumentError: from_torch takes a torch.nn.Module, not 3
          Hint: or a torch.export.ExportedProgram
    """
    if hasattr(module, "graph_signature") and hasattr(module, "graph_module"):
        return TorchModel(exported_of(module, share), device)
    bases = type(module).__mro__
    torch = _torch() if any(c.__module__.partition(".")[0] == "torch" for c in bases) else None
    if torch is None or not isinstance(module, torch.nn.Module):
        raise ArgumentError(
            f"from_torch takes a torch.nn.Module, not {shown(module)}",
            hint="or a torch.export.ExportedProgram",
        )
    given = dict(kwargs or {})
    args = (args,) if isinstance(args, torch.Tensor) else args
    try:
        shapes = _all_open(torch, args, given) if dynamic is True else dynamic
        with torch.no_grad():
            found = torch.export.export(module, tuple(args), given, dynamic_shapes=shapes)
    except Exception as error:  # torch raises whatever the module runs into
        raise ModelError(
            f"torch cannot export the {type(module).__name__}: {str(error)[:1000]}",
            hint="torch.export.export(module, args) says more",
        ) from error
    return TorchModel(exported_of(found, share), device)


def load(path: str | os.PathLike[str]) -> TorchModel:
    """A model from a file of `torch.export.save`; torch reads it.

    Raises:
        ArgumentError: torch is not installed.
        FileFormatError: a damaged file, or one that would run something when torch reads it.
    """
    torch = _torch()
    file = harmless(path)
    try:
        found = torch.export.load(file)
    except Exception as error:  # whatever torch runs into
        raise FileFormatError(
            f"{os.fspath(path)}: torch cannot read the exported program: {str(error)[:300]}",
            hint="write it again with torch.export.save, of the same version of torch",
        ) from None
    return TorchModel(exported_of(found, share=True))


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise ArgumentError(
            "modules and exported programs of PyTorch need the package torch",
            hint="pip install torch; or give weights (safetensors) or an ONNX file",
        ) from None


def _all_open(torch: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Every length of every tensor as torch finds it."""

    def opened(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return dict.fromkeys(range(value.ndim), torch.export.Dim.AUTO)
        if isinstance(value, Mapping):
            return {key: opened(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(opened(one) for one in value)
        return None

    if kwargs:
        return {**_named(args, opened), **{key: opened(one) for key, one in kwargs.items()}}
    return tuple(opened(one) for one in args)


def _named(args: Sequence[Any], opened: Any) -> dict[str, Any]:
    if args:
        raise ArgumentError(
            "dynamic=True takes args or kwargs, not both", hint="write dynamic_shapes yourself"
        )
    return {}


def exported_of(found: Any, share: bool = False) -> Exported:
    """An `ExportedProgram` as plain data, but for its weights.

    Raises:
        ModelError: the module changes its buffers or its arguments when it runs.
    """
    if any(_mutates(node) for graph in _graphs(found) for node in graph.nodes):
        found = found.run_decompositions({})  # the same operators, without writing in place
    signature = found.graph_signature
    weights = _weights(found, share)
    inputs = [_input(found, spec) for spec in signature.input_specs]
    outputs = []
    for spec in signature.output_specs:
        if spec.kind.name != "USER_OUTPUT":
            raise ModelError(
                f"the module changes {spec.target or spec.arg.name!r} when it runs",
                hint="call module.eval() before, or give back what it writes",
            )
        name = getattr(spec.arg, "name", None)
        fixed = type(spec.arg).__name__ == "ConstantArgument"
        outputs.append(spec.arg.value if fixed else Ref(name or ""))
    nodes = Reader(found.graph_module).nodes(found.graph, {})
    for n, one in enumerate(inputs):  # weights of complex numbers are kept as pairs
        if one.kind == "weight" and _complex(found, one.key):
            inputs[n] = replace(one, name=f"{one.name}.pairs")
            pairs = Node(one.name, "aten.view_as_complex.default", (Ref(inputs[n].name),))
            nodes.insert(0, pairs)
    ranges = {str(symbol): _range(bounds) for symbol, bounds in found.range_constraints.items()}
    trained = {s.target for s in signature.input_specs if s.kind.name == "PARAMETER"}
    saved = set(found.state_dict)
    return Exported(
        nodes,
        inputs,
        outputs,
        tree_of(found.call_spec.in_spec),
        tree_of(found.call_spec.out_spec),
        weights,
        frozenset(trained),
        frozenset(key for key in weights if key not in saved),
        ranges,
    )


def _complex(found: Any, key: str) -> bool:
    value = found.state_dict[key] if key in found.state_dict else found.constants.get(key)
    return bool(value.is_complex())


def _graphs(found: Any) -> list[Any]:
    modules = [m for m in found.graph_module.modules() if hasattr(m, "graph")]
    return [m.graph for m in modules]


def _mutates(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and schema.is_mutable


def _range(bounds: Any) -> tuple[int, int | None]:
    low, high = bounds.lower, bounds.upper
    limit = 1 << 60
    most = int(high) if getattr(high, "is_Integer", False) and int(high) < limit else None
    return (int(low) if getattr(low, "is_Integer", False) else 0), most


def _weights(found: Any, share: bool) -> dict[str, Any]:
    """Tensors by name; one object for those that lie in the same memory."""
    kept: dict[Any, Any] = {}
    weights = {}
    for spec in found.graph_signature.input_specs:
        if spec.kind.name in ("USER_INPUT", "TOKEN"):
            continue
        key = spec.target
        value = found.state_dict[key] if key in found.state_dict else found.constants.get(key)
        if not hasattr(value, "untyped_storage"):
            raise ModelError(f"the module reads {key!r}, which is no tensor")
        where = (value.data_ptr(), tuple(value.shape), value.stride(), str(value.dtype))
        if value.numel() == 0:
            where = (key,)  # type: ignore[assignment]
        if where not in kept:
            kept[where] = tensor_of(value, share)
        weights[key] = kept[where]
    return weights


def tensor_of(value: Any, share: bool = False) -> Any:
    """A tensor of torch as ours; with `share` in the same memory, where it is on the host."""
    value = value.detach()
    if value.is_complex():
        value = _torch().view_as_real(value.resolve_conj())
    value = (value if share else value.clone()).cpu().contiguous()
    name = dtype_of(value.dtype)
    if name is None:
        raise ModelError(f"weights of {value.dtype}, which tensors do not have")
    plain = value
    if name.name in ("bf16", "fp8_e4m3", "fp8_e5m2"):
        torch = _torch()
        plain = value.view(torch.int16 if name.bits == 16 else torch.uint8)
    array = plain.numpy()
    with use(HOST):
        return as_tensor(array.view(name.numpy) if plain is not value else array)


def dtype_of(dtype: Any) -> DType | None:
    """Our dtype for one of torch's; None if there is none."""
    name = DTYPES.get(str(dtype).removeprefix("torch."))
    return None if name is None else dtype_named(name)


def _input(found: Any, spec: Any) -> Input:
    kind = spec.kind.name
    name = spec.arg.name
    if kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
        return Input(name, "weight", spec.target)
    if kind != "USER_INPUT":
        raise ModelError(f"the module reads {spec.target!r}, which is no tensor ({kind})")
    argument = type(spec.arg).__name__
    if argument == "ConstantArgument":
        return Input(name, "fixed", value=spec.arg.value)
    if argument == "SymIntArgument":
        return Input(name, "number")
    if argument != "TensorArgument":
        raise ModelError(f"the argument {name!r} is neither a tensor nor an integer ({argument})")
    node = next(n for n in found.graph.nodes if n.name == name)
    value = node.meta["val"]
    dtype = dtype_of(value.dtype)
    if dtype is None:
        raise ModelError(f"the argument {name!r} is of {value.dtype}, which tensors do not have")
    shape = tuple(n if isinstance(n, int) else str(n) for n in value.shape)
    return Input(name, "tensor", dtype=dtype, shape=shape)


class Reader:
    """Nodes of torch's graph as ours; subgraphs that are only called stand where they are called.

    Args:
        module: holds the subgraphs.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.calls = 0

    def nodes(self, graph: Any, given: dict[str, Any], prefix: str = "") -> list[Node]:
        """The nodes of a graph whose inputs are `given`; with their outputs under `prefix`."""
        known = dict(given)
        made: list[Node] = []
        for node in graph.nodes:
            if node.op == "placeholder":
                known.setdefault(node.name, Ref(node.name))
            elif node.op == "get_attr":
                known[node.name] = _attribute(self.module, node.target)
            elif node.op == "output":
                known[""] = self.value(node.args[0], known)
            else:
                name = prefix + node.name
                known[node.name] = Ref(name)
                made += self.node(node, name, known)
        given[""] = known.get("")
        return made

    def node(self, node: Any, name: str, known: dict[str, Any]) -> list[Node]:
        """A call as nodes."""
        at = WRAPPED.get(getattr(node.target, "__name__", ""))
        if at is None:
            _laid_out(node)
            known = {**known, **self.bodies(node, name)}
            args = tuple(self.value(a, known) for a in node.args)
            kwargs = {k: self.value(v, known) for k, v in node.kwargs.items() if k not in LEFT_OUT}
            return [Node(name, name_of(node.target), args, kwargs, line_of(node))]
        inner = known[node.args[at].name]
        self.calls += 1
        values = [self.value(a, known) for a in node.args[at + 1 :]]
        names = [n.name for n in inner.graph.nodes if n.op == "placeholder"]
        given = dict(zip(names, values, strict=True))
        outer, self.module = self.module, inner
        made = self.nodes(inner.graph, given, f"{name}.{self.calls}.")
        self.module = outer
        results = given[""]
        many = list(results) if isinstance(results, (list, tuple)) else [results]
        return [*made, Node(name, "cubepy.values", tuple(many), {}, line_of(node))]

    def bodies(self, node: Any, name: str) -> dict[str, Any]:
        """The graphs that a branch or a loop is given, by the names under which it is."""
        found = {}
        for one in node.args if name_of(node.target).startswith("higher_order.") else ():
            if getattr(one, "op", "") != "get_attr":
                continue
            inner = _attribute(self.module, one.target)
            if not hasattr(inner, "graph"):
                continue
            self.calls += 1
            prefix = f"{name}.{self.calls}."
            inputs = [n.name for n in inner.graph.nodes if n.op == "placeholder"]
            given: dict[str, Any] = {n: Ref(prefix + n) for n in inputs}
            outer, self.module = self.module, inner
            nodes = self.nodes(inner.graph, given, prefix)
            self.module = outer
            results = given[""]
            many = results if isinstance(results, (list, tuple)) else [results]
            found[one.name] = Body(tuple(prefix + n for n in inputs), tuple(nodes), tuple(many))
        return found

    def value(self, value: Any, known: dict[str, Any]) -> Any:
        """An argument as plain data."""
        if isinstance(value, (list, tuple)):
            return [self.value(v, known) for v in value]
        if isinstance(value, slice):
            raise ModelError("an index of a graph that is a slice")
        kind = type(value).__name__
        if kind == "Node":
            return known[value.name]
        if kind == "dtype":
            dtype = dtype_of(value)
            if dtype is None and value.is_complex:
                return str(value).removeprefix("torch.")
            if dtype is None:
                raise ModelError(f"the graph has values of {value}, which tensors do not have")
            return dtype
        return None if kind in ("device", "layout", "memory_format") else value


def _laid_out(node: Any) -> None:
    """Raise where strides are asked for of elements that lie in another order than they count.

    Raises:
        ModelError: with the line.
    """
    if not name_of(node.target).startswith("aten.as_strided"):
        return
    given = node.args[0].meta.get("val")
    if given is None or not given.is_contiguous() or given.storage_offset():
        raise ModelError(
            f"as_strided of a tensor that is a view of another one ({line_of(node)})",
            hint="call .contiguous() before it",
        )


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def name_of(target: Any) -> str:
    """The name of an operator, with its overload: "aten.add.Tensor", "_operator.mul"."""
    if hasattr(target, "_schema"):
        return str(target)
    if type(target).__module__.startswith("torch._higher_order_ops"):
        return f"higher_order.{target.__name__}"
    name = getattr(target, "__name__", str(target))
    module = str(getattr(target, "__module__", "") or "")
    return f"{module}.{name}" if module else name


def line_of(node: Any) -> str:
    """The line that asked for a node: file, number and what stands there."""
    lines = str(node.meta.get("stack_trace") or "").strip().splitlines()
    for at in range(len(lines) - 1, -1, -1):
        text = lines[at].strip()
        if text.startswith("File "):
            file, number = text.removeprefix("File ").split(", ")[:2]
            code = lines[at + 1].strip() if at + 1 < len(lines) else ""
            return f"{file.strip(chr(34))}:{number.removeprefix('line ')}: {code}".strip(": ")
    return ""


def tree_of(spec: Any) -> Tree:
    """A `TreeSpec` of torch; what it does not know by name is a tuple of its parts."""
    if spec.is_leaf():
        return Tree("leaf")
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    parts = tuple(tree_of(one) for one in children)
    kind, context = spec.type, spec.context
    if kind is list:
        return Tree("list", parts)
    if issubclass(kind, dict):
        keys = context[1] if isinstance(context, (list, tuple)) and _paired(context) else context
        named = "dict" if kind is dict or kind.__module__ == "collections" else "fields"
        return Tree(named, parts, tuple(keys), kind.__name__)
    fields = getattr(kind, "_fields", None)
    if fields is None and hasattr(context, "_fields"):
        fields = context._fields
    if fields is not None:
        return Tree("fields", parts, tuple(fields), kind.__name__)
    return Tree("tuple", parts, (), getattr(kind, "__name__", ""))


def _paired(context: Any) -> bool:
    """Whether a context is (something, keys), as that of a defaultdict is."""
    return len(context) == 2 and isinstance(context[1], (list, tuple))
