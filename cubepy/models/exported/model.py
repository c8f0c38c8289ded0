"""`TorchModel`: the graph of a PyTorch module as a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import nn
from cubepy.errors import ModelError
from cubepy.models.exported import targets
from cubepy.models.exported.bodies import computed, value_in, with_bodies
from cubepy.models.exported.complexes import is_complex
from cubepy.models.exported.products import WEIGHTS, linear_products
from cubepy.models.exported.program import Exported, Input, Node, Ref, read_of, refs
from cubepy.models.exported.records import run_of
from cubepy.models.plain import array_of_plain, is_plain
from cubepy.models.rebuilt import Rebuilt
from cubepy.nn import Parameter
from cubepy.runtime.device import as_device, use
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.methods.target import is_device, target_of

assert targets.__all__  # imported for its records

SAID = "torch._assert_scalar aten._assert_scalar.default"


class TorchModel(Rebuilt):
    """A PyTorch module's graph, with its weights under torch's names.

    Called as the module was: the same arguments, the same structure of results. Where a module of
    torch was a linear layer, an `nn.Linear` has its weights, so that `quantize` finds it; weights
    that are one in torch are one here. They ask for no gradients until `requires_grad_()`.

    Args:
        exported: the graph and the weights.
        device: where the weights go; by default the current device.

    Raises:
        ModelError: operators that nothing computes; the error names all of them with their lines.

    Attributes:
        exported: the graph as plain data.
    """

    def __init__(self, exported: Exported, device: Any = None) -> None:
        super().__init__()
        self.__dict__["exported"] = exported
        self.__dict__["where"] = [None if device is None else as_device(device)]
        found = linear_products(exported, list(needed(exported)))
        refuse_missing(found)
        layers = linear_layers(exported, found)
        self.__dict__["homes"] = _tree(self, exported, layers, device)
        for path, names in matrices(exported, found).items():
            self.get_submodule(path).__dict__["matrices"] = tuple(names)
        self.__dict__["taken"] = [Taken(i) for i in exported.inputs if i.kind not in WEIGHTS]
        self.__dict__["steps"] = Steps(self, found, layers)
        self.train(False)

    exported: Exported
    where: list[Any]
    homes: dict[str, tuple[dict[str, Any], str]]
    taken: list[Taken]
    steps: Steps

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The results, in the structure that the module gives.

        Raises:
            ModelError: arguments of another structure, dtype or shape than the graph takes.
        """
        leaves = self.exported.takes.flatten((args, kwargs))
        lengths: dict[str, tuple[int, str]] = {}
        device = self.where[0]
        given = [
            taken(one, device, lengths, self.exported.ranges)
            for taken, one in zip(self.taken, leaves, strict=True)
        ]
        with use(device if device is not None else cb.current_device()):
            found = self.steps.program(given)
        return self.exported.gives.build(iter(found))

    def to(
        self,
        target: Any = None,
        dtype: Any = None,
        non_blocking: bool = False,
        *,
        device: Any = None,
    ) -> TorchModel:
        """Move the weights to a device, or convert the float ones to a dtype; gives the model."""
        target, dtype = target_of(target, dtype, device)
        super().to(target, dtype)
        if is_device(target):
            self.where[0] = as_device(target)
        return self

    def source(self) -> tuple[Any, ...]:
        """The graph and the device."""
        return self.exported, self.where[0]

    def extra_repr(self) -> str:
        """The inputs."""
        return ", ".join(taken.shown() for taken in self.taken)


class Steps:
    """The nodes, which run as one program for each kind of arguments.

    Attributes:
        program: gives the results of what a call gives.
    """

    def __init__(self, model: TorchModel, nodes: list[Node], layers: dict[str, str]) -> None:
        exported = model.exported
        self.homes, self.outputs = model.homes, exported.outputs
        self.weights = {i.name: i.key for i in exported.inputs if i.kind in WEIGHTS}
        self.names = [i.name for i in exported.inputs if i.kind not in WEIGHTS]
        self.layers = {name: model.get_submodule(path) for name, path in layers.items()}
        self.nodes: list[Any] = [(node, run_of(node.target)) for node in nodes]
        uses = Counter(name for node in nodes for name in read_of(node))
        uses.update(name for name in refs(self.outputs))
        last = {name: n for n, node in enumerate(nodes) for name in read_of(node)}
        ended: dict[int, list[str]] = {}
        for name, n in last.items():
            if name not in set(refs(self.outputs)):
                ended.setdefault(n, []).append(name)
        self.ended = ended
        self.program = cb.jit(self.traced)

    def __cubepy_reads__(self, reads: Any) -> None:
        """The graph stays as it is, but for what its layers hold."""
        for layer in self.layers.values():
            reads.inside(layer)

    def traced(self, given: list[Any]) -> list[Any]:
        """All nodes, one after the other."""
        env: dict[str, Any] = dict(zip(self.names, given, strict=True))
        for name, key in self.weights.items():
            table, last = self.homes[key]
            env[name] = table[last]
        for n, (node, run) in enumerate(self.nodes):
            layer = self.layers.get(node.name)
            if layer is not None:
                node = replace(node, args=node.args[:1])
            env[node.name] = computed(node, layer or run, env)
            for name in self.ended.get(n, ()):
                env.pop(name, None)
        found = [value_in(o, env) for o in self.outputs]
        if is_complex(found):
            raise ModelError(
                "the module gives complex numbers, which tensors do not have",
                hint="give torch.view_as_real(x)",
            )
        return found


