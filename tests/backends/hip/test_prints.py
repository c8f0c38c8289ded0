"""What kernels print, on the way from a GPU's memory to the terminal: formats, regions that are
full, many launches, graphs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.gpu.native import kernel_prints
from cubepy.backends.gpu.prints import PRINT, WORDS, formatted, lost, printed
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.offline import compile_for
from cubepy.backends.llvm.emitted import Site
from cubepy.config import config
from cubepy.errors import LaunchError, OutOfBoundsError
from tests.backends.hip.emulator.driver import EmulatedDriver, emulated_hip

X = np.zeros(64, np.float32)


@pytest.fixture
def hip(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDriver]:
    """The driver; a GPU is the current device, and kernels print."""
    with emulated_hip(monkeypatch, "gfx1100") as fake, config.override(debug=1):
        yield fake


@cb.kernel
def tell(x: cb.Array, n):
    for k in range(n):
        print(x[cb.ABSOLUTE_POS] + k)


@cb.kernel
def tell_beyond(x: cb.Array):
    print("at", cb.ABSOLUTE_POS)
    x[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS + 1]


def bits(x: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


def test_a_format_is_read_as_c_reads_it() -> None:
    words = [-5, -5, bits(0.1), bits(1e300), bits(float("nan")), bits(-0.0)]
    form = "100%% %%lld %lld, %llu %g %g %g %g\n"
    assert formatted(form, words) == f"100% %lld -5, {2**64 - 5} 0.1 1e+300 nan -0\n"


def test_a_region_is_read_to_its_end() -> None:
    sites = (Site("assert", "", "", None), Site(PRINT, "", "%lld %lld\n", None))
    words = [6, 2, 10, 11, 2, 20, 21] + [0] * (WORDS - 7)
    assert list(printed(sites, words)) == ["10 11\n", "20 21\n"] and not lost(words)
    full = [WORDS + 100, *[2, 7, 8] * ((WORDS - 1) // 3)]  # what had no room is zero at the end
    full += [0] * (WORDS - len(full))
    assert len(list(printed(sites, full))) == (WORDS - 1) // 3 and lost(full)


@pytest.mark.parametrize("name", KNOWN)
def test_units_that_print_take_turns_by_one_addition(name: str) -> None:
    code = compile_for(name, tell, 64, X, 3, mode="validate")
    assert [p.name for p in code.text.parameters[-2:]] == ["err", "said"]
    assert "global_atomic_add" in code.assembly and "\tflat_" not in code.assembly
    quiet = compile_for(name, tell, 64, X, 3)
    assert "said" not in quiet.text.text and "atomic" not in quiet.assembly


def test_more_launches_than_regions_print_in_order(
    hip: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = tell[1, 1]
    for k in range(3 * kernel_prints.COUNT + 1):
        launch(cb.tensor(np.array([k], np.int32)), 1)
    cb.sync()
    assert capsys.readouterr().out.split() == [str(k) for k in range(3 * kernel_prints.COUNT + 1)]


def test_bound_launches_print_every_time(
    hip: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    x = cb.tensor(np.arange(2, dtype=np.int32))
    bound = tell[1, 2].bind(x, 1)
    for _ in range(3):
        bound()
    assert capsys.readouterr().out == ""  # nobody has waited
    np.testing.assert_array_equal(x.numpy(), [0, 1])
    assert capsys.readouterr().out.split() == ["0", "1"] * 3


def test_what_has_no_room_is_lost_and_said(
    hip: EmulatedDriver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line takes two words, behind one that counts them."""
    each = (WORDS - 1) // 2 // 64 + 8
    tell[1, 64](cb.tensor(np.zeros(64, np.int32)), each)
    cb.sync()
    shown = capsys.readouterr()
    assert len(shown.out.split()) == (WORDS - 1) // 2
    assert "tell printed more than 1024 KiB; the rest is lost" in shown.err
    tell[1, 1](cb.tensor(np.array([5], np.int32)), 1)
    cb.sync()
    assert capsys.readouterr().out == "5\n"


def test_a_graph_prints_at_every_replay(
    hip: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    x = cb.tensor(np.array([1], np.int32))
    tell[1, 1](x, 1)
    cb.sync()
    capsys.readouterr()
    with cb.capture() as graph:
        tell[1, 1](x, 2)
    assert capsys.readouterr().out == ""
    for k in (10, 20, 30):
        graph.put(x, np.array([k], np.int32))
        graph.replay()
    cb.sync()
    assert capsys.readouterr().out.split() == ["10", "11", "20", "21", "30", "31"]


def test_a_capture_of_too_many_launches_is_refused(hip: EmulatedDriver) -> None:
    x = cb.tensor(np.array([1], np.int32))
    with pytest.raises(LaunchError, match="at most 8 launches of kernels that print"):
        with cb.capture():
            for _ in range(kernel_prints.COUNT + 1):
                tell[1, 1](x, 1)


def test_faults_and_prints_of_one_launch_are_both_seen(
    hip: EmulatedDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    x = cb.tensor(np.zeros(4, np.int32))
    with pytest.raises(OutOfBoundsError, match="index 4"):
        tell_beyond[1, 4].bind(x, mode="validate")()
        cb.sync()
    assert sorted(capsys.readouterr().out.splitlines()) == [f"at {k}" for k in range(4)]
