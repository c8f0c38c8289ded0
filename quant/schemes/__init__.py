"""Schemes and rounding: which numbers represent a weight."""
