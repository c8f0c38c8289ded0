"""What users bring: kernels as ops, and gradients of functions."""
