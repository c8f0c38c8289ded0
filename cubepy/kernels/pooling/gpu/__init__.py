"""Max pooling on any GPU."""
