"""Torch's samples of tensors on a device with its own memory, which is pretended, while the host is
current: everything stays there, also once calls come often and are programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import CubeError
from cubepy.tensor import Tensor
from tests.pretend import NAME, PretendBackend, pretend
from tests.tensor.gradients import test_composed as often
from tests.tensor.torch_ops.calls import CALLS
from tests.tensor.torch_ops.fixture import calls
from tests.tensor.torch_ops.test_torch_ops import REFUSED, is_random, tensors_in

REPEATED, SAMPLES, NEAR = 5, 2, 1e-9


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendBackend]:
    """The pretended device; calls are programs from the third of a kind on."""
    monkeypatch.setattr(often.repeated, "AFTER", 2)
    monkeypatch.setattr(often.functions, "AFTER", 2)
    with cb.use("cpu"), pretend(monkeypatch) as b:
        yield b


def moved(value: Any, device: str) -> Any:
    """Arguments whose tensors are leaves on a device."""
    if isinstance(value, Tensor):
        return cb.tensor(value.numpy(), device=device, requires_grad=value.requires_grad)
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    return type(value)(moved(v, device) for v in value) if type(value) in (list, tuple) else value


def found(name: str, args: Any, kwargs: Any) -> tuple[list[Tensor], list[Tensor | None]]:
    """The results of a call, and gradients of the sum of all that have some."""
    results = tensors_in(CALLS[name](*args, **kwargs))
    wanted = [t for t in tensors_in((args, kwargs)) if t.requires_grad]
    sums = [y.sum() for y in results if y.requires_grad]
    if sums:
        total = sums[0]
        for one in sums[1:]:
            total = total + one
        total.backward()
    return results, [t.grad for t in wanted]


@pytest.mark.turns(6, "ops of torch")
@pytest.mark.parametrize("name", CALLS)
def test_an_op_stays_where_its_tensors_are(name: str) -> None:
    usual = [c for c in calls()[name] if not is_random(name, c) and tensors_in((c.args, c.kwargs))]
    for call in usual[:SAMPLES]:
        try:
            want = found(name, moved(call.args, "cpu"), moved(call.kwargs, "cpu"))
        except CubeError:
            assert name in REFUSED
            continue
        for _ in range(REPEATED):
            got = found(name, moved(call.args, NAME), moved(call.kwargs, NAME))
            for a, b in zip((*got[0], *got[1]), (*want[0], *want[1]), strict=True):
                assert (a is None) == (b is None)
                if a is not None and b is not None:
                    assert str(a.device) == NAME or not a.shape, a.device
                    scale = NEAR * max(1.0, float(np.abs(np.nan_to_num(b.numpy())).max(initial=0)))
                    np.testing.assert_allclose(a.numpy(), b.numpy(), NEAR, scale)
