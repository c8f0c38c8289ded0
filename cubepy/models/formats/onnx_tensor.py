"""Tensors of an ONNX file: where their bytes are, and views of them as arrays."""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from cubepy.errors import FileFormatError
from cubepy.models.formats.onnx_schema import BITS, CODES, DTYPES, dtype_name
from cubepy.models.formats.protobuf import DAMAGED

MOST = 2**48
"""Elements that no array can have; a product of dims beyond it is a lie."""
SIX_BITS = (27, 28)
TYPED = {
    1: "float_data",
    7: "int64_data",
    8: "string_data",
    11: "double_data",
    12: "uint64_data",
    13: "uint64_data",
    14: "float_data",
    15: "double_data",
}
"""The field with a tensor's elements where they are not raw; all others are in `int32_data`."""


class Folder:
    """Where the files beside a model may be: in its folder, and nowhere else.

    Attributes:
        path: of the folder; None for a model that came as bytes.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.maps: dict[str, memoryview] = {}

    def view(self, location: str, tensor: str) -> memoryview:
        """The bytes of a file, mapped once.

        Raises:
            FileFormatError: a file outside of the folder, by name or by a link, or none at all.
        """

        def refuse(rule: str) -> NoReturn:
            raise FileFormatError(
                f"the data of tensor {tensor!r} are in {location!r}: {rule}",
                hint="external data must be a file in the model's folder",
            )

        if self.path is None:
            refuse("a model that came as bytes has no folder")
        if location not in self.maps:
            parts = location.replace("\\", "/").split("/")
            if not location or os.path.isabs(location) or ":" in parts[0] or ".." in parts:
                refuse("which is no path below the model's folder")
            if "\0" in location:
                refuse("which is no path")
            home = os.path.realpath(self.path)
            found = os.path.realpath(os.path.join(home, *parts))
            if os.path.commonpath([home, found]) != home:
                refuse("a link that leads out of the model's folder")
            if not os.path.isfile(found):
                refuse("there is no such file")
            with open(found, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                mapped: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
            self.maps[location] = memoryview(mapped)
        return self.maps[location]


@dataclass
class Weight:
    """A tensor of a file.

    Attributes:
        name: in its graph.
        code: of its element type.
        shape: of the tensor.
        fields: what the file says.
        folder: where external data may be.
    """

    name: str
    code: int
    shape: tuple[int, ...]
    fields: dict[str, Any] = field(repr=False)
    folder: Folder = field(repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere there is no file: the elements go along."""
        return of_array, (self.name, self.array())

    @property
    def dtype(self) -> np.dtype:
        """The type of an element in memory."""
        return DTYPES[self.code]

    @property
    def size(self) -> int:
        """How many elements there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the elements take in the file."""
        return self.size * self.bits // 8 + (self.size * self.bits % 8 > 0)

    @property
    def bits(self) -> int:
        """Bits of an element in the file."""
        return 6 if self.code in SIX_BITS else BITS.get(self.code, self.dtype.itemsize * 8)

    def refuse(self, rule: str) -> NoReturn:
        """Say what is wrong with the tensor."""
        raise FileFormatError(f"tensor {self.name!r}: {rule}", hint=DAMAGED)

    def check(self) -> None:
        """Compare what the tensor needs with what there is.

        Raises:
            FileFormatError: too few or too many bytes or elements, external data that are not
                there.
        """
        if self.external:
            self._external()
        elif "raw_data" in self.fields:
            if self.code == 8:
                self.refuse("texts cannot be raw data")
            found = len(self.fields["raw_data"])
            if found != self.nbytes:
                self.refuse(
                    f"{dtype_name(self.dtype)} {list(self.shape)} takes {self.nbytes} bytes, but "
                    f"there are {found}"
                )
        else:
            found = len(self._typed())
            expected = self._elements()
            if found != expected:
                self.refuse(f"the shape {list(self.shape)} takes {expected} numbers, not {found}")

    @property
    def external(self) -> bool:
        """Whether the elements are in another file."""
        return bool(self.fields.get("data_location") == 1)

    def array(self) -> np.ndarray:
        """The elements: a read-only view of the file where it has them as memory does."""
        if self.code == 8:
            texts = [str(bytes(v), "utf-8", "replace") for v in self._typed()]
            return np.array(texts, object).reshape(self.shape)
        if self.external:
            return self._raw(self._external())
        if "raw_data" in self.fields:
            return self._raw(self.fields["raw_data"])
        numbers = self._typed()
        if self.bits in (2, 4, 6):
            return self._raw(memoryview(numbers.astype(np.uint8).tobytes()))
        if self.code in (14, 15):
            return numbers.view(self.dtype).reshape(self.shape)
        if self.dtype.kind == "b":
            return (numbers != 0).reshape(self.shape)
        if self.dtype.kind in "iuf" and self.code not in (10,):
            # what was decoded stays in `fields`: a tensor that lies there is not alone
            return numbers.astype(self.dtype, copy=numbers.flags.writeable).reshape(self.shape)
        whole = np.uint16 if self.dtype.itemsize == 2 else np.uint8
        return numbers.astype(whole).view(self.dtype).reshape(self.shape)

    def _typed(self) -> Any:
        empty: Any = [] if self.code == 8 else np.zeros(0, np.int64)
        return self.fields.get(TYPED.get(self.code, "int32_data"), empty)

    def _elements(self) -> int:
        """How many typed numbers the shape takes."""
        if self.bits in (2, 4, 6):
            if len(self._typed()) != self.nbytes and self.bits == 6:
                return self.size
            return self.nbytes
        return self.size * (2 if self.code in (14, 15) else 1)

    def _raw(self, data: memoryview) -> np.ndarray:
        if self.bits in (2, 4, 6):
            count = self.size
            flat = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
            codes = np.packbits(
                flat[: count * self.bits].reshape(count, self.bits), axis=1, bitorder="little"
            ).reshape(self.shape)
            if self.dtype.name in ("int4", "int2"):
                top = 8 - self.bits
                return ((codes << top).view(np.int8) >> top).astype(self.dtype)
            return codes.view(self.dtype)
        return np.frombuffer(data, self.dtype).reshape(self.shape)

    def _external(self) -> memoryview:
        said = {e.get("key", ""): e.get("value", "") for e in self.fields.get("external_data", ())}
        if self.code == 8:
            self.refuse("texts cannot be external data")
        found = self.folder.view(said.get("location", ""), self.name)
        numbers = []
        for key, default in (("offset", 0), ("length", None)):
            value = said.get(key)
            if value is not None and not (value.isascii() and value.isdigit() and len(value) < 20):
                self.refuse(f"the {key} of its external data is {value!r}, no number of bytes")
            numbers.append(default if value is None else int(value))
        offset, length = numbers[0] or 0, numbers[1]
        length = self.nbytes if length is None else length
        if length != self.nbytes:
            self.refuse(
                f"{dtype_name(self.dtype)} {list(self.shape)} takes {self.nbytes} bytes, but its "
                f"external data have {length}"
            )
        if offset + length > len(found):
            self.refuse(
                f"its external data end at byte {offset + length} of {said.get('location')!r}, "
                f"which has {len(found)}"
            )
        return found[offset : offset + length]


