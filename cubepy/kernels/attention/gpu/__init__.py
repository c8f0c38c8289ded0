"""Attention on any GPU."""
