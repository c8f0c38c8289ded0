"""Gradients of the same kind as before, by a short key: as a program, or as the few ops that they
were. Most of what a small gradient costs is Python that finds out what is known already.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from cubepy.runtime import recording
from cubepy.runtime.device import current
from cubepy.runtime.replay.standing import ONE
from cubepy.runtime.tables import room
from cubepy.tensor.control.repeated import KINDS, SINGLE, Repeated, lasts, of_rule, programmed
from cubepy.tensor.gradients.rules import Vjp
from cubepy.tensor.ops import OPS
from cubepy.tensor.replay import short_of
from cubepy.tensor.storage import Dense
from cubepy.tensor.value import Number, Value

FEW = 3
"""How often a rule is asked before what it does is learned."""
LIMIT = 4096
NEVER = -1
COMPOSED = "composed"
"""An op that only calls have: a function whose result is one tensor, or several."""
OWN = frozenset("custom custom_call launch scan cond while_loop program checkpoint".split())
"""Ops whose gradients are functions of users."""
_known: dict[Any, Any] = {}
"""By short key, what gives gradients of storages; or how often there was none, or NEVER."""
_kept: dict[Any, list[Any]] = {}
"""Options whose addresses are in a short key, so that none gets them."""


def again(
    call: Any,
    rule: Vjp,
    inputs: Sequence[Value | None],
    results: Sequence[Value | None],
    needs: tuple[bool, ...],
    grads: Sequence[Any],
) -> Any:
    """The gradients by the inputs of a call, as far as they are wanted, summed to their shapes,
    without its rule; None where that has to be asked.
    """
    op = call.op
    if recording.detours or op in OWN:
        return None
    stores: list[Any] = []
    values: list[Any] = [op, rule, *needs]
    numbers = 0
    for group in (inputs, results):
        for v in group:
            if v is None:
                values.append(None)
                continue
            store = v.storage
            if type(store) is not Dense or store.device.backend != "cpu":
                return programmed(call, rule, inputs, results, needs, grads)[0]
            stores.append(store)
            values.append(store.array)
            if type(v) is Number:
                numbers += 1
                values.append(Number)
    if numbers == len(stores):  # they are at home everywhere
        return None
    for g in grads:
        if g is None:
            values.append(None)
            continue
        store = g.value.storage
        if type(store) is not Dense or store.device.backend != "cpu":
            return None
        stores.append(store)
        values.append(store.array)
    attrs = call.attrs
    if attrs:
        values += attrs
        values += [ONE[type(v)](v) if type(v) in ONE else v for v in attrs.values()]
    short = short_of[0](tuple(values))
    known = _known.get(short, 0)
    if type(known) is not int:
        made = known(stores)
        if made is not None:
            return made
    if current().backend != "cpu":
        return None
    if op == COMPOSED:
        found = attrs["function"].backward_of(needs, grads)
        if short is not None and found.calls:
            _keep(short, values, partial(_of_some, found, len(inputs), found.count - found.values))
        return found(inputs, [g for g in grads if g is not None])
    made, found = programmed(call, rule, inputs, results, needs, grads)
    if type(known) is not int or short is None:
        return made
    if found is not None:
        _keep(short, values, found)
    elif OPS[op].kind in KINDS and op not in SINGLE:
        pass  # a program is coming
    elif known >= FEW and rule.__module__.startswith("cubepy."):  # those of others may change
        there = [v is not None for v in (*inputs, *results, *grads)]
        behind = len(inputs) + len(results)
        function = of_rule(rule, len(inputs), behind, there, needs, attrs)
        made, found = _learning()(function, stores)
        _keep(short, values, NEVER if found is None else found)
    elif known >= 0:
        _keep(short, values, known + 1)
    return made


def _of_some(found: Repeated, inputs: int, grads: int, stores: Sequence[Any]) -> Any:
    """The gradients of a function that does not read its results."""
    return found.of_stores([*stores[:inputs], *stores[-grads:]])


def _keep(short: Any, values: Sequence[Any], known: Any) -> None:
    """Know what a short key stands for from here on."""
    if lasts(values):
        room(_known, LIMIT, _kept)
        _kept[short] = [v for v in values if type(v) is not np.ndarray]
        _known[short] = known


@cache
def _learning() -> Any:
    """What learns functions of tensors, which know the walk back."""
    return importlib.import_module("cubepy.tensor.control.learned").learned