class Taken:
    """An input: what a call gives becomes what the graph takes, or an error."""

    def __init__(self, info: Input) -> None:
        self.info = info

    def __call__(
        self,
        value: Any,
        device: Any,
        lengths: dict[str, tuple[int, str]],
        ranges: dict[str, tuple[int, int | None]],
    ) -> Any:
        info = self.info
        if info.kind == "fixed":
            if type(value) is not type(info.value) or value != info.value:
                raise ModelError(
                    f"the argument {info.name!r} was {info.value!r} when the module was exported, "
                    f"and cannot be {value!r}",
                    hint="export the module again with the other value",
                )
            return value
        if info.kind == "number":
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise ModelError(f"the argument {info.name!r} is an integer, not {value!r}")
            return int(value)
        assert info.dtype is not None
        if not isinstance(value, Tensor):
            numpy = info.dtype.numpy
            value = array_of_plain(value, numpy, info.name) if is_plain(value) else value
            value = cb.tensor(value)
        if value.dtype is not info.dtype:
            raise ModelError(
                f"the argument {info.name!r} is {info.dtype.name}, not {value.dtype.name}",
                hint=f"give x.astype({info.dtype.name!r})",
            )
        self.check(value.shape, lengths, ranges)
        return value if device is None else value.to(device)

    def check(
        self,
        shape: tuple[int, ...],
        lengths: dict[str, tuple[int, str]],
        ranges: dict[str, tuple[int, int | None]],
    ) -> None:
        """Compare a shape with what was exported.

        Raises:
            ModelError: another rank or length.
        """
        wanted = self.info.shape
        name = self.info.name
        if len(wanted) != len(shape):
            raise ModelError(f"the argument {self.shown()} was given with the shape {list(shape)}")
        for axis, (length, n) in enumerate(zip(wanted, shape, strict=True)):
            if isinstance(length, int):
                if length != n:
                    raise ModelError(
                        f"the argument {self.shown()} was given with the shape {list(shape)}",
                        hint="lengths that calls decide are named by dynamic=",
                    )
                continue
            low, high = ranges.get(length, (0, None))
            if n < low or (high is not None and n > high):
                most = "any" if high is None else high
                raise ModelError(f"axis {axis} of {name!r} must be from {low} to {most}, not {n}")
            known = lengths.setdefault(length, (n, name))
            if known[0] != n and length.isidentifier():
                raise ModelError(
                    f"axis {axis} of {name!r} is {n}, but that of {known[1]!r} is {known[0]}: "
                    "the graph takes them as one length"
                )

    def shown(self) -> str:
        """Name, dtype and lengths."""
        info = self.info
        if info.kind == "fixed":
            return f"{info.name}={info.value!r}"
        if info.dtype is None:
            return f"{info.name}: integer"
        return f"{info.name}: {info.dtype.name}[{', '.join(map(str, info.shape))}]"


def needed(exported: Exported) -> Iterator[Node]:
    """The nodes that results are computed of, and what torch asks of lengths."""
    wanted = set(refs(exported.outputs))
    kept: list[Node] = []
    measured = of_elements(exported.nodes)
    for node in reversed(exported.nodes):
        said = node.target in SAID and not measured & read_of(node)
        if node.name in wanted or said:
            kept.append(node)
            wanted |= read_of(node)
    return reversed(kept)


def of_elements(nodes: list[Node]) -> set[str]:
    """Names of numbers that are elements of tensors, and of what follows of them: what a module
    asserts of these is passed over.
    """
    found: set[str] = set()
    for node in nodes:
        element = node.target.startswith(("aten.item.", "aten._local_scalar_dense."))
        if element or (not node.target.startswith("aten.") and found & read_of(node)):
            found.add(node.name)
    return found


def runs(target: str) -> bool:
    """Whether an operator of an exported program runs: in place, too, which is undone before.

    Example:
        >>> runs("aten.add_.Tensor"), runs("aten.svd.default")
        (True, False)
    """
    base = target.replace("_.", ".", 1) if target.startswith("aten.") else target
    return run_of(target) is not None or run_of(base) is not None or "wrap_with" in target