def weight(fields: dict[str, Any], folder: Folder) -> Weight:
    """A tensor as its message says, checked.

    Raises:
        FileFormatError: an unknown element type, dims that cannot be, data that do not fit.
    """
    name = fields.get("name", "")
    code = fields.get("data_type", 0)
    if code not in DTYPES:
        raise FileFormatError(
            f"tensor {name!r} has the element type {code}, which is none", hint=DAMAGED
        )
    made = Weight(name, code, lengths(fields.get("dims", ()), f"tensor {name!r}"), fields, folder)
    made.check()
    return made


def lengths(dims: Any, what: str) -> tuple[int, ...]:
    """Dims as a shape.

    Raises:
        FileFormatError: more than 64, one below zero, or more elements than can be.
    """
    shape = tuple(int(n) for n in dims)
    small = math.prod(n for n in shape if n > 0) if len(shape) <= 64 else MOST
    if len(shape) > 64 or any(n < 0 for n in shape) or small >= MOST:
        shown = f"{list(shape[:8])}" + (" and more" if len(shape) > 8 else "")
        raise FileFormatError(f"{what} has the dims {shown}, which no array has", hint=DAMAGED)
    return shape


def sparse(fields: dict[str, Any], folder: Folder) -> Weight:
    """A sparse tensor as a dense one of its values' name.

    Raises:
        FileFormatError: indices that are none, or outside of the tensor.
    """
    values = weight(fields.get("values", {}), folder)
    indices = weight(fields.get("indices", {}), folder)
    shape = lengths(fields.get("dims", ()), f"sparse tensor {values.name!r}")
    count = math.prod(shape)
    if count * values.dtype.itemsize > 2**31:
        values.refuse(f"a sparse tensor of {list(shape)} is not made dense")
    at, given = indices.array(), values.array().reshape(-1)
    if at.dtype.kind not in "iu" or at.shape not in ((len(given),), (len(given), len(shape))):
        values.refuse(f"{len(given)} values with indices of {list(at.shape)} {at.dtype}")
    ends = np.array(shape if at.ndim == 2 else [count])
    if at.size and (at.min() < 0 or np.any(at.reshape(len(given), -1).max(axis=0) >= ends)):
        values.refuse(f"an index outside of {list(shape)}")
    where = np.ravel_multi_index(tuple(at.T), shape) if at.ndim == 2 else at
    dense = np.zeros(count, values.dtype)
    dense[where] = given
    return of_array(values.name, dense.reshape(shape))


def of_array(name: str, array: np.ndarray) -> Weight:
    """A tensor of a file that is an array here; nobody can write its elements, so that programs lay
    weights out once.
    """
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype != object:
        array = np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape)
    made = Weight(name, CODES[array.dtype], array.shape, {}, Folder(None))
    object.__setattr__(made, "array", lambda: array)
    return made
