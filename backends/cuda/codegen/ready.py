"""What has to be so before numba-cuda is imported."""

from __future__ import annotations


def numpy_for_numba_cuda() -> None:
    """Give NumPy back a name that numba-cuda (up to 0.30) asks for and NumPy 2.5 dropped."""
    import numpy

    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
