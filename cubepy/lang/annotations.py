"""The annotations of a kernel's parameters, and what each has in a kernel, for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

if TYPE_CHECKING:
    from typing_extensions import Self

    from cubepy.lang.dtypes import DType
    from cubepy.lang.names import Line

T = TypeVar("T")

if TYPE_CHECKING:
    Comptime = Annotated[T, "comptime"]
else:

    class Comptime(Generic[T]):
        """Annotation of a comptime parameter: `lanes: cb.Comptime[int] = 8`.

        Its value is folded into the code and is part of the specialisation's key. Ints, bools,
        strings, floats, dtypes, tuples, frozen dataclasses and `@cb.func` functions may be passed.

        Example:
            >>> import numpy as np, cubepy as cb
            >>> @cb.kernel
            ... def scale(x: cb.Array, by: cb.Comptime[float] = 2.0):
            ...     x[cb.ABSOLUTE_POS] *= by
            >>> x = np.ones(3, np.float32)
            >>> scale[1, 3](x)
            >>> scale[1, 3](x, by=5.0)  # compiled a second time
            >>> print(x)
            [10. 10. 10.]
        """


class _Field:
    """What may be a field of a struct: made of anything that fits, read as it is annotated."""

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: Any) -> Self: ...
        def __set__(self, instance: object, value: Any) -> None: ...


class Array(_Field):
    """Annotation of an array parameter, of any rank and strides.

    In a kernel: `.size`, `.shape[d]`, `.stride[d]` (in elements), `.dtype`, `.ndim`, `a[i]`,
    `a[i, j]`, `a.load(i, lanes)`, `a.store(i, line)`.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.kernel
        ... def transpose(x: cb.Array, out: cb.Array):
        ...     for i in range(x.shape[0]):
        ...         for j in range(x.shape[1]):
        ...             out[j, i] = x[i, j]
        >>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
        >>> out = np.empty((3, 2), np.float32)
        >>> transpose[1, 1](x, out)
        >>> print(out)
        [[0. 3.]
         [1. 4.]
         [2. 5.]]
    """

    if TYPE_CHECKING:
        size: int
        shape: tuple[int, ...]
        stride: tuple[int, ...]
        dtype: DType
        ndim: int
        lanes: int

        def __getitem__(self, index: Any) -> Any: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def load(self, i: Any, lanes: int, valid: Any = None, other: Any = 0) -> Line:
            """A line from position `i` or from coordinates; lanes from `valid` on are `other`."""

        def store(self, i: Any, line: Any, valid: Any = None) -> None:
            """Write a line from position `i`, or from coordinates, on; its first `valid` lanes."""

        def store_stream(self, i: Any, line: Any, valid: Any = None) -> None:
            """`store` for what will not be read soon: past the caches where the CPU can."""

        def prefetch(self, i: Any) -> None:
            """A hint that this place is read soon."""


class View(_Field):
    """Annotation of a view parameter: `read(coords, lanes)`, `write(coords, value)`, `shape`.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> from cubepy.lang import views
        >>> @cb.kernel
        ... def first_row(x: cb.View, out: cb.Array):
        ...     out.store(0, x.read((0, 0), 4))
        >>> x, out = np.arange(12.0).reshape(4, 3), np.zeros(4)
        >>> first_row[1, 1](views.permuted(x, (1, 0)), out)  # a column of x
        >>> print(out)
        [0. 3. 6. 9.]
    """

    if TYPE_CHECKING:
        shape: tuple[int, ...]
        dtype: DType

        def read(self, coords: Any, lanes: int) -> Any:
            """A line along the last axis from these coordinates; a scalar where lanes is 0."""

        def write(self, coords: Any, value: Any) -> None:
            """Write a scalar or a line to these coordinates."""


class TensorMap(_Field):
    """Annotation of a tensor map: a copy engine's view of an array (`cb.tensor_map(array, box)`).

    In a kernel: `.dtype`, `.ndim`, `.box`, `.swizzle` and `.nbytes` (of a box) are comptime;
    `cb.tma_load` and `cb.tma_store` copy boxes of it.

    Example:
        >>> import numpy as np, cubepy as cb  # with an NVIDIA GPU
        >>> @cb.kernel
        ... def fill(target: cb.TensorMap):
        ...     tile = cb.shared(target.box, target.dtype)
        ...     for k in range(cb.UNIT_POS, tile.size, cb.CUBE_DIM):
        ...         tile[k // target.box[1], k % target.box[1]] = k
        ...     cb.fence_async()
        ...     cb.sync_cube()
        ...     if cb.UNIT_POS == 0:
        ...         cb.tma_store(target, (1, 4), tile, 0)
        ...         cb.tma_commit()
        ...         cb.tma_wait(0, read=False)
        >>> x = cb.tensor(np.zeros((3, 8), np.float32), device="cuda")
        >>> fill[1, 32](cb.tensor_map(x, (2, 4), swizzle=0))
        >>> print(x.numpy())
        [[0. 0. 0. 0. 0. 0. 0. 0.]
         [0. 0. 0. 0. 0. 1. 2. 3.]
         [0. 0. 0. 0. 4. 5. 6. 7.]]
    """

    if TYPE_CHECKING:
        dtype: DType
        ndim: int
        box: tuple[int, ...]
        swizzle: int
        nbytes: int


class Aggregate:
    """What classes made by `@cb.struct` are, among annotations."""
