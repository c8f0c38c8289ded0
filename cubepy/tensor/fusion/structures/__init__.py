"""Graphs of one structure and other sizes: fused once."""
