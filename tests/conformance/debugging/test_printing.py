"""What kernels print: the same text on every backend, when somebody waits at the latest."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from cubepy.config import config
from cubepy.errors import KernelAssertionError
from cubepy.runtime.device import GPUS

Said = Callable[[], list[str]]


def wait(device: str) -> None:
    """Wait for a device that launches do not wait for."""
    if device.startswith(GPUS):
        cb.sync()


@pytest.fixture
def said(device: str, capfd: pytest.CaptureFixture[str]) -> Said:
    """What was printed since it was asked for last; lines of units come in any order."""

    def lines() -> list[str]:
        wait(device)
        return sorted(capfd.readouterr().out.splitlines())

    lines()
    return lines


@cb.kernel
def integers(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        cb.debug_print("at", i, "x is", x[i], "and y 100%", y[i])
        out[i] = 1


@cb.kernel
def floats(x: cb.Array):
    print("value", x[cb.ABSOLUTE_POS])


@cb.kernel
def lines(x: cb.Array, n):
    for i in range(n):
        print("line", x.load(4 * i, 4))
    print()
    print("end")


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_integers_of_every_unit_are_printed(device: str, said: Said, dtype: type) -> None:
    info = np.iinfo(dtype)
    x = np.array([0, 1, info.max, info.min, 42] * 20, dtype)
    y, out = np.arange(100, dtype=np.uint32), np.zeros(100, np.int32)
    with config.override(debug=1):
        integers[2, 64](x, y, out, device=device)
    want = [f"at {i} x is {x[i]} and y 100% {i}" for i in range(100)]
    assert said() == sorted(want) and out.all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_floats_are_printed_as_c_does(device: str, said: Said, dtype: type) -> None:
    x = np.array([0.5, -0.0, 2.0, 1e-3, np.inf, -np.inf, 60000, 3e-5], dtype)
    with config.override(debug=1):
        floats[1, 8](x, device=device)
    if device == "python":  # as Python does
        assert len(said()) == 8
    else:
        assert said() == sorted(f"value {float(v):g}" for v in x)


def test_lines_and_texts_alone_are_printed(device: str, said: Said) -> None:
    x = np.arange(8, dtype=np.int16)
    with config.override(debug=1):
        lines[1, 1](x, 2, device=device)
    want = ["line [0 1 2 3]", "line [4 5 6 7]", "", "end"]
    found = [text.replace(",", "") for text in said()]  # python's lines have commas
    assert found == sorted(want)


def test_several_launches_print_one_after_the_other(
    device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with config.override(debug=1):
        for n in range(12):
            floats[1, 1](np.array([n], np.float32), device=device)
    wait(device)
    found = [float(line.split()[1]) for line in capfd.readouterr().out.splitlines()]
    assert found == list(range(12))


def test_nothing_is_printed_without_being_asked(device: str, said: Said) -> None:
    floats[1, 8](np.zeros(8, np.float32), device=device)
    assert len(said()) == (8 if device == "python" else 0)  # there a kernel is debugged as it is


def test_what_was_printed_before_an_error_is_shown(
    device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    @cb.kernel
    def fails(x: cb.Array):
        print("before", x[0])
        cb.debug_assert(x[0] < 0, "x is negative")

    with config.override(debug=1), pytest.raises(KernelAssertionError, match="x is negative"):
        fails[1, 1](np.array([3], np.int32), device=device)
        wait(device)
    assert "before 3" in capfd.readouterr().out
