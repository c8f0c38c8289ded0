"""Compiling in other processes: what they need to know, and how they are asked."""
