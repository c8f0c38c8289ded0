"""Gradients beside differences of values, as tests of ops compare them: first and second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.testing import gradcheck, gradgradcheck

STEP = 1e-5
FIRST, SECOND = 2e-8, 2e-6
"""Relative errors of central differences of f64 that are their own."""


UNORDERED = 0.0 if cb.current_device().backend not in ("cuda", "hip") else 1e-12
"""What gradients that are computed twice may differ by: atomic additions on a GPU have no order."""


def check_gradients(function: Callable[..., Any], *inputs: np.ndarray, second: bool = True) -> None:
    """Compare the gradients of `function` by all inputs, and theirs, with differences in f64."""
    given = [cb.tensor(x, requires_grad=True) for x in inputs]
    gradcheck(function, given, eps=STEP, atol=FIRST, rtol=FIRST, nondet_tol=UNORDERED)
    if second:
        gradgradcheck(function, given, eps=STEP, atol=SECOND, rtol=SECOND)
