"""Pooling of windows and of equal parts."""
