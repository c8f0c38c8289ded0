"""Operators of com.microsoft, and attention of ONNX, beside onnxruntime: models of one node with
random shapes, attributes and inputs.

    python scripts/onnx_draws.py                                 # 50 of each
    python scripts/onnx_draws.py Group Rotary --count 500 --seed 3
    python scripts/onnx_draws.py MatMulNBits --draw 17           # one again
    python scripts/onnx_draws.py --write tests/models/fixtures/onnx_draws.npz

What onnxruntime refuses is counted and passed over; what cubepy refuses, and results that differ,
are printed with their seed and place.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from cubepy.models.onnx import load
from tests.models.onnx.drawn.fused import DRAWS
from tests.models.onnx.drawn.judged import apart, array_of, check_sum
from tests.models.onnx.drawn.node import file_of

EACH, LARGEST, SEED = 12, 500, 1
"""Draws of a kind that a fixture has, and elements of each one's results at most."""


def expected(data: bytes, feeds: dict[str, Any]) -> list[Any] | str:
    """What onnxruntime gives, or why it gives nothing."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(data, options, ["CPUExecutionProvider"])
        found: list[Any] = session.run([o.name for o in session.get_outputs()], feeds)
    except Exception as error:
        return str(error).replace("\n", " ")
    return found


def compared(kind: str, seed: int, n: int) -> tuple[str, str]:
    """How a draw ends ("same", "refused", "ours" or "differs"), and what there is to say."""
    drawn = DRAWS[kind](np.random.default_rng((seed, n)))
    data, feeds, names = file_of(drawn)
    wanted = expected(data, feeds)
    if isinstance(wanted, str):
        return "refused", wanted
    try:
        made = load(data)(**feeds)
        found = [array_of(made[name]) for name in names]
    except Exception as error:
        return "ours", f"{type(error).__name__}: {str(error)[:300]}"
    for name, ours, theirs, rows in zip(names, found, wanted, drawn.rows(names), strict=True):
        if rows is not None:
            ours, theirs = ours[rows], theirs[rows]
        if said := apart(ours, theirs, drawn.far, drawn.codes):
            return "differs", f"{name}: {said}"
    return "same", ""


def write(path: str) -> None:
    """Keep what onnxruntime gives for small draws of all kinds; kinds that a file has stay."""
    kept: dict[str, Any] = {}
    if Path(path).exists():
        with np.load(path) as before:
            kept = {name: before[name] for name in before.files}
    for kind in DRAWS:
        there = [
            int(k.split("/")[1]) for k in kept if k.startswith(f"{kind}/") and k.count("/") == 1
        ]
        if len(there) >= EACH and all(same_draw(kind, n, kept) for n in there):
            continue
        kept = {k: v for k, v in kept.items() if not k.startswith(f"{kind}/")}
        count, n = 0, 0
        while count < EACH:
            drawn = DRAWS[kind](np.random.default_rng((SEED, n)))
            data, feeds, names = file_of(drawn)
            wanted = expected(data, feeds)
            n += 1
            if isinstance(wanted, str) or sum(w.size for w in wanted) > LARGEST:
                continue
            count += 1
            kept[f"{kind}/{n - 1}"] = np.uint32(check_sum(data, feeds))
            for name, array in zip(names, wanted, strict=True):
                small = {np.dtype(np.float32): np.float16, np.dtype(object): str}.get(array.dtype)
                kept[f"{kind}/{n - 1}/{name}"] = array if small is None else array.astype(small)
    np.savez_compressed(path, **kept)


def same_draw(kind: str, n: int, kept: dict[str, Any]) -> bool:
    """Whether a draw is the one that a fixture was made of."""
    data, feeds, _ = file_of(DRAWS[kind](np.random.default_rng((SEED, n))))
    return check_sum(data, feeds) == int(kept[f"{kind}/{n}"])


def main() -> int:
    """Compare draws of all kinds, or of those that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--draw", type=int, help="one again")
    parser.add_argument("--refused", action="store_true", help="say why onnxruntime refuses")
    parser.add_argument("--write", help="a fixture of small draws, for tests")
    options = parser.parse_args()
    if options.write:
        write(options.write)
        return 0
    bad = 0
    for kind in DRAWS:
        if options.kinds and not any(part in kind for part in options.kinds):
            continue
        counts: Counter[str] = Counter()
        places = range(options.count) if options.draw is None else [options.draw]
        for n in places:
            try:
                how, said = compared(kind, options.seed, n)
            except Exception:
                traceback.print_exc()
                how, said = "differs", "an error"
            counts[how] += 1
            if how in ("ours", "differs") or options.refused and how == "refused":
                drawn = DRAWS[kind](np.random.default_rng((options.seed, n)))
                print(f"{kind} {options.seed} {n} {how}: {said}\n    {drawn}", flush=True)
        bad += counts["ours"] + counts["differs"]
        print(f"{kind}: {dict(counts)}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
