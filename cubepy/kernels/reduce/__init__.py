"""Reductions and statistics over any axes."""
