"""What the backends for GPUs share: printing, wide accesses, planes, atomics by bits, code,
and all that runs it: launches, streams, memory, graphs, on a vendor's driver.
"""
