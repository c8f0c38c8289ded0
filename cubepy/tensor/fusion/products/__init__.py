"""Products: what follows them in their last step, weights in panels, rows that begin aligned."""
