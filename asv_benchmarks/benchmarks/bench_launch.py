"""The cost of a launch, of an import, and of first calls."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np


@cache
def _tiny() -> Any:
    from benchmarks.kernels import add_one

    x, out = np.zeros(16, np.float32), np.zeros(16, np.float32)
    add_one[1, 16](x, out)
    return add_one, x, out, add_one[1, 16].bind(x, out)


def time_launch_unbound() -> None:
    """A launch of a kernel of 16 elements, arguments and all."""
    kernel, x, out, _ = _tiny()
    kernel[1, 16](x, out)


def time_launch_bound() -> None:
    """The same launch, bound."""
    _tiny()[3]()


@cache
def _problem() -> Any:
    from cubepy.kernels.matmul_problem import Product
    from cubepy.kernels.matmul_routines import MATMUL
    from cubepy.tune import choose

    problem = Product("cpu", 512, 512, 512)
    choose(MATMUL, problem)
    return choose, MATMUL, problem


def time_choose_routine() -> None:
    """What the choice between routines costs for a problem that was asked for before."""
    choose, op, problem = _problem()
    choose(op, problem)


def timeraw_import() -> str:
    """`import cubepy` in a fresh interpreter."""
    return "import cubepy"


def timeraw_first_matmul_cold() -> str:
    """The first product of a process with an empty cache."""
    return """
    import os, tempfile
    os.environ["CUBEPY_CACHE_DIR"] = tempfile.mkdtemp()
    import numpy as np
    from cubepy import kernels as K
    K.matmul(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32))
    """


def timeraw_first_matmul_warm() -> str:
    """The first product of a process whose code is in the cache."""
    return """
    import numpy as np
    from cubepy import kernels as K
    K.matmul(np.ones((64, 64), np.float32), np.ones((64, 64), np.float32))
    """
