"""ONNX files beside onnxruntime: results, times, and what a second process waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import geometric_mean

import onnx_files
from rows import Options, Row, at_least, at_most

import cubepy as cb

CODES = {"MatMulInteger", "ConvInteger", "DequantizeLinear", "com.microsoft.DynamicQuantizeLSTM"}
APART = {  # why results may differ
    "kokoro": "durations that a rounding moves change how long the sound is (docs/onnx.md)"
}


def is_of_codes(path: Path) -> bool:
    """Whether a file is quantized."""
    return bool(CODES & set(cb.look(path).operators))


def run(options: Options) -> Iterator[Row]:
    """A row for each file, then means."""
    ratios: dict[bool, list[float]] = {False: [], True: []}
    for path in onnx_files.files_of(options.folder):
        what = f"{path.parent.name}/{path.stem}"
        codes = is_of_codes(path)
        wanted = "cosine >= .999" if codes else "<= 1e-4"
        why = next((told for name, told in APART.items() if name in path.stem), "")
        try:
            rows = onnx_files.compared(path, not why, not why, options.threads)
        except Exception as error:
            yield Row(what, "runs", f"{type(error).__name__}: {str(error)[:300]}", False)
            continue
        for row in rows:
            ratios[codes] += [row.times[1] / row.times[0]] if row.times else []
        good = [r.close >= 0.999 if codes else r.far <= 1e-4 or r.most <= 1e-6 for r in rows]
        yield Row(
            what, wanted, "; ".join(map(str, rows)) + why, None if why else bool(rows) and all(good)
        )
        if rows and rows[0].second:
            (ours, _, compiled), (theirs, *_) = rows[0].second
            yield at_most(f"{what}: second process, seconds more", 1, ours - theirs)
            yield at_most(f"{what}: compiled there", 0, compiled)
    floats, ints = ratios[False], ratios[True]
    if floats:
        yield at_least("latency, geometric mean, floats", 1, geometric_mean(floats))
        yield at_least("latency, the least of floats", 0.7, min(floats))
    if ints:
        yield at_least("latency, geometric mean, codes", 1, geometric_mean(ints))
        yield at_least("latency, the least of codes", 0.7, min(ints))
