"""Convolutions on any GPU."""
