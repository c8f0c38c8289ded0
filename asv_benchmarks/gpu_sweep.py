"""Random shapes on a GPU beside torch's: `python asv_benchmarks/gpu.py --only sweep`.

    python asv_benchmarks/gpu_sweep.py                        # 50 shapes a family, the seed of the day
    python asv_benchmarks/gpu_sweep.py --seed 7 --count 10 --family norms --family "matmul, bf16"
    python asv_benchmarks/gpu_sweep.py --write sweep.md --json sweep.json

What counts is the lowest decile of the ratios of a family: the fastest peer's time over ours. Each
pair is timed by events on one stream, interleaved, medians; a pause on the GPU before every
measurement lets the host run ahead. The difference is the norm of ours minus the first peer's over
the norm; inputs are rotated beyond the second-level cache.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.util
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_sweep_families import FAMILIES
from gpu_sweep_families import Case as Shapes
from gpu_timing import Case, Row, measured, milliseconds, own_stream, pause

COUNT, ROUNDS = 50, 5
PAUSE = 400_000
"""Cycles of the GPU that the host gets ahead by, at least: half more than its calls took."""
SECONDS = 1.5e-3
"""What a measurement takes, about."""
CALLS = 3, 16
OTHERS = ("gpu_sweep_attention",)
"""Modules with a family of their own: `FAMILY` and `cases`."""


def families() -> dict[str, Callable[[random.Random, int], Iterator[Shapes]]]:
    """All families by their names."""
    found = dict(FAMILIES)
    for name in OTHERS:
        if importlib.util.find_spec(name):
            module = importlib.import_module(name)
            found[module.FAMILY] = module.cases
    return found


def seed_of_day() -> int:
    """Such as 20261122."""
    return int(datetime.date.today().strftime("%Y%m%d"))


def in_turns(runs: list[Callable[[], Any]], stream: Any) -> list[float]:
    """The median time of one call, for each run: as many calls as take long enough."""
    import torch

    calls, pauses = [], []
    for run in runs:
        for _ in range(3):
            run()
        torch.cuda._sleep(PAUSE)
        one, host = measured(run, CALLS[0], stream)
        calls.append(max(CALLS[0], min(CALLS[1], int(SECONDS * 1e3 / max(one, 1e-3)))))
        pauses.append(pause(PAUSE, host / CALLS[0] * calls[-1]))
    return milliseconds(runs, stream, ROUNDS, calls, pauses)


def difference(mine: Any, other: Any) -> float:
    """How far two results are apart, relative to the second; of integers the share of elements that
    differ.
    """
    import torch

    a = mine if isinstance(mine, torch.Tensor) else torch.as_tensor(mine, device="cuda")
    if not other.is_floating_point():
        return float((a != other).double().mean())
    a, b = a.double(), other.double()
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def cases_of(family: str, rng: random.Random, count: int, stream: Any) -> list[dict[str, Any]]:
    """The cases of one family: label, milliseconds of ours and the peers', the ratio to the
    fastest, the difference.
    """
    found = []
    for label, ours, peers in families()[family](rng, count):
        apart = difference(ours(), next(iter(peers.values()))())
        mine, *others = in_turns([ours, *peers.values()], stream)
        best = min(others)
        found.append({
            "label": label, "ours": mine, **dict(zip(peers, others, strict=True)), "ratio": best / mine,
            "difference": apart,
        })  # fmt: skip
    return found


def lowest_decile(ratios: list[float]) -> float:
    """What nine in ten are not below."""
    return sorted(ratios)[len(ratios) // 10]


def row_of(family: str, cases: list[dict[str, Any]], seed: int) -> Row:
    """A row of the table."""
    ratios, mine = ([case[name] for case in cases] for name in ("ratio", "ours"))
    worst = min(cases, key=lambda case: case["ratio"])
    return {
        "work": f"{family}, {len(cases)} random shapes, seed {seed}",
        "ms": (geometric_mean(mine), geometric_mean(t * r for t, r in zip(mine, ratios, strict=True))),
        "ours": f"median {median(ratios):.2f}, lowest decile {lowest_decile(ratios):.2f}",
        "peer": f"the fastest; lowest: {worst['ratio']:.2f} at {worst['label']}",
        "ratio": f"{lowest_decile(ratios):.2f}", "error": f"{max(case['difference'] for case in cases):.1e}",
    }  # fmt: skip


def sweep(
    names: list[str], count: int, seed: int, device: str = "cuda:0"
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The cases of families, each drawn from the seed alone, so that a family can be run by itself."""
    with own_stream(device) as own:
        for family in names:
            yield family, cases_of(family, random.Random(f"{seed} {family}"), count, own)


def family_of_day(family: str) -> Case:
    """The case of a family, with the seed of the day."""

    def case(device: str) -> Iterator[Row]:
        seed = seed_of_day()
        for _, cases in sweep([family], COUNT, seed, device):
            yield row_of(family, cases, seed)

    return case


CASES = {family: family_of_day(family) for family in families()}


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seed", type=int, default=seed_of_day(), help="of the shapes; the day's by default"
    )
    parser.add_argument("--count", type=int, default=COUNT, help="shapes of a family")
    parser.add_argument(
        "--family", action="append", choices=list(families()), help="may be given several times"
    )
    parser.add_argument("--write", type=Path, help="a file for the table")
    parser.add_argument("--json", type=Path, help="a file for all cases")
    options = parser.parse_args()
    everything, lines = {}, []
    for family, cases in sweep(options.family or list(families()), options.count, options.seed):
        everything[family] = cases
        for case in sorted(cases, key=lambda case: case["ratio"]):
            print(
                f"  {case['ratio']:.2f}  {case['ours'] * 1e3:9.1f} us  {case['difference']:.0e}  {case['label']}"
            )
        lines.append(row_of(family, cases, options.seed))
        print(" | ".join(v for v in lines[-1].values() if isinstance(v, str)), flush=True)
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1))
    if options.write:
        from gpu import described, table, write

        write(options.write, f"{described()}\n\n{table(lines)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
