"""The attention that routines choose between: what describes one."""

from __future__ import annotations

from importlib import import_module
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from cubepy.kernels.matmul.problem import name_of
from cubepy.runtime import memory
from cubepy.runtime.device import DeviceProperties, current, device_properties

Mask = Literal["none", "bool", "float"]
Units = Literal["", "fragments", "mma", "wgmma"]


class Attention(NamedTuple):
    """Attention of queries (batch, heads, length, depth) to keys (batch, groups, keys, depth) and
    values.

    Attributes:
        device: such as "cpu".
        batch, heads, length, keys, depth: lengths.
        width: of a value, 0: as long as a key.
        groups: heads of keys and values, 0: as many as of queries.
        dtype: its name.
        mask: its kind.
        causal: whether a query sees keys up to its own position only.
        units: the matrix units of a GPU that can take the arrays: "mma" as they are, or "wgmma" as
            well; "fragments" that the device describes.
    """

    device: str
    batch: int
    heads: int
    length: int
    keys: int
    depth: int
    width: int = 0
    groups: int = 0
    dtype: str = "f32"
    mask: Mask = "none"
    causal: bool = False
    units: Units = ""

    @property
    def properties(self) -> DeviceProperties:
        """What its device can do."""
        return device_properties(self.device)

    @property
    def on_gpu(self) -> bool:
        """Whether the device's units work in planes, as a GPU's."""
        return self.properties.plane_size > 1


class AttentionGradients(NamedTuple):
    """The gradients of attention by queries, keys and values, from that of its result; `kind` of
    mask, and the log-sum-exp of each row.
    """

    grad: Any
    query: Any
    key: Any
    value: Any
    mask: Any
    kind: str
    result: Any
    lse: Any
    scale: float
    causal: bool


def empty_like_heads(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory for (batch, heads, length, depth) in the order of another such array: where heads lie
    inside of positions, as a projection gives them, they do so in the result, so that it joins
    them without a copy.
    """
    if not (like.shape[1] > 1 and like.shape[2] > 1 and like.strides[1] < like.strides[2]):
        return memory.empty(shape, dtype)
    batch, heads, length, depth = shape
    return memory.empty((batch, length, heads, depth), dtype).transpose(0, 2, 1, 3)


def empty_gradients(q: Any, k: Any, v: Any) -> tuple[Any, Any, Any]:
    """Memory for gradients by queries, keys and values: where those are parts of the rows of one
    projection, side by side, so are the gradients, and what joins them copies nothing.
    """
    parts, ends = (q, k, v), [0]
    for x in parts:
        ends.append(ends[-1] + x.shape[1])
    batch, _, length, depth = q.shape
    row = ends[-1] * depth * q.itemsize
    fits = (length * row, depth * q.itemsize, row, q.itemsize)
    if length < 2 or any(
        (x.shape[0], x.shape[2], x.shape[3], x.dtype) != (batch, length, depth, q.dtype)
        or (x.strides if batch > 1 else (fits[0], *x.strides[1:])) != fits
        for x in parts
    ):
        a, b, c = (empty_like_heads(x, x.shape, x.dtype) for x in parts)
        return a, b, c
    whole = memory.empty((batch, length, ends[-1], depth), q.dtype)
    a, b, c = (whole[:, :, start:stop].transpose(0, 2, 1, 3) for start, stop in pairwise(ends))
    return a, b, c


def described(
    q: Any, k: Any, v: Any, mask: Any, kind: str, causal: bool, factor: float
) -> Attention:
    """What the attention of some arrays is to the routines."""
    where, units = current(), ""
    properties = device_properties(where)
    if properties.plane_size > 1:
        found: Any = import_module("cubepy.kernels.attention.units_gpu")
        units = found.units_for(q, k, v, mask, kind, causal, factor, properties)
    width, groups = (
        v.shape[3] if v.shape[3] != q.shape[3] else 0,
        k.shape[1] if k.shape[1] != q.shape[1] else 0,
    )
    return Attention(  # type: ignore[call-arg]
        str(where),
        *q.shape[:3],
        k.shape[2],
        q.shape[3],
        width,
        groups,
        name_of(q.dtype),
        kind,  # type: ignore[arg-type]
        causal,
        units,  # type: ignore[arg-type]
    )
