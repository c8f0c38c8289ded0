"""What tensors can do, by family: `Tensor` inherits it from here."""
