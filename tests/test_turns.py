"""Cases that take turns: each has its day, and no value of a parameter is left out on any."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from tests import turns

SIZES, KINDS = [3, 5, 9, 70], [("a", 1), ("b", 1), ("c", 2)]


class Case(SimpleNamespace):
    """An item as pytest collects it."""

    nodeid = "tests/tour/test_tiny.py::test_sizes"

    __hash__ = object.__hash__


def case(size: int, kind: str, number: int) -> Any:
    """A case of a test of sizes, and of kinds and numbers that go together."""
    marks = [SimpleNamespace(args=(names,), kwargs={}) for names in ("size", "kind, number")]
    given = {"size": size, "kind": kind, "number": number}
    return Case(
        callspec=SimpleNamespace(params=given),
        originalname="test_sizes",
        parent=None,
        iter_markers=lambda name: marks,
    )


def test_every_value_is_drawn_every_day_and_every_case_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = [case(size, *kind) for size, kind in itertools.product(SIZES, KINDS)]
    days = []
    for day in range(3):
        monkeypatch.setattr(turns, "TURN", day)
        drawn = turns.drawn(table, 3)
        given = [item.callspec.params for item in drawn]
        assert {p["size"] for p in given} == {*SIZES}
        assert {(p["kind"], p["number"]) for p in given} == {*KINDS}
        days += drawn
    assert sorted(map(id, days)) == sorted(map(id, table))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_no_day_is_without_a_case(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = [case(size, *KINDS[0]) for size in (*SIZES, 71)[:count]]
    seen = set()
    for day in range(4):
        monkeypatch.setattr(turns, "TURN", day)
        drawn = turns.drawn(table, 4)
        assert drawn and len(drawn) <= max(count // 2, 1)
        seen.update(map(id, drawn))
    assert len(seen) == count


def asked(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How many cases of a table run that is in a room, and of one outside."""
    gone: list[Any] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
    rooms = "tests/kernels/sort/test_sort.py::test_sizes", "tests/tour/test_tiny.py::test_sizes"
    items = []
    for room, size in itertools.product(rooms, SIZES):
        one = case(size, *KINDS[0])
        one.nodeid, one.parent, one.get_closest_marker = room, room, {}.get
        items.append(one)
    monkeypatch.setattr(turns, "THOROUGH", False)
    turns.draw(SimpleNamespace(args=arguments, hook=hook), items)
    assert len(items) + len(gone) == 2 * len(SIZES)
    first, second = ([i for i in items if i.parent == room] for room in rooms)
    return len(first), len(second)


@pytest.mark.parametrize(
    ("arguments", "some"),
    [
        (["tests"], True),
        (["."], True),
        (["tests/kernels"], False),
        (["tests/test_turns.py"], False),
    ],
)
def test_rooms_take_turns_when_all_tests_are_run(
    arguments: list[str], some: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(turns.HERE.parent)
    inside, outside = asked(arguments, monkeypatch)
    assert outside == len(SIZES) and (1 <= inside < len(SIZES)) is some


def test_files_may_share_their_days(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [case(size, *kind) for size, kind in itertools.product(SIZES, KINDS)]
    for day in range(3):
        monkeypatch.setattr(turns, "TURN", day)
        gone = []
        for file in ("a.py", "b.py", "c.py"):
            marks = {"turns": SimpleNamespace(args=(3, "ours"))}
            for one in table:
                one.nodeid, one.get_closest_marker = file, marks.get
            gone.append({*map(id, turns.others(table, ()))})
        assert gone[0] == gone[1] == gone[2] and len(gone[0]) == 8


def test_each_device_has_a_case_on_any_day(monkeypatch: pytest.MonkeyPatch) -> None:
    table = [case(3, *KINDS[0]) for _ in range(4)]
    for one, device in zip(table, ("cpu", "python", "cuda", "hip"), strict=True):
        one.callspec.params["device"] = device
        one.nodeid, one.get_closest_marker = "tests/kernels/sort/test_sort.py", {}.get
    for day in range(4):
        monkeypatch.setattr(turns, "TURN", day)
        assert not [*turns.others(table, turns.ROOMS)]


def test_some_tests_have_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {"day": SimpleNamespace(args=(1, 2))}
    item = Case(get_closest_marker=marks.get)
    for day in (0, 1):
        monkeypatch.setattr(turns, "TURN", day)
        assert [*turns.others([item], turns.ROOMS)] == ([] if day else [item])
        assert not [*turns.others([item], ())]
