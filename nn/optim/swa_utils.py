"""Averages of the weights that a training passes through: stochastic weight averaging (Izmailov et
al., 2018) and exponential moving averages.

Example:
    >>> from cubepy import nn
    >>> model = nn.Linear(2, 1)
    >>> average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    >>> average.update_parameters(model)
    >>> average([[1.0, 2.0]]).shape
    (1, 1)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError
from cubepy.lang.dtypes import f32, f64
from cubepy.nn import arguments
from cubepy.nn.module import Module
from cubepy.nn.modules.norms.batches import BatchNorm
from cubepy.nn.optim.lr_scheduler.annealing import SWALR
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, apply, as_tensor, no_grad
from cubepy.tensor.namespace import where
from cubepy.tensor.record import recording_here

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


class AveragedModel(Module):
    """A copy of a model whose parameters are an average of the model's.

    Args:
        model: that is trained.
        device: where the copy is; beside the model if None.
        avg_fn: (average, new, n) -> the next average of a parameter, of which n values were
            averaged. The mean of all if neither function is given.
        multi_avg_fn: (averages, news, n), which gives the averages new values itself.
        use_buffers: whether buffers are averaged, too; else they are the model's of now.

    Attributes:
        module: the copy.
        n_averaged: how many values were averaged, a buffer.

    Raises:
        ArgumentError: both functions.

    Example:
        >>> from cubepy import nn
        >>> model = nn.Linear(1, 1, bias=False)
        >>> average = nn.optim.swa_utils.AveragedModel(model)
        >>> for value in (1.0, 2.0, 6.0):
        ...     _ = nn.init.constant_(model.weight, value)
        ...     average.update_parameters(model)
        >>> average([[1.0]])
        tensor([[3.]])
    """

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: Callable[[Tensor, Tensor, Any], Any] | None = None,
        multi_avg_fn: Callable[[list[Tensor], list[Tensor], Any], Any] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ArgumentError("give avg_fn or multi_avg_fn, not both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", as_tensor(0))
        self.avg_fn, self.multi_avg_fn = avg_fn, multi_avg_fn
        self.use_buffers = arguments.flag("use_buffers", use_buffers)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the copy gives."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the model's parameters of now into the average. The first ones are the average."""
        with no_grad():
            ours: list[Tensor] = list(self.module.parameters())
            theirs: list[Tensor] = list(model.parameters())
            copied = list(zip(self.module.buffers(), model.buffers(), strict=True))
            if self.use_buffers:
                ours += [b for b, _ in copied]
                theirs += [b for _, b in copied]
                copied = []
            news = [b.detach().to(a.device) for a, b in zip(ours, theirs, strict=True)]
            share = getattr(self.multi_avg_fn or self.avg_fn or get_swa_avg_fn(), "share", None)
            if share is not None and all(map(_alike, ours, news)):
                self._step(ours, news, share)
                ours, news, found = [], [], []
            elif self.multi_avg_fn is not None:
                self.multi_avg_fn(ours, news, self.n_averaged)
                found = [a.detach() for a in ours]
            else:
                average = self.avg_fn or get_swa_avg_fn()
                pairs = zip(ours, news, strict=True)
                found = [average(a.detach(), b, self.n_averaged) for a, b in pairs]
            first = self.n_averaged == 0
            for a, b, averaged in zip(ours, news, found, strict=True):
                begun = first.to(a.device)
                a.assign_(where(begun, b.astype(a.dtype), averaged.astype(a.dtype)))
            for a, b in copied:
                a.assign_(b.detach().to(a.device))
            self.n_averaged += 1

    def _step(self, ours: list[Tensor], news: list[Tensor], share: Callable[[Any], Any]) -> None:
        """One launch for each average, which is like its new value."""
        n = self.n_averaged
        numbers: dict[Any, Tensor] = {}
        for a, b in zip(ours, news, strict=True):
            wide = f64 if a.dtype is f64 else f32
            given = numbers.get((wide, a.device))
            if given is None:
                if recording_here() or gpu_of(n.device) is not None:
                    count = n.astype(wide)
                    made = where(n == 0, 1.0, share(count) + count * 0).astype(wide).reshape(1)
                else:
                    count = int(n)
                    made = as_tensor(np.array([share(count) if count else 1.0], wide.numpy))
                given = numbers[wide, a.device] = made.to(a.device)
            (new,) = apply("average_step", given, a, b)
            a.assign_(new)


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether one launch makes the average of two."""
    stored = a.storage.kind == b.storage.kind == "dense"
    return stored and a.dtype is b.dtype and a.dtype.is_float


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """`decay * average + (1 - decay) * new` for `AveragedModel(avg_fn=...)`.

    Args:
        decay: from 0 to 1.

    Example:
        >>> import cubepy as cb
        >>> get_ema_avg_fn(0.5)(cb.tensor([1.0]), cb.tensor([3.0]), 7)
        tensor([2.])
    """
    kept = arguments.number("decay", decay, 0, 1)

    def averaged(average: Tensor, new: Tensor, n: Any) -> Tensor:
        return average + (new - average) * (1 - kept)

    averaged.share = lambda n: 1 - kept  # type: ignore[attr-defined]
    return averaged


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], None]:
    """The same for `AveragedModel(multi_avg_fn=...)`.

    Args:
        decay: from 0 to 1.
    """
    return _of_all(get_ema_avg_fn(decay))


def get_swa_avg_fn() -> Callable[[Tensor, Tensor, Any], Tensor]:
    """The mean of all values for `AveragedModel(avg_fn=...)`, which is its default.

    Example:
        >>> import cubepy as cb
        >>> get_swa_avg_fn()(cb.tensor([1.0]), cb.tensor([5.0]), 3)
        tensor([2.])
    """

    def averaged(average: Tensor, new: Tensor, n: Any) -> Tensor:
        count = as_tensor(n).to(average.device).astype(average.dtype)
        return average + (new - average) / (count + 1)

    averaged.share = lambda n: 1 / (n + 1)  # type: ignore[attr-defined]
    return averaged


def get_swa_multi_avg_fn() -> Callable[[Any, Any, Any], None]:
    """The same for `AveragedModel(multi_avg_fn=...)`."""
    return _of_all(get_swa_avg_fn())


def _of_all(average: Callable[[Tensor, Tensor, Any], Tensor]) -> Callable[[Any, Any, Any], None]:
    def averaged(averages: Iterable[Any], news: Iterable[Any], n: Any) -> None:
        for a, b in zip(averages, news, strict=True):
            a.assign_(average(a.detach(), b, n).astype(a.dtype))

    averaged.share = average.share  # type: ignore[attr-defined]
    return averaged


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the running means and variances of batch norms anew, of all batches alike, as an
    averaged model needs it.

    Args:
        loader: batches, or tuples that begin with one.
        model: whose norms get new values; it is as it was otherwise.
        device: where batches go first.

    Example:
        >>> import numpy as np
        >>> from cubepy import nn
        >>> model = nn.Sequential(nn.BatchNorm1d(1))
        >>> update_bn([np.float32([[1], [3]]), np.float32([[5], [7]])], model)
        >>> model[0].running_mean, model[0].running_var
        (tensor([4.]), tensor([2.]))
    """
    norms = [m for m in model.modules() if isinstance(m, BatchNorm) and m.track_running_stats]
    if not norms:
        return
    modes = [(m, m.training) for m in model.modules()]
    momenta = [(m, m.momentum) for m in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    model.train()
    try:
        with no_grad():
            for given in loader:
                batch = given[0] if isinstance(given, (list, tuple)) else given
                model(batch if device is None else as_tensor(batch).to(device))
    finally:
        for norm, momentum in momenta:
            norm.momentum = momentum
        for module, training in modes:
            module.training = training
