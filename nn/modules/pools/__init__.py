"""Pools, interpolation, and pools the other way round as modules."""
