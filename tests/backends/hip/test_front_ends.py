"""Which front end lowers kernels for AMD GPUs, and that both of them make kernels with the same
results. numba-hip's needs an environment of its own: `python scripts/numba_hip.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.hip.backend import HipBackend
from cubepy.backends.hip.codegen import front_end as front_ends
from cubepy.backends.hip.offline import compile_for
from cubepy.runtime.inspection import OWN
from tests.backends.hip.emulator.device import emulated

REASON = front_ends.why_not()
X = np.zeros(256, np.float32)


def doubled() -> cb.Kernel:
    """A kernel that nobody has compiled."""

    @cb.kernel
    def fresh(x: cb.Array, out: cb.Array):
        i = cb.ABSOLUTE_POS
        if i < out.size:
            out[i] = 2 * x[i]

    return fresh


def sums() -> cb.Kernel:
    """Planes, shared memory, a barrier, an atomic."""

    @cb.kernel
    def fresh(x: cb.Array, out: cb.Array):
        parts = cb.shared(cb.CUBE_DIM // cb.PLANE_DIM, cb.f32)
        s = cb.plane_sum(x[cb.ABSOLUTE_POS])
        if cb.UNIT_POS_PLANE == 0:
            parts[cb.PLANE_POS] = s
        cb.sync_cube()
        if cb.UNIT_POS == 0:
            total = cb.f32(0)
            for k in range(cb.CUBE_DIM // cb.PLANE_DIM):
                total += parts[k]
            cb.atomic_add(out, 0, total)

    return fresh


def functions() -> cb.Kernel:
    """Formulas, lines, integers and a loop of an unknown length."""

    @cb.kernel
    def fresh(x: cb.Array, out: cb.Array):
        i = cb.ABSOLUTE_POS * 2
        line = x.load(i, 2)
        for _ in range(out.size % 7):
            line = cb.sin(line) + cb.exp(-line * line) ** 1.5
        out.store(i, line)

    return fresh


KERNELS: dict[str, tuple[Callable[[], cb.Kernel], int, int]] = {
    "doubled": (doubled, 4, 64),
    "sums": (sums, 1, 256),
    "functions": (functions, 2, 64),
}
"""What makes a new kernel; cubes and units."""


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether numba-hip can be imported is asked again, here and by those who come later."""
    asked = front_ends.why_not.__wrapped__
    monkeypatch.setattr(front_ends, "why_not", asked)


def test_without_the_package_it_is_our_own(unknown: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front_ends, "version_of", lambda _: front_ends.ABSENT)
    assert front_ends.front_end() == OWN
    assert front_ends.why_not() == "numba-hip is not installed"


@pytest.mark.parametrize(
    "error", [ImportError("librocm"), FileNotFoundError("no ROCm"), RuntimeError("x")]
)
def test_a_package_that_cannot_be_imported_is_told_and_not_used(
    error: Exception, unknown: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name: str) -> Any:
        raise error

    monkeypatch.setattr(front_ends, "version_of", lambda _: "0.2.1")
    monkeypatch.setattr(front_ends.importlib, "import_module", broken)
    assert front_ends.front_end() == OWN
    assert str(error) in front_ends.why_not() and type(error).__name__ in front_ends.why_not()


def test_code_of_another_front_end_is_another_entry_of_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = compile_for("gfx942", doubled(), 64, X, X)
    monkeypatch.setattr(front_ends, "why_not", lambda: "" if REASON else "it is not wanted")
    second = compile_for("gfx942", doubled(), 64, X, X)
    assert first.text.text == second.text.text and first.key != second.key
    assert {OWN, first.front_end, second.front_end} == {first.front_end, second.front_end}
    assert first.job.front_end == first.front_end


def test_who_lowers_is_told() -> None:
    told = HipBackend().front_end()
    assert told.startswith(front_ends.front_end()) and REASON in told
    with emulated("gfx942"):
        x, out = (cb.tensor(X, device="gfx942") for _ in range(2))
        found = doubled()[4, 64].inspect(x, out)
    assert found.front_end == front_ends.front_end()
    assert doubled()[4, 64].inspect(X, X.copy(), device="cpu").front_end == OWN


@pytest.mark.skipif(bool(REASON), reason=REASON)
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
def test_both_front_ends_make_kernels_with_the_same_results(
    processor: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, cubes, units = KERNELS[name]
    x = np.random.default_rng(7).standard_normal(256).astype(np.float32)
    results = []
    for reason in ("", "it is not wanted"):
        monkeypatch.setattr(front_ends, "why_not", lambda reason=reason: reason)
        out = np.zeros(256, np.float32)
        kernel = make()
        with emulated(processor):
            given, out = cb.tensor(x, device=processor), cb.tensor(out, device=processor)
            launch = kernel[cubes, units]
            assert (launch.inspect(given, out).front_end == OWN) == bool(reason)
            launch(given, out)
            results.append(out.numpy())
    np.testing.assert_array_equal(*results)
    assert results[0].any()


@pytest.mark.skipif(bool(REASON), reason=REASON)
def test_its_types_and_lowering_are_used() -> None:
    code = compile_for("gfx1100", doubled(), 64, X, X)
    assert code.front_end.startswith("numba-hip ")
    assert "numba.hip.target" in sys.modules
    assert "global_load" in code.assembly and code.binary[:4] == b"\x7fELF"
    assert type(code.job).of_line(code.job.as_line()) == code.job
