"""Functions of generated code that are the same on every GPU, and the algorithms of others."""
