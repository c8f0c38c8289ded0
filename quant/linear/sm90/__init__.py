"""Linear layers with quantized weights on GPUs with a copy engine (TMA) and wgmma."""
