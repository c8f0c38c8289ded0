"""Products on any GPU."""
