"""Where the elements of a plane's fragments are, computed by the unit that holds them."""

from __future__ import annotations

import cubepy as cb


@cb.func
def coordinates(fragment, lane, element=0):
    """Row and column of an element (comptime) that the unit at position `lane` of its plane
    holds.
    """
    row, column = fragment.at(0, element)
    row, column = row + lane * 0, column + lane * 0
    for k in cb.unroll(range(len(fragment.lanes))):
        rows, columns = fragment.lanes[k]
        row += (lane >> k) % 2 * rows
        column += (lane >> k) % 2 * columns
    return row, column


@cb.func
def instruction_of(dtype, side):
    """The device's product of matrices of a dtype, a unit's sums being neighbours."""
    return cb.device_properties().matrix_instruction(dtype.name, side).rows_in_order  # type: ignore[union-attr]
