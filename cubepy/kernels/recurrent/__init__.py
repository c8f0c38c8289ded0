"""Recurrent layers: a whole sequence in one launch."""
