"""Loops over lines, words that make lines and tuples, and lanes that are missing."""