def refuse_missing(nodes: list[Node]) -> None:
    """Raise where nothing computes an operator.

    Raises:
        ModelError: all of them, with the lines that asked.
    """
    lines: dict[str, dict[str, None]] = {}
    for node in with_bodies(nodes):
        if run_of(node.target) is None:
            lines.setdefault(node.target, {})[node.line or f"node {node.name}"] = None
    if lines:
        texts = [f"{name} ({'; '.join(list(at)[:3])})" for name, at in lines.items()]
        raise ModelError(
            "operators that are missing: " + ", ".join(texts),
            hint="write these lines with other operators; docs/torch.md lists what runs",
        )


def linear_layers(exported: Exported, nodes: list[Node]) -> dict[str, str]:
    """Nodes that are linear layers of the module: by their names, the paths of the layers."""
    keys = {i.name: i.key for i in exported.inputs if i.kind == "weight"}
    of: dict[str, set[str]] = {}
    same: dict[int, list[str]] = {}
    for key, value in exported.weights.items():
        home, _, last = key.rpartition(".")
        of.setdefault(home, set()).add(last)
        if home and last == "weight":
            same.setdefault(id(value), []).append(home)
    found, alone = {}, {*multiplied(exported, nodes)}
    for node in nodes:
        given = [keys.get(a.name) if isinstance(a, Ref) else a for a in node.args[1:]]
        if node.target != "aten.linear.default" or given[0] is None:
            continue
        if id(exported.weights[given[0]]) not in alone:
            continue  # rows of it are taken elsewhere, or the like
        bias = given[1] if len(given) > 1 else None
        if bias is None and len(node.args) > 2 and node.args[2] is not None:
            continue  # it is computed
        parts = {"weight"} if bias is None else {"weight", "bias"}
        homes = [
            home
            for home in same.get(id(exported.weights[given[0]]), ())
            if of[home] == parts and bias in (None, f"{home}.bias")
        ]
        if homes:
            found[node.name] = given[0][:-7] if given[0][:-7] in homes else homes[0]
    return found


def matrices(exported: Exported, nodes: list[Node]) -> dict[str, list[str]]:
    """Weights of no layer of their own that linear products alone read, such as the projections of
    attention: their names, by the path of the module.
    """
    named: dict[int, list[str]] = {}
    for key, value in exported.weights.items():
        named.setdefault(id(value), []).append(key)
    found: dict[str, list[str]] = {}
    for which in multiplied(exported, nodes):
        keys = named.get(which, ())
        if all(key in exported.trained for key in keys):
            for home, _, last in (key.rpartition(".") for key in keys):
                found.setdefault(home, []).append(last)
    return found


def multiplied(exported: Exported, nodes: list[Node]) -> list[int]:
    """The weights, by their identities, that linear products alone read."""
    inputs = [i for i in exported.inputs if i.kind in WEIGHTS]
    one = {i.name: id(exported.weights[i.key]) for i in inputs}
    read: Counter[int] = Counter(one[name] for name in refs(exported.outputs) if name in one)
    by_products: Counter[int] = Counter()
    for node in with_bodies(nodes):
        for name in refs([node.args, node.kwargs]):
            if name in one:
                read[one[name]] += 1
        if node.target == "aten.linear.default" and isinstance(node.args[1], Ref):
            by_products[one.get(node.args[1].name, 0)] += 1
    return [which for which, count in by_products.items() if which and count == read[which]]


def _tree(
    model: nn.Module, exported: Exported, layers: dict[str, str], device: Any
) -> dict[str, tuple[dict[str, Any], str]]:
    """Modules with the weights under their names; tables and keys of all weights."""
    linear, homes, known = set(layers.values()), {}, {}
    home: nn.Module
    where = cb.current_device() if device is None else as_device(device)
    for key, value in exported.weights.items():
        *parts, last = key.split(".")
        home = model
        for n, part in enumerate(parts):
            if part not in home._modules:
                kind = nn.Linear if ".".join(parts[: n + 1]) in linear else nn.Module
                home._modules[part] = made = kind.__new__(kind)
                nn.Module.__init__(made)
            home = home._modules[part]
        trained = key in exported.trained
        table = home._parameters if trained else home._buffers
        if id(value) not in known:
            tensor = as_tensor(value).to(where)
            known[id(value)] = Parameter(tensor, False) if trained else tensor
        table[last] = known[id(value)]
        if key in exported.unsaved:
            home._unsaved.add(last)
        homes[key] = (table, last)
    for path in linear:
        layer = model.get_submodule(path)
        if "bias" not in layer._parameters:
            layer.__dict__["bias"] = None
        layer.__dict__.update(zip(("out_features", "in_features"), layer.weight.shape, strict=True))
    return homes
