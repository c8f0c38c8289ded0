"""Elements and lines in memory: read, written, updated."""
