"""Reading and writing by index: gather, select, scatter, embedding."""
