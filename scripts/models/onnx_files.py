"""Runs ONNX files here and in onnxruntime, and says how far apart the results are.

    python scripts/models/onnx_files.py FOLDER [part of a name ...] [--time] [--second]

`--second` times what a process needs to open a file and compute once, with code on disk. FOLDER is
searched for *.onnx (`make models` fetches some). Lengths that a file leaves open are tried from a
few usual ones; inputs are random, of a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from rows import PAUSE

from cubepy.models.onnx import load

LENGTHS = (48, 64, 32, 16, 224, 512, 576, 1600)
NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def drawn(info: Any, shape: tuple[int, ...], names: list[str]) -> Any:
    """A random input that a model can take: small integers, rates of sound, ones as masks."""
    rng = np.random.default_rng(7)
    dtype = NUMPY[info.type]
    if info.name == "sr":
        return np.array(16000, dtype)
    if info.name == "speed":  # near zero a sound has no end
        return np.ones(shape, dtype)
    if "mask" in info.name and dtype != np.float32:
        return np.ones(shape, dtype)
    if "length" in info.name and len(shape) == 1:
        return np.full(shape, 16, dtype)
    if info.name in ("batch", "graph_slots") and len(shape) == 1:
        return np.arange(shape[0]).astype(dtype)
    if info.name == "edge_index":
        return rng.integers(0, 8, shape).astype(dtype)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(1, 12, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype) * dtype(0.5)


def lengths_of(info: Any, length: int, batch: int) -> tuple[int, ...]:
    """A shape with what is open filled in."""
    found = []
    for k, n in enumerate(info.shape):
        if isinstance(n, int) and n > 0:
            found.append(n)
        elif k == 0 and len(info.shape) > 1 or n in ("batch", "batch_size") or "state" in info.name:
            found.append(batch)
        else:
            found.append(length)
    return tuple(found)


def inputs_for(session: Any) -> list[dict[str, Any]]:
    """Inputs of two sizes that onnxruntime takes."""
    options = ort.RunOptions()
    options.log_severity_level = 4
    found: list[dict[str, Any]] = []
    names = [i.name for i in session.get_inputs()]
    for batch in (1, 2, 8, 16):
        for length in LENGTHS:
            given = {
                i.name: drawn(i, lengths_of(i, length, batch), names) for i in session.get_inputs()
            }
            shapes = [v.shape for v in given.values()]
            if any(shapes == [v.shape for v in other.values()] for other in found):
                continue
            try:
                session.run(None, given, options)
            except Exception:  # a size that the model does not take
                continue
            found.append(given)
            if len(found) == 2:
                return found
            break
    return found


def distance(ours: Any, theirs: Any) -> float:
    """The largest difference relative to the largest number."""
    if ours.shape != theirs.shape:
        return float("inf")
    if not theirs.size:
        return 0.0
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    a, b = np.nan_to_num(a), np.nan_to_num(b)
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-6))


def cosine(ours: Any, theirs: Any) -> float:
    """The cosine between all numbers of two arrays."""
    a, b = ours.astype(np.float64).ravel(), theirs.astype(np.float64).ravel()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return 1.0 if size == 0 else float(a @ b) / size


def timed(ours: Any, theirs: Any, seconds: float = 6.0) -> tuple[list[float], list[float]]:
    """Times of two functions that are called in turns: 15 to 200 of each."""
    times: tuple[list[float], list[float]] = ([], [])
    until = time.perf_counter() + seconds
    while len(times[0]) < 15 or (len(times[0]) < 200 and time.perf_counter() < until):
        for function, kept in zip((ours, theirs), times, strict=True):
            time.sleep(PAUSE)
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return times


PROCESS = """
import json, pickle, sys, time
which, path, inputs, threads = sys.argv[1:]
given = pickle.load(open(inputs, "rb"))
if which == "ours":
    import cubepy as cb
    from cubepy.models.onnx import load
else:
    import onnxruntime as ort
start, cpu = time.perf_counter(), time.process_time()
if which == "ours":
    for value in load(path)(**given).values():
        value.numpy()
    compiled = cb.stats().compiled
else:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = int(threads), 4
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, given)
    compiled = 0
print(json.dumps([time.perf_counter() - start, time.process_time() - cpu, compiled]))
"""


def second(path: Path, given: dict[str, Any], threads: int, times: int = 3) -> list[list[float]]:
    """Opening a file and its first output in processes of their own, in turns: least seconds, CPU
    seconds and functions compiled, ours and theirs.
    """
    found: dict[str, list[list[float]]] = {"ours": [], "theirs": []}
    with tempfile.NamedTemporaryFile() as kept:
        pickle.dump(given, kept)
        kept.flush()
        for n in range(times + 1):  # the first one may compile
            for which, rows in found.items():
                command = [sys.executable, "-c", PROCESS, which, str(path), kept.name, str(threads)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                if n:
                    rows.append(json.loads(out.splitlines()[-1]))
    return [[min(r) for r in zip(*rows)] for rows in found.values()]


@dataclass
class Found:
    """Of a file with one size of inputs.

    Attributes:
        far, most: the largest difference, relative to the largest number and absolute.
        close: the least cosine of an output.
        first: seconds of the first call.
        times: milliseconds: medians of ours and theirs, then the least.
        second: what `second` gives.
    """

    far: float
    most: float
    close: float
    first: float
    times: tuple[float, ...] = ()
    second: list[list[float]] = field(default_factory=list)

    def __str__(self) -> str:
        text = (
            f"{self.far:.1e} (at most {self.most:.0e}) cos {self.close:.5f} first {self.first:.1f}s"
        )
        if self.times:
            a, b, c, d = self.times
            text += (
                f" {a:.2f} ms beside {b:.2f}: {b / a:.2f}x (least {c:.2f}, {d:.2f}: {d / c:.2f}x)"
            )
        if self.second:
            (a, b, compiled), (c, d, _) = self.second
            text += f" second process {a:.2f} s beside {c:.2f} (CPU {b:.2f}, {d:.2f})"
            text += f", {compiled:.0f} compiled"
        return text


def session_of(path: Path, threads: int, exact: bool = False) -> Any:
    """onnxruntime's; `exact`: sums of products of bytes do not saturate, as they do on x86 without
    VNNI where nothing is said.
    """
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def compared(path: Path, wants_time: bool, wants_second: bool, threads: int) -> list[Found]:
    """One file, with inputs of two sizes where it takes them: times beside onnxruntime as it is,
    results beside its exact ones.
    """
    session, judge = session_of(path, threads), session_of(path, threads, exact=True)
    model = load(path)
    names = [o.name for o in session.get_outputs()]
    rows: list[Found] = []
    for given in inputs_for(session):
        expected = judge.run(names, given)
        start = time.perf_counter()
        found = model(**given)
        first = time.perf_counter() - start
        for _ in range(3):
            found = model(**given)
        pairs = [(np.asarray(found[n].numpy()), np.asarray(b)) for n, b in zip(names, expected)]
        row = Found(max(distance(a, b) for a, b in pairs), np.inf, 0.0, first)
        if row.far < np.inf:
            row.close = min(cosine(a, b) for a, b in pairs)
            row.most = max(float(np.abs(a - 1.0 * b).max(initial=0)) for a, b in pairs)
        if wants_time:
            times = timed(partial(model, **given), partial(session.run, names, given))
            row.times = tuple(f(t) * 1e3 for f in (statistics.median, min) for t in times)
        if wants_second and not rows:
            row.second = second(path, given, threads)
        rows.append(row)
    return rows


def files_of(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """The ONNX files of a folder."""
    found = sorted(folder.rglob("*.onnx"))
    return [p for p in found if not names or any(n in str(p) for n in names)]


def main() -> None:
    """Compare all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--second", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_intermixed_args()
    for path in files_of(options.folder, options.names):
        try:
            rows = compared(path, options.time, options.second, options.threads)
            text = "; ".join(map(str, rows)) or "no input found"
        except Exception as error:
            text = f"FAILED {type(error).__name__}: {str(error)[:600]}"
        print(f"{path.parent.name}/{path.name}: {text}", flush=True)


if __name__ == "__main__":
    main()
