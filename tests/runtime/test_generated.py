"""Functions written as text: the bytecode of long ones is kept on disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import cubepy as cb
from cubepy.runtime import generated

SUM = "def total(x):\n" + "    x += step\n" * (generated.LONG // 10) + "    return x\n"
STEPS = SUM.count("step\n")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with cb.config.override(cache_dir=str(tmp_path)):
        yield tmp_path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were compiled."""
    seen: list[str] = []
    real = generated._compiled

    def noted(text: str, file: str) -> object:
        seen.append(text)
        return real(text, file)

    monkeypatch.setattr(generated, "_compiled", noted)
    return seen


def total(text: str = SUM) -> int:
    """What the function gives in a process that has not seen its text."""
    generated._code.cache_clear()
    result: int = generated.written(text, "<total>", {"step": 2})(1)
    return result


def test_a_long_text_is_compiled_once_for_all_processes(folder: Path, compiled: list[str]) -> None:
    assert [total(), total()] == [1 + 2 * STEPS] * 2
    assert compiled == [SUM]
    assert len(list(folder.rglob("*.code"))) == 1


def test_a_short_text_is_not_kept(folder: Path, compiled: list[str]) -> None:
    short = "def total(x):\n    return x + step\n"
    assert [total(short), total(short)] == [3, 3]
    assert compiled == [short, short] and not list(folder.rglob("*.code"))


def test_a_damaged_entry_is_made_anew(folder: Path, compiled: list[str]) -> None:
    total()
    (entry,) = folder.rglob("*.code")
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-1])
    assert total() == 1 + 2 * STEPS and compiled == [SUM, SUM]
    assert entry.read_bytes() == whole
