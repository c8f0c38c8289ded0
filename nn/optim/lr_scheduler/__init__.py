"""Schedules of learning rates with the names, argument order and defaults of
`torch.optim.lr_scheduler`.

Example:
    >>> from cubepy import nn
    >>> optimizer = nn.optim.SGD([nn.Parameter([1.0])], lr=0.5)
    >>> schedule = nn.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> optimizer.step(), schedule.step(), schedule.get_last_lr()
    (None, None, [0.25])
"""

from __future__ import annotations

from cubepy.nn.optim.lr_scheduler.composed import ChainedScheduler, SequentialLR
from cubepy.nn.optim.lr_scheduler.cycles import CosineAnnealingLR, OneCycleLR
from cubepy.nn.optim.lr_scheduler.factors import (
    ConstantLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from cubepy.nn.optim.lr_scheduler.plateau import ReduceLROnPlateau
from cubepy.nn.optim.lr_scheduler.restarts import CosineAnnealingWarmRestarts, CyclicLR
from cubepy.nn.optim.lr_scheduler.scheduler import LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
