"""What tests of code that is written with cubepy use.

Example:
    >>> import cubepy as cb
    >>> from cubepy.testing import gradcheck, gradgradcheck
    >>> x = cb.tensor([0.5, -1.0], dtype="f64", requires_grad=True)
    >>> gradcheck(lambda x: (x * x).tanh(), [x]) and gradgradcheck(lambda x: x.exp(), [x])
    True
"""

from __future__ import annotations

from cubepy.testing.gradients import gradcheck, gradgradcheck

__all__ = ["gradcheck", "gradgradcheck"]
