"""Lengths that vary (sentences, serving): a new one is no new structure, and what is known is not
forgotten at once.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import pytest

from cubepy.runtime.generated import written
from cubepy.runtime.launch import launcher as launch
from cubepy.runtime.replay import arguments, calls, plan
from cubepy.runtime.tables import room
from tests.backends.gpu.fake_driver import FakeDriver
from tests.runtime.replay import gpu_calls
from tests.runtime.replay.gpu_calls import Repetitions, much, new, plus, same, some, start


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    yield from start(monkeypatch, 0)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is compiled to bytecode from text."""
    texts: list[str] = []
    real = builtins.compile

    def note(source: Any, *args: Any, **options: Any) -> Any:
        texts.append(str(source))
        return real(source, *args, **options)

    monkeypatch.setattr(builtins, "compile", note)
    return texts


def lengths(n: int) -> None:
    """Calls of functions, kernels and ops of tensors for arrays of one length, often enough for
    every way.
    """
    for _ in range(6):
        x, y = some(n), some(n)
        same(plus(new(x), new(y)), x + y)
        out = new(x)
        plus(new(x), new(y), out=out)
        same(much(new(x), new(y), 2), ((x + y) + y) + 2)
        a, b, c = new(x), new(y), new(x)
        gpu_calls.add_arrays[1, max(1, n)](a, b, c)
        same(c, x + y)


def test_a_new_length_makes_no_bytecode(fake: FakeDriver, compiled: list[str]) -> None:
    for n in (10, 11):
        lengths(n)
    compiled.clear()
    for n in (12, 33, 100, 500, 1000):
        lengths(n)
    assert not compiled


def test_the_first_call_of_a_length_makes_no_function(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes later calls quick comes when a length came before: many lengths never come again."""
    made: list[str] = []
    monkeypatch.setattr(
        plan, "written", lambda text, *given: made.append(text) or written(text, *given)
    )  # type: ignore[func-returns-value]
    for n in range(10, 20):
        x, y = some(n), some(n)
        same(plus(new(x), new(y)), x + y)
    assert not made
    for _ in range(3):
        same(plus(new(x), new(y)), x + y)
    assert len(made) == 1


def test_functions_are_compiled_once_for_their_text(compiled: list[str]) -> None:
    text = "def f(x):\n    return x + n + 0"
    one, two = written(text, "<test>", {"n": 1}), written(text, "<test>", {"n": 2})
    assert compiled == [text] and (one(1), two(1)) == (2, 3)


def test_a_length_that_is_used_between_others_is_known(
    fake: FakeDriver, monkeypatch: pytest.MonkeyPatch, repetitions: Repetitions
) -> None:
    """Tables that are full forget their oldest entries, not all of them."""
    for module in (calls, arguments):
        monkeypatch.setattr(module, "LIMIT", 16)
    monkeypatch.setattr(launch, "TABLE_LIMIT", 16)
    x, y = some(9), some(9)
    for n in range(20, 60):
        for _ in range(4):
            same(plus(new(x), new(y)), x + y)
            a, b = some(n), some(n)
            same(plus(new(a), new(b)), a + b)
    learned = repetitions.long
    kept = [n for n in range(46, 60) if _calls_again(n, repetitions)]
    assert len(kept) >= 12, "the newest are known"
    assert learned < 40 + 8 + 4, "and what was used all the time was learned again a few times"


@pytest.fixture
def repetitions(monkeypatch: pytest.MonkeyPatch) -> Repetitions:
    return Repetitions(monkeypatch)


def _calls_again(n: int, repetitions: Repetitions) -> bool:
    """Whether a call is repeated by machine code."""
    before, x = repetitions.long, some(n)
    same(plus(new(x), new(x)), x + x)
    return repetitions.long == before


def test_full_tables_forget_their_oldest_eighth() -> None:
    table = dict.fromkeys(range(4096))
    other: dict[int, Any] = {0: 1, 4000: 2}
    room(table, 4096, other)
    assert list(table) == list(range(512, 4096)) and other == {4000: 2}
    room(table, 4096)
    assert len(table) == 3584
    small = dict.fromkeys(range(3))
    room(small, 3)
    assert list(small) == [1, 2]
