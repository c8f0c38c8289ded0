"""Weights that stay in the blocks of their file: kernels unpack them in registers."""
