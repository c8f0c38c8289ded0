"""Sorting and the first elements of sorted rows."""
