"""Our ops beside torch's: values, first and second derivatives in f64, of torch's own samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor
from cubepy import kernels
from cubepy.errors import CubeError
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, enable_grad
from cubepy.tensor.gradients.engine import walk_back
from tests.tensor.torch_ops.calls import CALLS, LEFT_OUT
from tests.tensor.torch_ops.fixture import Call, calls, names, weights

FIRST, SECOND = 1e-9, 1e-7
"""How far values and first derivatives, and second ones may be off, relative to the largest."""


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (tuple, list)) else []


def derivatives(results: list[Tensor], wanted: list[Tensor], first: int) -> list[Tensor | None]:
    """The gradients of results that are weighed and summed."""
    known = [(n, y) for n, y in results if y.requires_grad]
    if not known:
        return [None] * len(wanted)
    seeds = [(y.value, cb.tensor(weights(n + first, y.shape)).astype(y.dtype)) for n, y in known]
    tensor_of = known[0][1]._of_value
    made = walk_back(
        seeds, [x.value for x in wanted], tensor_of, create_graph=True, retain_graph=True
    )
    return [made.get(x.value) for x in wanted]


def close(got: Any, want: Any, limit: float, what: str) -> None:
    if got is None and want is None:
        return
    want = np.zeros(got.shape) if want is None else want
    got = np.zeros(want.shape) if got is None else np.asarray(got)
    assert got.shape == want.shape, f"{what}: {got.shape} instead of {want.shape}"
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(want)
        scale = np.abs(want[finite]).max(initial=1.0)
    np.testing.assert_allclose(got, want, limit, limit * scale, err_msg=what)


def compare(name: str, call: Call) -> None:
    moved = [t for t in tensors_in((call.args, call.kwargs)) if t.requires_grad]
    results = tensors_in(CALLS[name](*call.args, **call.kwargs))
    assert len(results) == len(call.results)
    loose = LOOSE.get(name, 0.0)
    for y, want in zip(results, call.results, strict=True):
        close(y.numpy(), want, max(FIRST if want.dtype != np.float32 else 1e-6, loose), "values")
    if not call.first or name in VALUES_ONLY:
        return
    with enable_grad():
        known = [y for y in results if y.requires_grad]
        first = derivatives(list(enumerate(known)), moved, 0)
        for got, want in zip(first, call.first, strict=True):
            close(
                None if got is None else got.numpy(), want, max(FIRST, loose), "first derivatives"
            )
        if not call.second or name in FIRST_ONLY:
            return
        theirs = [n for n, want in enumerate(call.first) if want is not None]
        pairs = [(n, first[n]) for n in theirs if first[n] is not None]
        second = derivatives(pairs, moved, 100)
    for got, want in zip(second, call.second, strict=True):
        close(None if got is None else got.numpy(), want, max(SECOND, loose), "second derivatives")


REFUSED = {
    "gather": "an empty index of another rank",
    "nn.functional.batch_norm": "one axis, and a momentum below 0",
    "nn.functional.group_norm": "an eps below 0",
    "nn.functional.layer_norm": "an eps below 0",
    "nn.functional.rms_norm": "an eps below 0",
    "tensordot": "lengths of 1 that broadcast",
}
"""Calls that torch takes and we refuse with an error."""
VALUES_ONLY = {
    "digamma": "its second derivative is of no op; its first one is in that of lgamma",
    "nextafter": "a step here; torch passes the gradient on",
}
FIRST_ONLY = {"linalg.norm.subgradients_at_zero": "second derivatives are NaN in torch, 0 / 0"}
LOOSE = {"nn.functional.hardsigmoid": 1e-7, "cov": 1e-6}
"""Ops of torch that are that far off: they multiply with 1 / 6 of f32, and weigh in f32."""


def is_random(name: str, call: Call) -> bool:
    return (
        bool(call.kwargs.get("dropout_p"))
        or name == "nn.functional.rrelu"
        and bool(call.kwargs.get("training"))
    )


@pytest.mark.turns(6, "ops of torch")
@pytest.mark.parametrize("name", CALLS)
def test_an_op_is_what_torch_has(name: str) -> None:
    compared, refused = 0, 0
    for n, call in enumerate(calls()[name]):
        if is_random(name, call):
            continue
        try:
            compare(name, call)
            compared += 1
        except (CubeError, TypeError) as error:
            assert name in REFUSED, f"call {n}: {error}"
            refused += 1
        except AssertionError as error:
            shapes = [getattr(a, "shape", a) for a in call.args]
            raise AssertionError(f"call {n}: {shapes} {call.kwargs}: {error}") from error
    assert compared and bool(refused) == (name in REFUSED)


def test_every_op_that_both_have_is_compared() -> None:
    """By its name; or is left out for a reason."""
    assert calls().keys() == CALLS.keys()
    ours = {n for room in (Tensor, cubepy.tensor, F, kernels) for n in dir(room)}
    both = {n for n in names() if n.removeprefix("nn.functional.").split(".")[0] in ours}
    assert both - CALLS.keys() == LEFT_OUT.keys()
