"""Tables of what was seen, which forget the oldest: new lengths must not make all that is known be
learned again.

Hits change nothing, so they cost what a look into a `dict` costs. What is used all the time is
learned again once in a while, after as many other entries as seven eighths of the table.
"""

from __future__ import annotations

from typing import Any


def room(table: dict[Any, Any], limit: int, *others: dict[Any, Any]) -> None:
    """Let a table hold less than `limit` entries: the eighth that came first goes when it is full.

    Args:
        table: threads may use it meanwhile.
        limit: how many entries it may hold.
        others: tables that lose the same keys.

    Example:
        >>> table = dict.fromkeys(range(16))
        >>> room(table, 16)
        >>> list(table)[:2]
        [2, 3]
    """
    if len(table) >= limit:
        for key in tuple(table)[: max(1, limit // 8)]:
            for t in (table, *others):
                t.pop(key, None)
