"""Cases that take turns: of a large table a part runs, another one every day.

`@pytest.mark.turns(3)` runs a third of a test's cases: those whose places along all parameters add
up to today's number (and one of the file's own, or of a name that files share: tests of one table
share what they compile), so that every value of every parameter is there every day where tables are
large enough, some case of each test on any day, and everything in three days. When all tests are
run, tables in `ROOMS` do so by themselves, and what has `@pytest.mark.day(0, 2)` runs on day 0 of
two, as what says almost the same runs on day 1; a file or folder that is asked for is whole.
`CUBEPY_TEST_TURN` is the number (a run says which it had), and with `make test-all`
(`CUBEPY_TEST_ARCHITECTURES=all`), or when a test is asked for by its name, all cases run.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.backends.cuda.thorough import THOROUGH

VARIABLE = "CUBEPY_TEST_TURN"
TURN = int(os.environ.setdefault(VARIABLE, str(int(time.time() // 86400))))
"""The day; processes that a run starts have that of the run."""
HERE = Path(__file__).resolve().parent
DAYS = 6
ROOMS = (
    *(f"tests/{room}/" for room in ("kernels", "tensor", "nn", "models", "quant", "conformance")),
    *("tests/fuzz/", "tests/runtime/replay/", "tests/backends/cpu/ops/"),
    *(f"tests/backends/hip/test_{file}.py" for file in ("compile", "matrix_units")),
    "tests/backends/cuda/test_matrix_offline.py",
    *(
        f"tests/project/test_docs.py::test_{what}"
        for what in ("snippets", "examples_in_docstrings")
    ),
)
"""Where tables take turns of so many days, unless their tests say otherwise."""


class Places:
    """Where cases of a table are along its parameters, in the order in which values come."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, ...], dict[tuple[int, ...], int]] = {}

    def of(self, item: Any) -> Iterator[int]:
        """The places of a case; parameters that go together count once."""
        given = item.callspec.params
        left = dict.fromkeys(given)
        for mark in item.iter_markers("parametrize"):
            names = mark.args[0] if mark.args else mark.kwargs["argnames"]
            together = names.replace(",", " ").split() if isinstance(names, str) else names
            mine = [name for name in together if name in left]
            if mine:
                yield self._place(item, mine)
            for name in mine:
                del left[name]
        for name in left:
            yield self._place(item, [name])

    def _place(self, item: Any, names: list[str]) -> int:
        values = tuple(id(item.callspec.params[name]) for name in names)
        places = self.known.setdefault((*names,), {})
        return places.setdefault(values, len(places))


def days_of(item: Any, rooms: tuple[str, ...]) -> tuple[int, str]:
    """In how many days all cases of an item's table run, and whose days they are. In rooms each
    device has its own: one that is not there must not be all that is drawn.
    """
    mark, file = item.get_closest_marker("turns"), item.nodeid.split("::")[0]
    if mark is not None:
        days, *whose = mark.args
        return days, *(whose or [file])
    device = item.callspec.params.get("device", "")
    return DAYS if item.nodeid.startswith(rooms) else 1, f"{file} {device}"


def drawn(table: Sequence[Any], of: int, whose: str = "") -> list[Any]:
    """The cases of a table that are today's. Where a table is too small for so many days, it takes
    fewer: no day is without a case.
    """
    places = Places()
    found = [sum(places.of(item)) for item in table]
    while len({n % of for n in found}) < of:
        of -= 1
    own = zlib.crc32(whose.encode())
    return [item for item, n in zip(table, found, strict=True) if (n + own + TURN) % of == 0]


def others(items: Sequence[Any], rooms: tuple[str, ...]) -> Iterator[Any]:
    """What has another day."""
    tables: dict[Any, list[Any]] = {}
    for item in items:
        day = item.get_closest_marker("day")
        if day is not None and rooms and TURN % day.args[1] != day.args[0]:
            yield item
        elif hasattr(item, "callspec") and (days := days_of(item, rooms))[0] > 1:
            tables.setdefault((item.parent, item.originalname, *days), []).append(item)
    for (*_, of, whose), table in tables.items():
        yield from {*table} - {*drawn(table, of, whose)}


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the cases whose turn it is not."""
    if THOROUGH or any("::" in argument for argument in config.args):
        return
    whole = any(HERE.is_relative_to(Path(argument).resolve()) for argument in config.args)
    gone = {*others(items, ROOMS if whole else ())}
    if gone:
        config.hook.pytest_deselected(items=[item for item in items if item in gone])
        items[:] = [item for item in items if item not in gone]
