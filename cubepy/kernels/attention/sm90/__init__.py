"""Attention on GPUs with a copy engine (TMA) and wgmma."""
