"""Linear and largest values of windows along axes: the engine of averages, interpolation and
disjoint pools.
"""
