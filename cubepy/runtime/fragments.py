"""Which elements of a matrix each unit of a plane holds when the plane multiplies.

Every layout of the vendors' matrix units is linear in bits: each bit of a unit's position in its
plane, and each bit of an element's number, moves the place by so many rows and columns, and the
places of all bits that are set are added. Triton calls them linear layouts (Zhou et al., "Linear
Layouts: Robust Code Generation of Efficient Tensor Computation Using F2", 2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Step = tuple[int, int]
"""How many rows and columns something moves."""


def doubling(first: int, count: int, axis: int) -> tuple[Step, ...]:
    """`count` steps along an axis: first, 2 * first, 4 * first..."""
    steps = (first << k for k in range(count))
    return tuple((s, 0) if axis == 0 else (0, s) for s in steps)


@dataclass(frozen=True)
class Fragment:
    """A unit's elements of a matrix.

    Attributes:
        lanes: how many rows and columns each bit of the unit's position in its plane moves. (0, 0):
            both of such a pair of units hold the same elements.
        elements: the same of each bit of an element's number.

    Example:
        >>> sums = Fragment(lanes=((0, 1), (0, 2), (4, 0)), elements=((1, 0), (2, 0)))
        >>> sums.shape, sums.count, sums.at(6, 1)
        ((8, 4), 4, (5, 2))
    """

    lanes: tuple[Step, ...]
    elements: tuple[Step, ...]

    @property
    def count(self) -> int:
        """Elements of a unit."""
        return 1 << len(self.elements)

    @property
    def shape(self) -> Step:
        """Rows and columns of the matrix."""
        steps = (*self.lanes, *self.elements)
        return 1 + sum(r for r, _ in steps), 1 + sum(c for _, c in steps)

    def at(self, lane: int, element: int) -> Step:
        """Row and column of an element of the unit at a position of its plane."""
        moves = [s for k, s in enumerate(self.lanes) if lane >> k & 1]
        moves += [s for k, s in enumerate(self.elements) if element >> k & 1]
        return sum(r for r, _ in moves), sum(c for _, c in moves)

    @property
    def transposed(self) -> Fragment:
        """The same elements of the transposed matrix."""
        flipped = (tuple((c, r) for r, c in steps) for steps in (self.lanes, self.elements))
        return Fragment(*flipped)


@dataclass(frozen=True)
class MatrixInstruction:
    """A product of matrices that the units of a plane compute together by `cb.mma`:
    c (rows, columns) += a (rows, depth) @ b (depth, columns).

    Attributes:
        dtype: name of the dtype of a's elements; `cb.mma` is given it.
        bits: of an element of a or b. They are in words (u32), the first one lowest.
        sums: name of the dtype of c.
        a, b, c: which elements a unit holds.
    """

    dtype: str
    bits: int
    sums: str
    a: Fragment
    b: Fragment
    c: Fragment

    @property
    def rows(self) -> int:
        """Rows of a and c."""
        return self.c.shape[0]

    @property
    def columns(self) -> int:
        """Columns of b and c."""
        return self.c.shape[1]

    @property
    def depth(self) -> int:
        """Columns of a, rows of b."""
        return self.a.shape[1]

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Words of a, words of b, numbers of c that a unit holds."""
        return self.a.count * self.bits // 32, self.b.count * self.bits // 32, self.c.count

    @property
    def rows_in_order(self) -> MatrixInstruction:
        """The same product with the rows of a and c numbered otherwise: the numbers that a unit
        holds of c are neighbours along a column.
        """
        bits = [r for r, _ in (*self.c.elements, *self.c.lanes) if r]
        new = {0: 0, **{r: 1 << k for k, r in enumerate(bits)}}

        def renumbered(f: Fragment) -> Fragment:
            both = (tuple((new[r], c) for r, c in steps) for steps in (f.lanes, f.elements))
            return Fragment(*both)

        return replace(self, a=renumbered(self.a), c=renumbered(self.c))


BITS = {"f16": 16, "bf16": 16, "f32": 32, "i8": 8, "u8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8}


def instruction(dtype: str, a: Fragment, b: Fragment, c: Fragment) -> MatrixInstruction:
    """An instruction of a dtype: integers are summed in i32, all others in f32."""
    sums = "i32" if dtype in ("i8", "u8") else "f32"
    return MatrixInstruction(dtype, BITS[dtype], sums, a, b, c)
