"""The cost of a launch, of an import, and of first calls."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from benchmarks.cases import warmed


@cache
def _tiny() -> Any:
    from benchmarks.kernels import add_one, scaled

    x, out = np.zeros(16, np.float32), np.zeros(16, np.float32)
    bound = add_one[1, 16].bind(x, out)
    warmed(lambda: add_one[1, 16](x, out))
    warmed(lambda: scaled[1, 16](1.5, x, out))
    return add_one, scaled, x, out, warmed(bound)


class Launch:
    """A launch of a kernel of 16 elements."""

    def setup(self) -> None:
        """Compile it and let it come a few times."""
        self.kernel, self.scaled, self.x, self.out, self.bound = _tiny()

    def time_launch_unbound(self) -> None:
        """Arguments and all."""
        self.kernel[1, 16](self.x, self.out)

    def time_launch_with_a_number(self) -> None:
        """A number that is converted for its parameter."""
        self.scaled[1, 16](1.5, self.x, self.out)

    def time_launch_bound(self) -> None:
        """Bound."""
        self.bound()


@cache
def _problem() -> Any:
    from cubepy.kernels.matmul.problem import Product
    from cubepy.kernels.matmul.routines import MATMUL
    from cubepy.tune import choose

    problem = Product("cpu", 512, 512, 512)
    warmed(lambda: choose(MATMUL, problem))
    return choose, MATMUL, problem


class Choice:
    """The choice between routines, for a problem that was asked for before."""

    def setup(self) -> None:
        """Ask for it."""
        self.choose, self.op, self.problem = _problem()

    def time_choose_routine(self) -> None:
        """A look into the table."""
        self.choose(self.op, self.problem)


def timeraw_import() -> str:
    """`import cubepy` in a fresh interpreter."""
    return "import cubepy"


def cold(call: str) -> str:
    """A program that makes one call with an empty cache: imports, compilation, the call."""
    return f"""
    import os, tempfile
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUBEPY_CACHE_DIR"] = folder
        import numpy as np
        from cubepy import kernels as K
        a = lambda *shape: np.ones(shape, np.float32)
        {call}
    """


def timeraw_first_matmul_cold() -> str:
    """The first product of a process with an empty cache."""
    return cold("K.matmul(a(256, 256), a(256, 256))")


def timeraw_first_attention_cold() -> str:
    """The same of attention."""
    return cold("K.attention(*[a(1, 8, 128, 64)] * 3)")


def timeraw_first_conv2d_cold() -> str:
    """The same of a 3x3 convolution: its filters are packed by a kernel of their own."""
    return cold("K.conv2d(a(1, 64, 56, 56), a(64, 64, 3, 3), padding=1)")


def timeraw_first_sort_cold() -> str:
    """The same of a sort: three kernels."""
    return cold("K.sort(a(1_000_000))")


def timeraw_first_matmul_warm() -> str:
    """The first product of a process whose code is in the cache."""
    return """
    import numpy as np
    from cubepy import kernels as K
    K.matmul(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32))
    """
