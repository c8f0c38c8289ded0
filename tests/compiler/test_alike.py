"""Numbers that are equal and not alike (0.0 and -0.0; 1, 1.0 and True) have keys, code and
variables of their own.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cb
from cubepy.compiler.signature import exact
from cubepy.runtime.ahead.described import described
from tests.conformance.random_kernels.compare import load

NAN = float("nan")
ZEROS: tuple[Any, ...] = (0, 0.0, -0.0, False)
ONES: tuple[Any, ...] = (1, 1.0, True)
NUMBERS: tuple[Any, ...] = (*ZEROS, *ONES, 2, 2.0, 0.5, NAN)
OF_NUMPY = (np.float64(0.0), np.float64(-0.0), np.float32(0.0), np.float32(-0.0), np.int64(0))


@dataclasses.dataclass(frozen=True)
class Plan:
    value: Any
    beside: Any = 1


@dataclasses.dataclass(frozen=True)
class Slots:
    __slots__ = ("value",)
    value: Any


class Named(NamedTuple):
    value: Any
    beside: Any = True


def drawn(rng: random.Random, depth: int = 0) -> Any:
    """A comptime value that means the same wherever it is equal, or not."""
    kind = rng.randrange(9 if depth < 3 else 4)
    if kind < 4:
        return rng.choice((*NUMBERS, "0", None, cb.f32))
    one, other = drawn(rng, depth + 1), drawn(rng, depth + 1)
    makers = (Plan, lambda a, b: Slots(a), lambda a, b: (a, b), lambda a, b: frozenset([a]), Plan)
    return makers[kind - 4](one, other)


def meaning(value: Any) -> str:
    """What tells values apart that do not mean the same."""
    if isinstance(value, frozenset):
        return f"{{{meaning(next(iter(value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(meaning, value))})"
    if isinstance(value, (Plan, Slots)):
        parts = [getattr(value, f.name) for f in dataclasses.fields(value)]
        return f"{type(value).__name__}({', '.join(map(meaning, parts))})"
    return described(value)


@pytest.mark.parametrize("seed", range(8))
def test_keys_are_equal_for_what_means_the_same(seed: int) -> None:
    rng = random.Random(seed)
    values = [drawn(rng) for _ in range(200)]
    keys, meanings = [exact(v) for v in values], [meaning(v) for v in values]
    for key, said in zip(keys, meanings, strict=True):
        assert [k == key for k in keys] == [m == said for m in meanings]
    assert len(dict.fromkeys(keys)) == len(set(meanings))


@dataclasses.dataclass(unsafe_hash=True)
class Changing:
    value: Any


class Own:
    """What says itself what is equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is Own

    def __hash__(self) -> int:
        return 1


def test_records_that_change_and_classes_with_a_meaning_of_equality_of_their_own() -> None:
    changing = Changing(0.0)
    before = exact(changing)
    changing.value = -0.0
    assert exact(changing) != before and exact(Changing(0.0)) == before
    assert exact(Own()) == exact(Own()) != exact(Changing(Own()))
    assert exact(Plan(Plan(0.0))) != exact(Plan(Plan(-0.0)))


def test_numbers_of_numpy_have_keys_by_their_bits() -> None:
    keys = [exact(v) for v in (*OF_NUMPY, 0.0, 0)]
    assert len(set(keys)) == len(keys)
    assert exact(np.float64("nan")) == exact(np.float64("nan"))


@cb.kernel
def of_comptime(out: cb.Array, number: cb.Comptime[Any]):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = cb.copysign(cb.f32(2.0), number)


@cb.kernel
def of_record(out: cb.Array, plan: cb.Comptime[Any]):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        if plan.value is True:
            out[i] = 7.0
        else:
            out[i] = cb.copysign(cb.f32(2.0), plan.value)


@pytest.mark.parametrize("seed", range(4))
def test_comptime_numbers_that_are_equal_have_code_of_their_own(seed: int) -> None:
    rng = random.Random(seed)
    out = np.empty(3, np.float32)
    for _ in range(60):
        number = rng.choice((*ZEROS, *ONES, *OF_NUMPY[:4]))
        of_comptime[cb.over(out)](out, number)
        np.testing.assert_array_equal(out, np.copysign(2.0, number), repr(number))
        plan = rng.choice((Plan, Slots, Named))(rng.choice(NUMBERS[:-1]))
        of_record[cb.over(out)](out, plan)
        want = 7.0 if plan.value is True else np.copysign(2.0, plan.value)
        np.testing.assert_array_equal(out, want, repr(plan))


class Source:
    """A random kernel whose variables are given zeros of both signs, numbers and truth values."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lines = rng, list[str]()
        for name in ("a", "b"):
            self.lines.append(f"        {name} = {rng.choice(('0.0', '-0.0'))}")
        self.lines.append(f"        t = ({self.number()}, {self.number()})")
        self.body("        ", 3)

    def number(self) -> str:
        return self.rng.choice(("0.0", "-0.0", "1.0", "0.0 * x[i]", "-0.0 * x[i]", "a", "b"))

    def body(self, indent: str, depth: int) -> None:
        for _ in range(self.rng.randint(1, 3)):
            kind = self.rng.randrange(6 if depth else 3)
            if kind < 2:
                self.lines.append(f"{indent}{self.rng.choice('ab')} = {self.number()}")
            elif kind == 2:
                self.lines.append(f"{indent}t = ({self.number()}, {self.number()})")
            else:
                head = f"if x[i] > {self.rng.choice('0123')}:", f"for n in range({kind}):"
                self.lines.append(indent + head[kind == 5])
                self.body(indent + "    ", depth - 1)
                if kind == 4:
                    self.lines.append(indent + "else:")
                    self.body(indent + "    ", depth - 1)

    def text(self) -> str:
        names = ("a", "b", "t[0]", "t[1]")
        stores = [f"        out[i, {n}] = {name}" for n, name in enumerate(names)]
        head = ["import cubepy as cb", "@cb.kernel", "def kernel(x: cb.Array, out: cb.Array):"]
        head += ["    i = cb.ABSOLUTE_POS", "    if i < x.size:"]
        return "\n".join([*head, *self.lines, *stores, ""])


@pytest.mark.parametrize("seed", range(40))
def test_variables_keep_the_signs_of_zeros_on_every_way(seed: int, tmp_path: Path) -> None:
    source = Source(random.Random(seed)).text()
    kernel = load(source, tmp_path, f"zeros_{seed}").kernel
    x = np.arange(5, dtype=np.float32)
    found = {}
    for device in ("cpu", "python"):
        out = np.full((5, 4), 3, np.float32)
        kernel[cb.over(x)](x, out, device=device)
        found[device] = out
    want = plain(source, x)
    for device, out in found.items():
        np.testing.assert_array_equal(out, want, f"{device}\n{source}")
        np.testing.assert_array_equal(np.signbit(out), np.signbit(want), f"{device}\n{source}")


def plain(source: str, x: np.ndarray) -> np.ndarray:
    """What the lines of a kernel give in Python."""
    body = source.partition("if i < x.size:\n")[2]
    text = "def run(x, out, i):\n" + body
    scope: dict[str, Any] = {}
    exec(text, scope)
    out = np.full((5, 4), 3, np.float32)
    for i in range(len(x)):
        scope["run"](x, out, i)
    return out
