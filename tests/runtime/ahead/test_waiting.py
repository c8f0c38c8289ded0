"""What a terminal shows while kernels compile."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest

from cubepy.config import config
from cubepy.runtime.ahead.waiting import CLEAR, Wait


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """A terminal as standard error: what reads it, and the stream."""
    reader, writer = pty.openpty()
    stream = os.fdopen(writer, "w")
    monkeypatch.setenv("TERM", "xterm")
    with config.override(progress="auto"):
        yield reader, stream
    stream.close()
    os.close(reader)


def shown(reader: int, stream: TextIO) -> str:
    """All that was written; an end of our own says that nothing is on its way."""
    stream.write("END")
    stream.flush()
    text = b""
    while not text.endswith(b"END"):
        text += os.read(reader, 4096)
    return text[: -len(b"END")].decode()


def test_a_terminal_names_the_kernel_and_is_left_clean(terminal: tuple[int, TextIO]) -> None:
    wait = Wait(0.0, terminal[1])
    with wait.compiling("convolve"):
        assert wait.drawn.wait(30)
    text = shown(*terminal)
    assert text.startswith(f"{CLEAR}cubepy: compiling convolve (kernel 1, ")
    assert text.endswith(CLEAR) and "\n" not in text


def test_kernels_that_follow_each_other_are_counted(terminal: tuple[int, TextIO]) -> None:
    wait = Wait(0.0, terminal[1])
    for name in ("pack", "convolve"):
        with wait.compiling(name):
            assert wait.drawn.wait(30)
    assert "compiling convolve (kernel 2, " in shown(*terminal)


def test_the_line_goes_when_a_kernel_cannot_be_compiled(terminal: tuple[int, TextIO]) -> None:
    wait = Wait(0.0, terminal[1])
    with pytest.raises(ZeroDivisionError), wait.compiling("wrong"):
        assert wait.drawn.wait(30)
        raise ZeroDivisionError
    assert shown(*terminal).endswith(CLEAR)


def test_short_waits_are_not_told_of(terminal: tuple[int, TextIO]) -> None:
    with Wait(3600.0, terminal[1]).compiling("axpy"):
        pass
    assert shown(*terminal) == ""


def test_progress_0_is_silent_on_a_terminal(terminal: tuple[int, TextIO]) -> None:
    wait = Wait(0.0, terminal[1])
    with config.override(progress=False), wait.compiling("axpy"):
        assert not wait.drawn.is_set()
    assert shown(*terminal) == ""


def test_a_file_is_told_only_when_it_is_asked_for() -> None:
    stream = io.StringIO()
    wait = Wait(0.0, stream)
    with config.override(progress="auto"), wait.compiling("axpy"):
        pass
    assert stream.getvalue() == ""
    with config.override(progress=True), wait.compiling("axpy"):
        assert wait.drawn.wait(30)
    assert stream.getvalue().startswith("cubepy: compiling axpy (kernel 1")
    assert stream.getvalue().endswith("\n") and CLEAR not in stream.getvalue()


def test_a_stream_that_is_gone_does_not_stop_the_kernel() -> None:
    tried = threading.Event()

    class Gone(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            tried.set()
            raise OSError("gone")

    with config.override(progress="auto"), Wait(0.0, Gone()).compiling("axpy"):
        assert tried.wait(30)


PROGRAM = """
import numpy as np
from cubepy import kernels as K
from cubepy.runtime.ahead import waiting
waiting.WAIT.after = 0.0
K.softmax(np.ones((4, 64), np.float32))
print("done")
"""


def test_a_first_call_tells_of_its_kernel_on_a_terminal(tmp_path: Path) -> None:
    reader, writer = pty.openpty()
    environment = os.environ | {"CUBEPY_CACHE_DIR": str(tmp_path), "TERM": "xterm"}
    environment.pop("CUBEPY_PROGRESS", None)
    run = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
    )
    os.close(writer)
    text = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(reader, 4096):
            text += part
    os.close(reader)
    assert run.communicate()[0] == "done\n"
    assert b"cubepy: compiling softmax" in text and text.endswith(CLEAR.encode())
