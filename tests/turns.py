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

import pytest

from tests.backends.cuda.thorough import THOROUGH

VARIABLE = "CUBEPY_TEST_TURN"
TURN = int(os.environ.setdefault(VARIABLE, str(int(time.time() // 86400))))
"""The day; processes that a run starts have that of the run."""


def _axes(item: pytest.Function) -> Iterator[int]:
    """The places of a case along its parameters; those that go together count once."""
    left = dict(item.callspec.indices)
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs["argnames"]
        together = names.replace(",", " ").split() if isinstance(names, str) else names
        places = [left.pop(name) for name in together if name in left]
        yield from places[:1]
    yield from left.values()


def is_drawn(item: pytest.Item, of: int) -> bool:
    """Whether a case is among those of today, of which there are one in so many."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    return (sum(_axes(item)) + zlib.crc32(item.originalname.encode()) + TURN) % of == 0


def draw(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the cases whose turn it is not."""
    if THOROUGH or any("::" in argument for argument in config.args):
        return
    turns = [(item, item.get_closest_marker("turns")) for item in items]
    others = [i for i, mark in turns if mark is not None and not is_drawn(i, *mark.args)]
    if others:
        config.hook.pytest_deselected(items=others)
        left = set(others)
        items[:] = [item for item in items if item not in left]
