"""Losses as modules, and similarities of vectors."""
