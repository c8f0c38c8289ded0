"""What every tensor is: a storage, and the op that made it; nothing here computes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import DType, bool_, f32, i64
from cubepy.runtime.device import Device, gpu_of
from cubepy.tensor.ir import Node
from cubepy.tensor.storage import Storage

identities = itertools.count()
_INPUT: tuple[str, tuple[int, ...], dict[str, Any]] = ("input", (), {})


class Value:
    """The elements of a tensor, where they are and what they are called in the IR.

    Attributes:
        storage: where the elements are.
        id: its identity, by which nodes name it.
        made_by: the op that made it: its name, the identities of its inputs, its attributes.
    """

    __slots__ = ("__weakref__", "id", "made_by", "storage")

    def __init__(
        self, storage: Storage, made_by: tuple[str, tuple[int, ...], dict[str, Any]] | None = None
    ) -> None:
        self.storage = storage
        self.id = next(identities)
        self.made_by = _INPUT if made_by is None else made_by

    @property
    def node(self) -> Node:
        """The op that made it, as a node of the IR."""
        op, inputs, attrs = self.made_by
        if op == "input":
            attrs = {"storage": self.storage.kind}
        return Node(
            op, inputs, tuple(sorted(attrs.items())), self.storage.shape, self.storage.dtype
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.storage.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.storage.dtype

    @property
    def device(self) -> Device:
        """Where the elements are."""
        return self.storage.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.storage.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.storage.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in memory (of packed storage: what it really takes)."""
        return self.storage.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        extra = "" if self.dtype in (f32, i64, bool_) else f", dtype={self.dtype!r}"
        extra += "" if gpu_of(self.device) is None else f", device={str(self.device)!r}"
        if self.storage.kind != "dense":
            return f"tensor({self.storage.kind}, shape={self.shape}, {self.nbytes} bytes)"
        text = np.array2string(self.numpy(), separator=", ", prefix="tensor(", threshold=1000)
        return f"tensor({text}{extra})"

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array: the tensor's own memory when it is dense and on the CPU,
        else a copy.

        On a GPU it waits for the work that makes them; errors of that work are raised here.
        """
        return self.storage.host()

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.size != 1:
            raise ShapeError(
                f"item() needs one element; this tensor of shape {self.shape} has {self.size}"
            )
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is not defined",
                hint="use x.all() of its NumPy array",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise TypeError(f"only an integer tensor can be an index, not {self.dtype.name}")
        return int(self.item())
