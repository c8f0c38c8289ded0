"""The names that generated code for any GPU uses, without importing numba to learn them."""

from __future__ import annotations

from cubepy.backends.llvm.names import OPS

RECORDS = frozenset({"err", "said"})
"""Parameters that kernels have besides their own: where faults, and what is printed, are left."""
SHARED = OPS | frozenset(
    """
    unit unit_x unit_y unit_z cube_x cube_y cube_z cubes_x cubes_y cubes_z err said INF NAN kernel
    range
    unit_position cube_position cube_count lane_position shared_memory multiple sync_cube sync_plane
    plane_shuffle plane_broadcast plane_shuffle_xor plane_shuffle_up plane_shuffle_down plane_sum
    plane_prod plane_max plane_min plane_inclusive_sum plane_exclusive_sum plane_all plane_any
    plane same_in_plane approximate_exp approximate_exp2 approximate_log approximate_log2 plain_sqrt
    no_unroll mma pack unpack
    """.split()
)
