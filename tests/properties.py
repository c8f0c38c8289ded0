"""Operations that choose as they would on another device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cubepy.runtime.device import Device, current, device_properties
from cubepy.tune import Op


def choose_as_on(
    monkeypatch: pytest.MonkeyPatch, op: Op, only: str = "", **properties: Any
) -> None:
    """Let an operation choose as if the device that it runs on (only such of a backend, if one is
    named) had these properties.
    """

    def run(problem: Any, device: Device | None = None) -> Any:
        where = device or current()
        given = device_properties(where)
        if only in ("", where.backend):
            given = replace(given, **properties)
        return op.chosen(problem, given).launch(problem, given)

    monkeypatch.setattr(op, "run", run)
