"""What may be written in a kernel: names, dtypes, annotations, declarations."""
