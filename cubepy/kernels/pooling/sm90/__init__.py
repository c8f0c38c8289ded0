"""Max pooling on GPUs with a copy engine (TMA)."""
