"""Losses: of classes, with margins, of sequences."""
