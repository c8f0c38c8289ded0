"""Gradients of tensors: a walk back over the calls that made them.

`engine` walks; `rules` says what gradient an op has, and the families beside it say it for theirs,
in ops of tensors, so that gradients have gradients.
"""
