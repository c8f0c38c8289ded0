"""Running calls by their numbers in processes that may crash, and telling what went wrong."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests import other_cpus

FAMILIES = (
    "elementwise",
    "reductions",
    "norms",
    "products",
    "images",
    "pools",
    "functional",
    "tensors",
    "programs",
)
HANGS = 300  # seconds of one call after which a process is taken to hang
REPORT = 50  # calls between a worker's reports
ROOT = Path(__file__).resolve().parent.parent.parent


def load(families: Sequence[str] = FAMILIES) -> dict[str, Any]:
    """All functions that calls are drawn of."""
    from tests.fuzz.draws import DRAWS

    for family in families:
        importlib.import_module(f"tests.fuzz.{family}")
    return DRAWS


def name_of(number: int, names: list[str]) -> str:
    """The function that a call's number stands for."""
    return names[int(Random(number * 2 + 1).random() * len(names))]


def one(number: int, name: str, frames: float, device: str = "cpu") -> tuple[str, str]:
    """Make a call: "" and "", or "wrong" and what is wrong, with the call as text."""
    from tests.fuzz import check
    from tests.fuzz.draws import DRAWS, Draw

    d = Draw(number, name, frames, device)
    call = None
    try:
        call = DRAWS[name](d)
        check.run(d, call, device)
    except Exception as error:  # whatever it is, it is a finding
        text = f"{name}({check.described(call) if call else '?'}): {type(error).__name__}: {error}"
        return "wrong", text
    return "", ""


@dataclass
class Tally:
    """What some calls gave.

    Attributes:
        calls: how many were made, by function.
        wrong: number and text of calls with wrong results or errors.
        crashed: numbers at which a process ended or hung.
    """

    calls: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    crashed: list[tuple[int, str]] = field(default_factory=list)


def work(
    first: int, last: int, step: int, names: list[str], only: list[str], frames: float, device: str
) -> None:
    """In a worker: make calls, and say before each which it is."""
    say = lambda **line: print(json.dumps(line), flush=True)
    done: Counter[str] = Counter()
    slot = os.open(os.environ["FUZZ_SLOT"], os.O_WRONLY)
    for number in range(first, last, step):
        name = name_of(number, names)
        if name not in only:
            continue
        os.pwrite(slot, f"{number:>24}".encode(), 0)
        kind, text = one(number, name, frames, device)
        done[name] += 1
        if kind:
            say(kind=kind, number=number, text=text)
        if done.total() == REPORT:
            say(done=dict(done), next=number + step)
            done.clear()
    say(done=dict(done), next=last)


class Worker:
    """A process that makes every `step`th call of a range, started again behind a call that ends
    it.

    So all processes are in one block of numbers, and a kernel that one has compiled is there for
    the others.
    """

    def __init__(
        self, first: int, last: int, step: int, options: dict[str, Any], folder: Path
    ) -> None:
        self.next, self.last, self.step, self.options = first, last, step, options
        self.slot = folder / f"slot-{first}"
        self.pending = b""
        self.start()

    def start(self) -> None:
        self.slot.write_text(f"{self.next:>24}")
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.run",
            json.dumps({**self.options, "first": self.next, "last": self.last, "step": self.step}),
        ]
        environment = {**os.environ, "FUZZ_SLOT": str(self.slot), "PYTHONPATH": os.pathsep.join(
            [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]), "CUBEPY_NUM_THREADS": os.environ.get("CUBEPY_NUM_THREADS", "1")}  # fmt: skip
        self.log = self.slot.with_suffix(".log").open("ab")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, env=environment, cwd=ROOT
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.heard, self.seen = time.monotonic(), self.next

    def lines(self) -> Iterable[dict[str, Any]]:
        """What the process has said since."""
        assert self.process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.process.stdout.fileno(), 1 << 20):
                self.heard = time.monotonic()
                self.pending += piece
        *whole, self.pending = self.pending.split(b"\n")
        return [json.loads(line) for line in whole if line.startswith(b"{")]

    def silent(self) -> float:
        """Seconds since the process said something or began another call."""
        if self.at() != self.seen:
            self.heard, self.seen = time.monotonic(), self.at()
        return time.monotonic() - self.heard

    def at(self) -> int:
        """The number of the call that is under way."""
        return int(self.slot.read_text())


def unreported(w: Worker, names: list[str], number: int) -> list[str]:
    """The functions that a process called since it last said so, up to the call that it did not
    finish.
    """
    called = (name_of(n, names) for n in range(w.next, number, w.step))
    return [n for n in called if n in w.options["only"]]


def many(
    first: int, count: int, jobs: int, only: list[str], folder: Path, frames: float = 0.1, seconds: float = 0.0,
    device: str = "cpu", tell: Any = None, families: Sequence[str] = FAMILIES,
) -> Tally:  # fmt: skip
    """Make the calls with numbers from `first` on, `count` of them, in `jobs` processes.

    Args:
        only: names of functions; calls of others are left out (and not counted).
        folder: for files of the processes.
        frames: share of calls whose arrays lie in frames.
        seconds: stop after so long; 0: never.
        tell: called with the tally now and then.
        families: modules of `tests.fuzz` that draw calls.
    """
    names = sorted(only if families is not FAMILIES else load())
    options = {
        "names": names,
        "only": only or names,
        "frames": frames,
        "device": device,
        "families": list(families),
    }
    workers = [
        Worker(first + k, first + count, jobs, options, folder) for k in range(min(jobs, count))
    ]
    tally, begun, told = Tally(), time.monotonic(), 0.0
    while workers:
        select.select([w.process.stdout for w in workers], [], [], 1.0)
        for w in list(workers):
            ended = w.process.poll() is not None  # before what it said last is read
            for line in w.lines():
                if "done" in line:
                    tally.calls.update(line["done"])
                    w.next = line["next"]
                else:
                    getattr(tally, line["kind"]).append((line["number"], line["text"]))
            hangs = w.silent() > HANGS
            if ended and w.process.returncode == 0:
                workers.remove(w)
            elif ended or hangs:
                w.process.kill()
                w.process.wait()
                number = w.at()
                what = "hangs" if hangs else f"ended the process with status {w.process.returncode}"
                tally.calls.update(unreported(w, names, number))
                tally.crashed.append(
                    (number, f"{name_of(number, names)}: {what}; see {w.log.name}")
                )
                w.next = number + w.step
                workers.remove(w)
                if w.next < w.last:
                    w.start()
                    workers.append(w)
        now = time.monotonic() - begun
        if tell is not None and now - told > 20:
            tell(tally, now)
            told = now
        if seconds and now > seconds:
            for w in workers:
                w.process.terminate()
                w.process.wait()
                tally.calls.update(unreported(w, names, w.at()))
            break
    return tally


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    other_cpus.begin()
    load(given["families"])
    work(
        given["first"],
        given["last"],
        given["step"],
        given["names"],
        given["only"],
        given["frames"],
        given["device"],
    )
