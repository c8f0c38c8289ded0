"""The sizes of a core's caches, as Linux tells them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubepy.backends.cpu.backend import cache_bytes


def told(folder: Path, *caches: tuple[str, str, str]) -> str:
    for n, texts in enumerate(caches):
        index = folder / f"index{n}"
        index.mkdir()
        for what, text in zip(("level", "type", "size"), texts, strict=True):
            (index / what).write_text(f"{text}\n")
    return str(folder)


def test_data_caches_of_each_level(tmp_path: Path) -> None:
    here = told(
        tmp_path, ("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2M"), ("3", "Unified", "1G")
    )  # fmt: skip
    assert [cache_bytes(n, 7, here) for n in range(1, 5)] == [48 << 10, 2 << 20, 1 << 30, 7]


@pytest.mark.parametrize("size", ["", "many", "12", "K", "3T"])
def test_what_is_not_understood_is_left(tmp_path: Path, size: str) -> None:
    assert cache_bytes(1, 5, told(tmp_path, ("1", "Data", size))) == 5


def test_nobody_tells(tmp_path: Path) -> None:
    assert cache_bytes(1, 9, str(tmp_path / "nothing")) == 9
