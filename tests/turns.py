"""Cases that take turns: of a large table a part runs, another one every day.

`@pytest.mark.turns(3)` runs a third of a test's cases: those whose places along all parameters add
up to today's number (and one of the test's own), so that every value of every parameter is there
every day where tables are large enough, and everything in three days. `CUBEPY_TEST_TURN` is the
number (a run says which it had), and with `CUBEPY_TEST_ARCHITECTURES=all`, or when a test is asked
for by its name, all cases run.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.backends.cuda.thorough import THOROUGH

VARIABLE = "CUBEPY_TEST_TURN"
TURN = int(os.environ.setdefault(VARIABLE, str(int(time.time() // 86400))))
"""The day; processes that a run starts have that of the run."""


class Places:
    """Where cases are along the parameters of their tests, in the order in which values come."""

    def __init__(self) -> None:
        self.known: dict[Any, dict[tuple[int, ...], int]] = {}

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
        places = self.known.setdefault((item.parent, item.originalname, *names), {})
        return places.setdefault(values, len(places))

    def drawn(self, item: Any, of: int) -> bool:
        """Whether a case is among those of today, of which there are one in so many."""
        if not hasattr(item, "callspec"):
            return True
        own = zlib.crc32(item.originalname.encode())
        return (sum(self.of(item)) + own + TURN) % of == 0


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the cases whose turn it is not."""
    if THOROUGH or any("::" in argument for argument in config.args):
        return
    places = Places()
    turns = [(item, item.get_closest_marker("turns")) for item in items]
    others = [i for i, mark in turns if mark is not None and not places.drawn(i, *mark.args)]
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]
