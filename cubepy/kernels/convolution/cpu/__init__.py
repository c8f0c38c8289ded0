"""Convolutions on a CPU."""
