"""softmax and the norms."""
