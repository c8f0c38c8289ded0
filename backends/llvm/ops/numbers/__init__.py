"""Numbers and lines of numbers: arithmetic, bits, conversions."""
