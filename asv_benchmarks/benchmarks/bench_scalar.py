"""Kernels of single elements in checked mode, beside numba's `prange`."""

from __future__ import annotations

from benchmarks.cases import warmed
from benchmarks.scalar_kernels import SIZES, WORKS, pair
from benchmarks.suites import Suite


class Scalar(Suite):
    """The library, the kernel and the size are parameters."""

    params = (("cubepy", "numba"), tuple(WORKS), tuple(SIZES))
    param_names = ("library", "kernel", "size")

    def setup(self, library: str, kernel: str, size: str) -> None:
        """Compile both, compare them, and let one come a few times."""
        self.run = warmed(pair(kernel, size)[library == "numba"])

    def time_scalar(self, library: str, kernel: str, size: str) -> None:
        """One call."""
        self.run()
