"""Lanes of lines: made, moved, parted, multiplied in pairs."""
