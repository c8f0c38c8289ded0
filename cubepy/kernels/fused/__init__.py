"""Templates that take the arithmetic of whole groups of operations as functions."""
