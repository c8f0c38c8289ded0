"""Every name of the language in one module; what type checkers know of them is in `names.pyi`.

That stub is made by `scripts/language_stubs.py`.
"""

from __future__ import annotations

from cubepy.lang.builtins import BUILTINS, TOPOLOGY
from cubepy.lang.dtypes import ALL

_LANGUAGE = BUILTINS | TOPOLOGY | {dtype.name: dtype for dtype in ALL}
globals().update(_LANGUAGE)

__all__ = list(_LANGUAGE)
