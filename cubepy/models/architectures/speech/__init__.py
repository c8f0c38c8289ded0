"""Models that hear speech."""
