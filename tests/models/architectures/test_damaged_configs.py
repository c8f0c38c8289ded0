"""Configs with one value that cannot be: a model of every kind loads, or says what is wrong."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cubepy as cb
from cubepy.errors import CubeError
from tests.models.folders import drawn_folder, fixture

MODELS = [
    ("more_decoders", "qwen2_moe"),
    ("more_decoders", "gemma3_linear"),
    ("more_decoders", "yarn"),
    ("more_encoders", "modernbert"),
    ("sequences", "t5_gated"),
    ("vision", "dinov2"),
    ("vision", "clip"),
    ("vision", "convnext"),
    ("speech", "many"),
]
VALUES: tuple[Any, ...] = (None, -1, 0, 1 << 22, 1 << 26, 1 << 40, "x", [1], {"a": 1}, float("nan"))
MEMORY = 64 << 20
"""What a config may take beside its file, before its shapes are compared with the weights'."""


def keys(table: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from keys(value, (*path, key))


@pytest.mark.parametrize(("file", "name"), MODELS)
def test_any_value_loads_or_is_refused(file: str, name: str, tmp_path: Path) -> None:
    given = fixture(file)[name]
    drawn_folder(tmp_path, given)
    texts = {"config.json": given["config"].tobytes().decode()}
    if "generation" in given:
        texts["generation_config.json"] = given["generation"].tobytes().decode()
    for path, text in texts.items():
        (tmp_path / path).write_text(text)
    refused = 0
    for path, text in texts.items():
        for key in keys(json.loads(text)):
            for value in VALUES:
                changed = json.loads(text)
                table = changed
                for part in key[:-1]:
                    table = table[part]
                table[key[-1]] = value
                (tmp_path / path).write_text(json.dumps(changed))
                tracemalloc.start()
                try:
                    cb.load(tmp_path)
                except CubeError as error:
                    refused += 1
                    assert str(error)
                taken = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                assert taken < MEMORY, f"{key} = {value!r}: {taken >> 20} MB"
        (tmp_path / path).write_text(text)
    assert refused > 40
