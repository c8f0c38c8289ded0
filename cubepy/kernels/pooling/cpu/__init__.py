"""Max pooling on a CPU."""
