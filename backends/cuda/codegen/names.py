"""The names that generated code for a GPU uses, without importing numba to learn them (a test
compares).
"""

from __future__ import annotations

from cubepy.backends.llvm.names import OPS

RESERVED = OPS | frozenset(
    """
    unit unit_x unit_y unit_z cube_x cube_y cube_z cubes_x cubes_y cubes_z err INF NAN kernel range
    unit_position cube_position cube_count lane_position shared_memory multiple sync_cube sync_plane
    plane_shuffle plane_broadcast plane_shuffle_xor plane_shuffle_up plane_shuffle_down plane_sum
    plane_prod plane_max plane_min plane_inclusive_sum plane_exclusive_sum plane_all plane_any
    plane same_in_plane add_line arrive_group approximate_exp approximate_exp2 approximate_log
    approximate_log2 plain_sqrt kept_minimum kept_maximum no_unroll
    barrier_arrive barrier_arrive_cluster barrier_expect barrier_fence barrier_init barrier_wait
    cluster_rank copy_async copy_async_commit copy_async_if copy_async_wait fence_async load_cluster
    load_matrix mma pack packed_fma packed_max unpack set_registers start_next store_cluster
    wait_previous store_matrix sync_cluster sync_group tma_commit tma_load tma_load_multicast
    tma_prefetch tma_store tma_wait wgmma wgmma_commit wgmma_fence wgmma_registers wgmma_wait
    """.split()
)
