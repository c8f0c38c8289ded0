"""What is taken as an array, by kernels, the library and tensors: one table, which
docs/reference/language.md shows.
"""

from __future__ import annotations

import array
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy import kernels as K

F = np.float32
N = 6


def numbers() -> np.ndarray:
    return np.arange(N, dtype=F) + 1


class Interface:
    """Speaks NumPy's array interface, as older libraries and image types do."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held
        self.__array_interface__ = held.__array_interface__


class DLPack:
    """Speaks DLPack, as JAX's and PyTorch's arrays do."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.__dlpack_device__()


class Column:
    """Speaks `__array__` alone, as columns and frames of pandas and polars and chunked arrays of
    Arrow do.
    """

    def __init__(self, held: np.ndarray) -> None:
        self.held = held

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.held.copy()  # of two chunks, say

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise AssertionError("nobody asks for a stream where there is an array")


class ArrowAlone:
    """Speaks Arrow's stream alone."""

    def __init__(self, held: np.ndarray) -> None:
        self.held = held

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise NotImplementedError


class Missing(Column):
    """A column in which numbers are missing."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array([*self.held[1:], None], object)


def buffer(held: np.ndarray) -> array.array[float]:
    return array.array("f", held.tolist())


def frozen(held: np.ndarray) -> np.ndarray:
    held.flags.writeable = False
    return held


TAKEN, READ, REFUSED = "taken", "read", "refused"
Row = tuple[Callable[[np.ndarray], Any], str, str]
TABLE: dict[str, Row] = {  # made of an array; in a kernel; in the library and tensors
    "NumPy array": (lambda a: a, TAKEN, TAKEN),
    "`__array_interface__`": (Interface, TAKEN, TAKEN),
    "DLPack": (DLPack, TAKEN, TAKEN),
    "buffer (`memoryview`, `array.array`, `bytearray`)": (buffer, TAKEN, TAKEN),
    "`memoryview`": (lambda a: memoryview(a), TAKEN, TAKEN),
    "read-only array": (frozen, READ, TAKEN),
    "`__array__`": (Column, READ, TAKEN),
    "list": (np.ndarray.tolist, REFUSED, TAKEN),
    "Arrow alone": (ArrowAlone, REFUSED, REFUSED),
    "missing values": (Missing, REFUSED, REFUSED),
    "masked array": (lambda a: np.ma.masked_array(a, a > 3), REFUSED, REFUSED),
    "`bytes`": (lambda a: a.tobytes(), REFUSED, REFUSED),
}


@cb.kernel
def add_one(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] + 1


@cb.kernel
def add_one_to_any(x, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] + 1


def read(x: Any, kernel: Any = add_one, device: str = "cpu") -> np.ndarray:
    out = np.zeros(N, F)
    kernel[cb.over(N)](x, out, device=device)
    return out


@pytest.mark.parametrize("kind", TABLE)
@pytest.mark.parametrize("kernel", [add_one, add_one_to_any])
def test_kernels_read_what_the_table_says(kind: str, kernel: Any) -> None:
    make, in_kernels, _ = TABLE[kind]
    for device in ("cpu", "python"):
        for _ in range(3):  # repeated launches, too
            if in_kernels == REFUSED:
                with pytest.raises(
                    (errors.KernelTypeError, errors.ArgumentError, errors.DTypeError)
                ) as info:
                    read(make(numbers()), kernel, device)
                assert info.value.hint
            else:
                np.testing.assert_array_equal(read(make(numbers()), kernel, device), numbers() + 1)


@pytest.mark.parametrize("kind", TABLE)
def test_kernels_write_where_the_owner_sees_it_or_not_at_all(kind: str) -> None:
    make, in_kernels, _ = TABLE[kind]
    held = numbers()
    target = make(held)
    if in_kernels == TAKEN:
        add_one[cb.over(N)](numbers(), target)
        seen = np.asarray(getattr(target, "held", target))
        np.testing.assert_array_equal(seen, numbers() + 1)
    else:
        kinds = (
            errors.KernelTypeError,
            errors.ArgumentError,
            errors.DTypeError,
            errors.ReadOnlyError,
        )
        with pytest.raises(kinds):
            add_one[cb.over(N)](numbers(), target)
        assert held.tolist() == numbers().tolist()


@pytest.mark.parametrize("kind", TABLE)
@pytest.mark.parametrize(
    "give",
    [K.cumsum, lambda x: K.map(K.functions.add, x, x), lambda x: cb.tensor(x).sum().numpy(),
     lambda x: cb.nn.functional.relu(x).numpy()],
    ids=["cumsum", "map", "tensor", "relu"],
)  # fmt: skip
def test_the_library_and_tensors_read_what_the_table_says(kind: str, give: Any) -> None:
    make, _, in_library = TABLE[kind]
    if in_library == TAKEN:
        np.testing.assert_array_equal(give(make(numbers())), give(numbers()))
        return
    with pytest.raises((errors.ArgumentError, errors.DTypeError)) as info:
        give(make(numbers()))
    assert info.value.hint


@pytest.mark.parametrize(
    "module, make, in_kernels",
    [
        ("pandas", lambda m, a: m.Series(a), READ),
        ("pandas", lambda m, a: m.DataFrame({"a": a})["a"], READ),
        ("polars", lambda m, a: m.Series(a), READ),
        ("pyarrow", lambda m, a: m.array(a), READ),
        ("pyarrow", lambda m, a: m.chunked_array([a[:2], a[2:]]), READ),
        ("torch", lambda m, a: m.from_numpy(a), TAKEN),
        ("jax.numpy", lambda m, a: m.asarray(a), READ),
    ],
)
def test_the_real_ones_do_as_the_stand_ins(module: str, make: Any, in_kernels: str) -> None:
    try:
        library = importlib.import_module(module)
    except ImportError:
        pytest.skip(f"{module} is not installed")
    for _ in range(3):
        value = make(library, numbers())
        np.testing.assert_array_equal(read(value), numbers() + 1)
        np.testing.assert_array_equal(np.asarray(K.cumsum(value)), np.cumsum(numbers()))
        np.testing.assert_array_equal(cb.tensor(value).numpy(), numbers())
        if in_kernels == READ:
            with pytest.raises(errors.ReadOnlyError):
                add_one[cb.over(N)](numbers(), value)
        else:
            add_one[cb.over(N)](numbers() * 2, value)
            np.testing.assert_array_equal(np.asarray(value), numbers() * 2 + 1)


def test_the_table_of_the_docs_is_this_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "language.md").read_text()
    words = {TAKEN: "read and written", READ: "read", REFUSED: "refused"}
    for kind, (_, in_kernels, in_library) in TABLE.items():
        rows = [line for line in text.splitlines() if line.startswith(f"| {kind}")]
        assert len(rows) == 1, f"docs/reference/language.md has no row of {kind}"
        cells = [c.strip() for c in rows[0].strip("|").split("|")]
        assert cells[1] == words[in_kernels], kind
        assert cells[2] == ("taken" if in_library == TAKEN else "refused"), kind
