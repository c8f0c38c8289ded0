"""Tests while another device than the host is the default (`CUBEPY_BACKEND=cuda`): those of
`tests/device/of_the_host.txt` are left out.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "CUBEPY_BACKEND"
LIST = Path(__file__).parent / "device" / "of_the_host.txt"


def of_the_host() -> set[str]:
    """What is left out: functions, methods and single cases, by their identities in pytest."""
    found, file = set(), ""
    for line in LIST.read_text().splitlines():
        if line.startswith("    "):
            found.add(f"{file}::{line.strip()}")
        else:
            file = line
    return found


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the tests about the host from those that were collected."""
    if os.environ.get(VARIABLE, "cpu") in ("cpu", "python"):
        return
    known = of_the_host()
    out = [i for i in items if i.nodeid in known or i.nodeid.split("[")[0] in known]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [i for i in items if i not in set(out)]
