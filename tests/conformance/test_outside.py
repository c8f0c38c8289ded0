"""What a kernel reads from outside (globals, closures, attributes, items) counts as it is at the
launch.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K

F = np.float32
module = ModuleType("module")


@dataclass(frozen=True)
class Frozen:
    width: Any


class Holder:
    width = 1

    @property
    def twice(self) -> Any:
        return self.width * 2


@cb.func
def add_one(x):
    return x + 1


@cb.func
def take_away(x):
    return x - 1


@cb.func
def by_offset(x):
    return changing(x) * OFFSET


def host(n: int) -> Any:
    return inner_host(n) + LATER


def inner_host(n: int) -> Any:
    return n * module.factor + len(LIST)


SCALE: Any = 1
OFFSET: Any = 2
LATER: Any = 3
LIST: list[Any] = []
TABLE: dict[str, Any] = {}
BLUEPRINT = Frozen(4)
holder = Holder()
changing: Any = add_one
FLAG: Any = True
module.factor = 5  # type: ignore[attr-defined]


def reset() -> None:
    TABLE.clear()
    names = {
        "SCALE": 1,
        "OFFSET": 2,
        "LATER": 3,
        "BLUEPRINT": Frozen(4),
        "changing": add_one,
        "FLAG": True,
    }
    globals().update(names)
    LIST[:], Holder.width, module.factor = [1, 2, 3], 1, 5
    TABLE.update(a=1, b=(2, 3), c=[4])
    holder.__dict__.clear()
    globals().pop("max", None)


@pytest.fixture(autouse=True)
def _fresh() -> Any:
    reset()
    yield
    reset()


def sizes() -> Any:
    """Kernels that were never launched."""
    cell = 7

    @cb.kernel
    def reading(out: cb.Array):
        i = cb.ABSOLUTE_POS
        if i == 0:
            out[0] = SCALE
            out[1] = by_offset(10)
            out[2] = host(3)
            out[3] = BLUEPRINT.width
            out[4] = holder.width + holder.twice
            out[5] = TABLE["a"] + TABLE["b"][1] + len(TABLE["c"])
            total = 0
            for v in cb.unroll(LIST):
                total += v
            out[6] = total
            out[7] = module.factor
            out[8] = cell
            out[9] = max(2, 5)
            if FLAG:
                out[10] = LATER
            else:
                out[10] = -1
            out[11] = 3 in LIST

    def change(to: Any) -> None:
        nonlocal cell
        cell = to

    return reading, change, lambda: cell


def wanted(cell: Any) -> list[float]:
    """What the kernel writes, by Python itself."""
    return [float(v) for v in (
        SCALE, by_offset(10), host(3), BLUEPRINT.width, holder.width + holder.twice,
        TABLE["a"] + TABLE["b"][1] + len(TABLE["c"]), sum(LIST), module.factor, cell,
        globals().get("max", max)(2, 5), LATER if FLAG else -1, 3 in LIST,
    )]  # fmt: skip


def changes(rng: random.Random, cell: Any) -> list[Any]:
    """Ways to change what it reads."""
    number = rng.choice(
        [rng.randrange(5), rng.randrange(1000, 1005), rng.random(), float(rng.randrange(3))]
    )
    small = rng.randrange(5)
    names = globals()
    return [
        lambda: names.update(SCALE=number), lambda: names.update(OFFSET=number), lambda: names.update(LATER=number),
        lambda: names.update(BLUEPRINT=Frozen(number)), lambda: names.update(FLAG=not FLAG),
        lambda: names.update(changing=take_away if changing is add_one else add_one),
        lambda: setattr(holder, "width", number), lambda: setattr(Holder, "width", number),
        lambda: setattr(module, "factor", number), lambda: TABLE.update(a=number), lambda: TABLE.update(b=(0, number)),
        lambda: TABLE["c"].append(small), lambda: LIST.append(small), lambda: LIST.__setitem__(0, small),
        lambda: cell(number), lambda: names.update(max=min) if "max" not in names else names.pop("max"),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_random_changes_are_seen_by_the_next_launch(device: str, seed: int) -> None:
    rng = random.Random(seed)
    kernel, change, cell = sizes()
    out = np.zeros(12)
    for _ in range(25):
        for _ in range(rng.choice([0, 1, 1, 2])):
            rng.choice(changes(rng, change))()
        kernel[1, rng.choice([1, 1, 2])](out, device=device)
        assert out.tolist() == wanted(cell())


def test_what_changes_back_compiles_nothing() -> None:
    @cb.kernel
    def fresh(out: cb.Array):
        out[0] = SCALE

    out, before = np.zeros(1), cb.stats().specialised
    for n in range(12):
        globals()["SCALE"] = [0.5, 1000, 1.0, 1, True][n % 5] * 1
        fresh[1, 1](out)
        assert out[0] == SCALE
    assert cb.stats().specialised == before + 4, "1.0 is not 1, and True * 1 is"


def test_a_value_that_is_equal_compiles_nothing() -> None:
    @cb.kernel
    def fresh(out: cb.Array):
        out[0] = SCALE + BLUEPRINT.width + LIST[0]

    out, before = np.zeros(1), cb.stats().specialised
    for _ in range(8):
        globals().update(SCALE=float("1e3"), BLUEPRINT=Frozen(int("12345")))
        LIST[0] = float("2.5")
        fresh[1, 1](out)
    assert out[0] == 13347.5 and cb.stats().specialised == before + 1


def test_a_bound_launch_keeps_what_was_there_when_it_was_bound(device: str) -> None:
    kernel, change, cell = sizes()
    out = np.zeros(12)
    run = kernel[1, 1].bind(out, device=device)
    before = wanted(cell())
    before_host = before[2]
    globals().update(SCALE=9, OFFSET=9, FLAG=False, changing=take_away, BLUEPRINT=Frozen(9))
    change(99)
    LIST[:], TABLE["a"], holder.width = [8], 8, 8  # type: ignore[misc]
    for _ in range(2):
        run()
        found = out.tolist()
        found[2] = (
            before_host if device == "python" else found[2]
        )  # Python's own functions run there at each launch
        assert found[:4] + found[6:] == before[:4] + before[6:]


def test_a_func_that_is_given_to_the_library_reads_what_is_there_now() -> None:
    @cb.func
    def scaled(x):
        return x * SCALE

    x = np.arange(5, dtype=F)
    out = np.zeros_like(x)
    for n in range(12):
        globals()["SCALE"] = n // 4
        assert K.map(scaled, x).tolist() == (x * SCALE).tolist()
        K.map(scaled, x, out=out)
        assert out.tolist() == (x * SCALE).tolist()


def test_threads_that_launch_while_a_global_changes_see_one_of_its_values() -> None:
    kernel, *_ = sizes()
    wrong: list[Any] = []
    stop = threading.Event()

    def work() -> None:
        out = np.zeros(12)
        while not stop.is_set():
            kernel[1, 1](out)
            if out[0] not in (1, 2) or out[3] != 4:
                wrong.append(out.tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    out = np.zeros(12)
    for n in range(200):
        globals()["SCALE"] = 1 + n % 2
        kernel[1, 1](out)
        assert out[0] == SCALE
    stop.set()
    for t in threads:
        t.join()
    assert not wrong


def test_a_name_that_is_gone_is_an_error_and_may_come_back(device: str) -> None:
    @cb.kernel
    def fresh(out: cb.Array):
        out[0] = EXTRA  # noqa: F821
        out[1] = space.here

    out, space = np.zeros(2), SimpleNamespace(here=3)
    globals()["EXTRA"] = 1
    fresh[1, 1](out, device=device)
    del globals()["EXTRA"]
    with pytest.raises(cb.errors.KernelNameError, match="EXTRA"):
        fresh[1, 1](out, device=device)
    globals()["EXTRA"] = 2
    del space.here
    with pytest.raises(cb.errors.KernelNameError, match="here"):
        fresh[1, 1](out, device=device)
    space.here = 4
    fresh[1, 1](out, device=device)
    assert out.tolist() == [2, 4]
