"""Models that see images, alone or beside texts."""
