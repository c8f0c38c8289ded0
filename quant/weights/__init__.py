"""A quantized weight and its packing."""
