"""Interpolation of images."""
