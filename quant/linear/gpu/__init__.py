"""Linear layers with quantized weights on any GPU."""
