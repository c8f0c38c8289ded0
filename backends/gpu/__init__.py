"""What the backends for GPUs share: printing, wide accesses, planes, atomics by bits, code."""
