"""Lengths that are not known yet: what is computed of them, and asked about them."""
