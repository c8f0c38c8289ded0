"""The functions of `cubepy.tensor`: an array API namespace (2024.12, real dtypes)."""

from __future__ import annotations

from cubepy.tensor.namespace import (
    choice,
    contraction,
    creation,
    dtypes,
    elementwise,
    manipulation,
    products,
    searching,
    statistics,
)
from cubepy.tensor.namespace.choice import *
from cubepy.tensor.namespace.contraction import *
from cubepy.tensor.namespace.creation import *
from cubepy.tensor.namespace.dtypes import *
from cubepy.tensor.namespace.elementwise import *
from cubepy.tensor.namespace.manipulation import *
from cubepy.tensor.namespace.products import *
from cubepy.tensor.namespace.searching import *
from cubepy.tensor.namespace.statistics import *

__all__: list[str] = []
__all__ += choice.__all__
__all__ += creation.__all__
__all__ += dtypes.__all__
__all__ += contraction.__all__
__all__ += elementwise.__all__
__all__ += manipulation.__all__
__all__ += products.__all__
__all__ += searching.__all__
__all__ += statistics.__all__
