"""Moving data: copies, transposes, padding, joining."""
