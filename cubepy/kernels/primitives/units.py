"""Values combined over the units of a cube."""

from __future__ import annotations

import cubepy as cb


def has_scalars(properties: cb.DeviceProperties) -> bool:
    """Whether planes of a GPU keep what all their units have alike in registers of their own, a
    hundred at most, as AMD's do. What comes from another unit, or from the unit itself by way of a
    shuffle, is in a register of each unit.
    """
    return bool({"mfma", "wmma"} & properties.features)


@cb.func
def over_units(value, step, group: cb.Comptime[int], scratch):
    """`step` over the values of `group` neighbouring units, given to all of them, in an order that
    never changes.

    `group` is a power of two; `scratch` is shared memory with a slot for every plane of the cube,
    used only where a group is wider than a plane (then all units of the cube have to call it).
    """
    for k in cb.unroll(range(6)):
        if (32 >> k) < group and (32 >> k) < cb.PLANE_DIM:
            value = step(value, cb.plane_shuffle_xor(value, 32 >> k))
    if group > cb.PLANE_DIM:
        planes = group // cb.PLANE_DIM
        if cb.UNIT_POS % cb.PLANE_DIM == 0:
            scratch[cb.UNIT_POS // cb.PLANE_DIM] = value
        cb.sync_cube()
        first = cb.UNIT_POS // group * planes
        value = scratch[first]
        for k in range(1, planes):
            value = step(value, scratch[first + k])
        cb.sync_cube()
    return value
