"""Random calls of the library against references in float64.

    python scripts/fuzz_library.py                                  # 20,000 calls from seed 0
    python scripts/fuzz_library.py --seed 7 --count 1000000 --jobs 16
    python scripts/fuzz_library.py --only matmul --only conv2d --frames 1
    python scripts/fuzz_library.py --call 7000000123                # one call again, in this process

Every call is made from one number (seed * 10**9 + its place), which is printed when the result is
wrong, an error is raised or the process ends; `--call` repeats it. The exit status says whether all
was well. What calls are drawn of is in `tests/fuzz`: a few lines for each function, beside its
reference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import other_cpus  # noqa: E402
from tests.fuzz import run  # noqa: E402

SPAN = 10**9  # numbers of a seed
SHOWN = 200  # findings that are printed


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20_000, help="how many calls are drawn")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument(
        "--only", action="append", default=[], metavar="FUNCTION", help="leave out calls of others"
    )
    parser.add_argument(
        "--frames", type=float, default=0.1, help="share of calls with arrays in frames"
    )
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long")
    parser.add_argument("--device", default="cpu", help='"cuda": arrays lie on the GPU')
    parser.add_argument(
        "--cpu",
        default="",
        help=f"be another CPU: {', '.join(other_cpus.CPUS)} (tests/other_cpus.py)",
    )
    parser.add_argument("--call", type=int, help="the number of one call to make again")
    parser.add_argument("--list", action="store_true", help="what functions calls are drawn of")
    return parser.parse_args()


def tell(tally: run.Tally, seconds: float) -> None:
    """What was found since, and a line of progress."""
    for kind in ("wrong", "crashed"):
        found = getattr(tally, kind)
        for number, text in found[_told[kind] : SHOWN]:
            print(f"{kind} --call {number}  {text[:600]}")
        _told[kind] = len(found)
    counts = f"{tally.calls.total()} calls, {len(tally.wrong)} wrong, {len(tally.crashed)} crashes"
    print(f"{seconds:6.0f} s: {counts}", flush=True)


_told = {"wrong": 0, "crashed": 0}


def main() -> int:
    """The number of findings, at most 100."""
    a = arguments()
    os.environ.update(other_cpus.environment(a.cpu))
    other_cpus.begin()
    names = sorted(run.load())
    for name in a.only:
        if name not in names:
            sys.exit(f"no calls are drawn of {name!r}; --list names the functions")
    if a.list:
        print("\n".join(names))
        return 0
    if a.call is not None:
        name = run.name_of(a.call, names)
        kind, text = run.one(a.call, name, a.frames, a.device)
        print(f"{name}: {kind or 'right'}\n{text}")
        return int(kind == "wrong")
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="cubepy-fuzz-"))
    tally = run.many(
        a.seed * SPAN, a.count, a.jobs, a.only, folder, a.frames, a.seconds, a.device, tell
    )
    tell(tally, time.monotonic() - begun)
    print(
        "fewest calls:",
        ", ".join(
            f"{n} {tally.calls[n]}"
            for n in sorted(a.only or names, key=tally.calls.__getitem__)[:5]
        ),
    )
    return min(100, len(tally.wrong) + len(tally.crashed))


if __name__ == "__main__":
    sys.exit(main())
