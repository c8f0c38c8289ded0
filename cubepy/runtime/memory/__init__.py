"""Memory: arrays of the host and of devices, the pools that they come from, and which work may use
them when.
"""

from cubepy.runtime.memory import numpy_protocol as _numpy_protocol  # noqa: F401 - fills a table
from cubepy.runtime.memory.pool import ALIGNMENT, POOLED, Pool, empty, host_pool, memory_stats, trim

__all__ = ["ALIGNMENT", "POOLED", "Pool", "empty", "host_pool", "memory_stats", "trim"]
