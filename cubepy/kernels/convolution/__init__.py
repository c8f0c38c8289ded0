"""Convolutions in one, two and three axes, and their gradients."""
