"""Which ops run, and when: again for gradients, one or the other of two functions, many times."""
