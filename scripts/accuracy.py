"""How exact the functions of numbers are: the largest error over many random draws, as a table in
Markdown.

    python scripts/accuracy.py
    python scripts/accuracy.py --device cuda --draws 10000000

References are NumPy's and the C library's, in double precision for f32 and in extended precision
for f64, where the machine has that. Draws are of all exponents, of moderate size, and close to
where a function changes (`tests.accuracy`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cubepy as cb
from cubepy import kernels as K
from cubepy.runtime.device import as_device
from cubepy.runtime.memory.device_array import upload
from tests.accuracy import BINARY, UNARY, draws, pairs, reference, ulps

PART = 1 << 18


def computed(name: str, values: tuple[np.ndarray, ...], device: str) -> np.ndarray:
    """What a function gives on a device."""
    if device == "cpu":
        return np.asarray(K.map(getattr(cb, name), *values))
    there = [upload(v, as_device(device)) for v in values]
    return K.map(getattr(cb, name), *there).numpy()  # type: ignore[no-any-return]


def worst(name: str, dtype: str, count: int, device: str, seed: int) -> tuple[float, float, Any]:
    """The largest error of a function, the share of results that are not the nearest float, and
    where the largest is.
    """
    rng, found, where, off, total = np.random.default_rng(seed), 0.0, None, 0, 0
    while total < count:
        values: tuple[np.ndarray, ...] = (
            pairs(dtype, PART, rng) if name in BINARY else (draws(dtype, PART, rng),)
        )
        if name == "lgamma":
            values = (np.abs(values[0]),)
        far = ulps(computed(name, values, device), reference(name, *values), dtype)
        at = int(far.argmax())
        if far[at] > found:
            found, where = float(far[at]), tuple(v[at] for v in values)
        off, total = off + int((far > 0.5).sum()), total + far.size
    return found, off / total, where


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", default=[*UNARY, *BINARY])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--draws", type=int, default=1 << 20, help="of each function and dtype")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| function | dtype | largest error (ulp) | not the nearest float | at |")
    print("|---|---|---|---|---|")
    for name in options.names:
        for dtype in ("f32", "f64"):
            far, share, where = worst(name, dtype, options.draws, options.device, options.seed)
            text = ", ".join(repr(float(v)) for v in where or ())
            print(f"| `{name}` | {dtype} | {far:.3f} | {share:.2e} | {text} |", flush=True)


if __name__ == "__main__":
    main()
