"""The names that generated code for an NVIDIA GPU uses, without importing numba to learn them (a
test compares).
"""

from __future__ import annotations

from cubepy.backends.gpu.names import SHARED

RESERVED = SHARED | frozenset(
    """
    add_line arrive_group kept_minimum kept_maximum
    barrier_arrive barrier_arrive_cluster barrier_expect barrier_fence barrier_init barrier_wait
    cluster_rank copy_async copy_async_commit copy_async_if copy_async_wait fence_async load_cluster
    load_matrix mma pack packed_fma packed_max unpack set_registers start_next store_cluster
    wait_previous store_matrix sync_cluster sync_group tma_commit tma_load tma_load_multicast
    tma_prefetch tma_store tma_wait wgmma wgmma_commit wgmma_fence wgmma_registers wgmma_wait
    """.split()
)
