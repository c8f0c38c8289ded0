"""Calls of a loaded model that come again run as programs."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.config import config
from cubepy.nn import Module
from cubepy.nn.derived import derived
from cubepy.runtime import recording
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.modes import mode
from cubepy.tensor.program.watched import version

MOST = 256
"""Kinds of calls that are remembered; the oldest are forgotten."""


class Repeating:
    """What came before, of one function of a module, and its program."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.program = cb.jit(function)
        self.kinds: OrderedDict[Any, None] = OrderedDict()
        self.lock = threading.Lock()

    def again(self, given: list[Any]) -> bool:
        """Whether a call of these shapes and dtypes has come before."""
        kind = tuple(None if t is None else (t.shape, t.dtype.name) for t in given)
        with self.lock:
            known = kind in self.kinds
            self.kinds[kind] = None
            self.kinds.move_to_end(kind)
            if len(self.kinds) > MOST:
                self.kinds.popitem(last=False)
        return known


class RepeatedCalls(Module):
    """A module whose calls become programs: the second one with arrays of the same shapes and
    dtypes is traced, and from then on it is one call of machine code, with weights in the order in
    which they are read.

    Others run op by op: the first of a kind (texts of many lengths would be traced for each), those
    of lists or of a module on a GPU, where the module trains or gradients are wanted, where it or a
    module in it has hooks, with `cb.config.deterministic` (a program sums in another order, and so
    rounds otherwise), and while somebody else traces.

    Example:
        >>> class Twice(RepeatedCalls):
        ...     def forward(self, x):
        ...         return x + x
        >>> model = Twice().eval()
        >>> [float(model(np.ones((1, 3))).sum()) for _ in range(3)]
        [6.0, 6.0, 6.0]
    """

    def __call__(self, *args: Any, **options: Any) -> Any:
        return repeated(self, "__call__", Module.__call__, args, options)


def repeated(
    module: Any, name: str, function: Callable[..., Any], args: Any, options: Any = None
) -> Any:
    """What a function of a module gives, by a program where such a call came before.

    Args:
        module: its first argument.
        name: of the function; each has its own program.
        function: takes the module and the arguments.
        args, options: arrays, tensors or None, by position and by name.
    """
    names, values = tuple(options or ()), [*args, *(options or {}).values()]
    arrays = all(v is None or isinstance(v, (np.ndarray, Tensor)) for v in values)
    if not arrays or not plain(module):
        return function(module, *args, **(options or {}))
    given = [None if v is None else as_tensor(v) for v in values]
    if any(t is not None and (t.requires_grad or t.device.backend != "cpu") for t in given):
        return function(module, *args, **(options or {}))

    def run(*tensors: Any) -> Any:
        by_position = len(tensors) - len(names)
        by_name = dict(zip(names, tensors[by_position:], strict=True))
        return function(module, *tensors[:by_position], **by_name)

    kept = "_".join(("_repeated", name, str(len(args)), *names))
    known = derived(module, kept, lambda: Repeating(run))
    if not known.again(given):
        return run(*given)
    with cb.no_grad():  # none are wanted, and there is one program for either mode
        return known.program(*given)


def plain(module: Any) -> bool:
    """Whether a module's results are all that its calls are for, and programs give these."""
    if module.training or recording.detours or config.deterministic:
        return False
    if mode.enabled and any(p.requires_grad for p in module.parameters()):
        return False
    looked = derived(module, "_without_hooks", lambda: [(-1, False)])
    if looked[0][0] != version[0]:
        hooked = (
            m._hooks or m._pre_hooks or m._backward_hooks or m._backward_pre_hooks
            for m in module.modules()
        )
        on_host = all(p.device.backend == "cpu" for p in module.parameters())
        looked[0] = version[0], on_host and not any(hooked)
    return looked[0][1]
