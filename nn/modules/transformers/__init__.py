"""Transformers: layers of attention and of a network at each position (Vaswani et al., 2017)."""
