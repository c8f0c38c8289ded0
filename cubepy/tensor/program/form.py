"""The arguments of a call as a tree: its leaves, and what they contribute to the kind of the call.

Leaves are tensors, numbers and anything else. Floats may be others in the next call unless they are
fixed; everything else that is no tensor is part of the kind.
"""

from __future__ import annotations

import operator
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.errors import ArgumentError
from cubepy.lang.dtypes import as_dtype, f32
from cubepy.runtime import memory
from cubepy.runtime.device import as_device, current, use
from cubepy.tensor.array import Tensor, as_tensor
from cubepy.tensor.program.plans.steady import Steady
from cubepy.tensor.program.promised import compute
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Handle

DICTS = (dict, OrderedDict)
_TEXTS = frozenset([str])
PLAIN = (int, bool, str, bytes, type(None), type, np.dtype, np.generic)


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that is not there yet: what `cb.jit(f).compile` needs of it.

    Args:
        shape: of the tensor.
        dtype: of the tensor.
        device: where it will be; by default the current device.

    Raises:
        ArgumentError: a shape that is none, a device that is none.
        DTypeError: a dtype that is none.

    Example:
        >>> import cubepy as cb
        >>> cb.TensorSpec((2, 3), "f16")
        TensorSpec(shape=(2, 3), dtype=cb.f16, device=None)
    """

    shape: tuple[int, ...]
    dtype: Any = f32
    device: Any = None

    def __post_init__(self) -> None:
        lengths = [self.shape] if isinstance(self.shape, (int, np.integer)) else self.shape
        try:
            shape = tuple([operator.index(n) for n in lengths])
        except TypeError:
            shape = (-1,)
        if any(n < 0 for n in shape):
            raise ArgumentError(
                f"the shape of a TensorSpec must be integers of at least 0, not {self.shape!r}",
                hint="a program is compiled for each shape: give all of them",
            )
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", as_dtype(self.dtype))
        if self.device is not None:
            object.__setattr__(self, "device", as_device(self.device))

    def zeros(self) -> Tensor:
        """A tensor like it."""
        with use(current() if self.device is None else self.device):
            made = memory.empty(self.shape, self.dtype.numpy)
            made[...] = 0
            return as_tensor(made)


class Same:
    """An object that is only equal to itself, whatever it says."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Keys(tuple[Any, ...]):
    """Keys of a dict that are no texts: 1 is not true there."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Keys and exact(tuple(self)) == exact(tuple(other))

    def __hash__(self) -> int:
        return hash(exact(tuple(self)))


def is_named(kind: type) -> bool:
    """Whether it is a class of tuples with names, as `typing.NamedTuple` makes."""
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def leaves_of(tree: Any, leaves: list[Any]) -> Any:
    """The structure of a tree of tuples (with names, too), lists, dicts; its leaves go to a list.

    Example:
        >>> found = []
        >>> leaves_of((1.0, [2, "x"]), found), found
        ((<class 'tuple'>, None, (<class 'list'>, None, None)), [1.0, 2, 'x'])
    """
    kind = type(tree)
    if kind is tuple or kind is list or kind is Steady or is_named(kind):
        return (kind, *[leaves_of(part, leaves) for part in tree])
    if kind in DICTS:
        keys = tuple(tree) if _TEXTS.issuperset(map(type, tree)) else Keys(tree)
        return (kind, keys, *[leaves_of(part, leaves) for part in tree.values()])
    leaves.append(tree)
    return None


def rebuilt(structure: Any, leaves: Any) -> Any:
    """The tree of a structure, of leaves that are taken one after the other."""
    if structure is None:
        return next(leaves)
    kind, *parts = structure
    if kind in DICTS:
        keys, *parts = parts
        return kind((k, rebuilt(p, leaves)) for k, p in zip(keys, parts, strict=True))
    made = [rebuilt(part, leaves) for part in parts]
    return kind(*made) if is_named(kind) else kind(made)


def contributed(leaf: Any, fixed: bool) -> Any:
    """What a leaf contributes to the kind of a call.

    Raises:
        ArgumentError: an array, of which a program cannot know whether it was written since.
    """
    if isinstance(leaf, Handle):
        store = leaf.value.storage
        compute([store])
        if type(store) is not Dense:
            return type(leaf), Same(store), leaf.value.needs_grad
        array = store.array
        layout = (array.dtype, array.shape, array.strides)
        return type(leaf), layout, str(store.device), leaf.value.needs_grad
    if type(leaf) is float:
        return exact(leaf) if fixed else float
    if isinstance(leaf, np.ndarray) or hasattr(leaf, "__dlpack__"):
        raise ArgumentError(
            "a program takes tensors of cubepy, not "
            f"{type(leaf).__module__.partition('.')[0]}.{type(leaf).__qualname__}",
            hint="wrap it where it is passed: f(cb.tensor(array))",
        )
    return exact(leaf) if isinstance(leaf, PLAIN) else Same(leaf)


@dataclass
class Paths:
    """Where the leaves of a call are.

    Attributes:
        checks: expressions that say whether the call has the structure.
        found: expressions for the leaves.
        keys: values that these name.
        steady: where `Steady` tensors are, their checks, and the numbers of their leaves.
    """

    checks: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    steady: list[tuple[str, list[str], range]] = field(default_factory=list)

    def add(self, structure: Any, at: str) -> None:
        """A tree of a structure that is named `at`."""
        if structure is None:
            self.found.append(at)
            return
        kind, *parts = structure
        name = kind.__name__
        if is_named(kind) or kind is OrderedDict:
            self.keys.append(kind)
            name = f"key{len(self.keys) - 1}"
        self.checks.append(f"type({at}) is {name}")
        if kind is Steady:
            outer, self.checks, first = self.checks, [], len(self.found)
            self.parts(kind, parts, at)
            self.steady.append((at, self.checks, range(first, len(self.found))))
            self.checks = outer
        else:
            self.parts(kind, parts, at)

    def parts(self, kind: type, parts: list[Any], at: str) -> None:
        """What a tuple, list or dict is made of."""
        self.checks.append(f"len({at}) == {len(parts) - (kind in DICTS)}")
        if kind not in DICTS:
            for n, part in enumerate(parts):
                self.add(part, f"{at}[{n}]")
            return
        if type(parts[0]) is Keys:
            self.keys.append(exact(tuple(parts[0])))
            self.checks.append(f"exact(tuple({at})) == key{len(self.keys) - 1}")
        for key, part in zip(parts[0], parts[1:], strict=True):
            self.keys.append(key)
            self.checks.append(f"key{len(self.keys) - 1} in {at}")
            self.add(part, f"{at}[key{len(self.keys) - 1}]")


def changing(kinds: Sequence[Any], leaves: Sequence[Any]) -> tuple[str, bool] | None:
    """The number or object among the arguments that alone is another one in each of these kinds of
    calls, as text, and whether it is a number; None where there is none.

    Args:
        kinds: (structure, ..., what leaves contribute), of which the last is that of the leaves.
        leaves: of the arguments.
    """
    structure, first = kinds[-1][0], len(kinds[-1]) - len(leaves)
    if any(len(kind) != len(kinds[-1]) for kind in kinds):
        return None
    differ = [n for n, parts in enumerate(zip(*kinds, strict=True)) if len({*parts}) > 1]
    if len(differ) != 1 or differ[0] < first or len({k[differ[0]] for k in kinds}) < len(kinds):
        return None
    n = differ[0] - first
    number = isinstance(leaves[n], (int, float, np.number))
    if not number and isinstance(leaves[n], (Handle, *PLAIN)):
        return None
    paths = Paths()
    paths.add(structure, "")
    path = re.sub(r"key(\d+)", lambda found: repr(paths.keys[int(found[1])]), paths.found[n])
    return f"{'args' if path[1] == '0' else 'kwargs'}{path[3:]}", number
