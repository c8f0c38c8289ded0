"""Layers that normalise: rows, batches, groups of channels."""
