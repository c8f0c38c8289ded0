"""Optimizers with the names, argument order and defaults of `torch.optim`; schedules of learning
rates are in `nn.optim.lr_scheduler`.

Example:
    >>> import cubepy as cb
    >>> from cubepy import nn
    >>> x = nn.Parameter([1.0, -2.0])
    >>> optimizer = nn.optim.SGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.detach()
    tensor([ 0.5, -1. ])
"""

from __future__ import annotations

from cubepy.nn.optim import lr_scheduler, swa_utils
from cubepy.nn.optim.adadelta import Adadelta
from cubepy.nn.optim.adafactor import Adafactor
from cubepy.nn.optim.adagrad import Adagrad
from cubepy.nn.optim.adam import Adam, AdamW
from cubepy.nn.optim.adam_variants import Adamax, NAdam, RAdam
from cubepy.nn.optim.asgd import ASGD
from cubepy.nn.optim.lbfgs import LBFGS
from cubepy.nn.optim.muon import Muon
from cubepy.nn.optim.optimizer import Optimizer
from cubepy.nn.optim.rmsprop import RMSprop
from cubepy.nn.optim.rprop import Rprop
from cubepy.nn.optim.sgd import SGD

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "lr_scheduler",
    "swa_utils",
]
