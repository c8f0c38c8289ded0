"""Cases that take turns: each has its day, and no value of a parameter is left out on any."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from tests import turns

SIZES, KINDS = [3, 5, 9, 70], [("a", 1), ("b", 1), ("c", 2)]


def case(size: int, kind: str, number: int) -> Any:
    """A case of a test of sizes, and of kinds and numbers that go together."""
    marks = [SimpleNamespace(args=(names,), kwargs={}) for names in ("size", "kind, number")]
    given = {"size": size, "kind": kind, "number": number}
    return SimpleNamespace(
        callspec=SimpleNamespace(params=given),
        originalname="test_sizes",
        parent=None,
        iter_markers=lambda name: marks,
    )


def test_every_value_is_drawn_every_day_and_every_case_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = list(itertools.product(SIZES, KINDS))
    days = []
    for day in range(3):
        monkeypatch.setattr(turns, "TURN", day)
        places = turns.Places()
        drawn = [(size, kind) for size, kind in table if places.drawn(case(size, *kind), 3)]
        assert {size for size, _ in drawn} == {*SIZES} and {kind for _, kind in drawn} == {*KINDS}
        days += drawn
    assert sorted(days) == sorted(table)


def test_what_has_no_parameters_is_always_drawn() -> None:
    assert turns.Places().drawn(SimpleNamespace(), 3)
