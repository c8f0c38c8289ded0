"""Constants of the softmax in base two that runs along keys."""

from __future__ import annotations

HIDDEN = -float("inf")
"""The score of a key that may not be seen: its weight is 0 beside any finite number."""
LOWEST = -(2.0**100)
"""What a row's largest score is at least: finite, so that differences stay numbers, and exact in
products.
"""
LOG2E = 1.4426950408889634


LN2 = 0.6931471805599453
