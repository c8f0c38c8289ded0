"""Random numbers from a counter."""
