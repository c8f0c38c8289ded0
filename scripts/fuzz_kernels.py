"""Random kernels on a compiled backend and on the python backend: they must agree to the bit.

    python scripts/fuzz_kernels.py --seed 1 --count 1000 --jobs 2
    python scripts/fuzz_kernels.py --seed 1 --count 1000 --backend cuda --seconds 120 --jobs 16
    python scripts/fuzz_kernels.py --seed 1 --count 1000 --backend gfx942     # an emulated processor
    python scripts/fuzz_kernels.py --seed 1 --count 500 --typed          # over every dtype
    python scripts/fuzz_kernels.py --seed 1 --count 500 --indices        # whose work is indices
    python scripts/fuzz_kernels.py --seed 1234 --count 1 --show          # print one kernel

A kernel is its seed: --seed 1 --count 1000 are the kernels 1 to 1000. Those that differ, or that a
backend refuses, are kept in the folder --out; the exit status says whether there are any.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pytest

from cubepy.backends.hip.codegen.architecture import KNOWN
from tests.backends.hip.emulator.device import emulated
from tests.conformance.random_kernels.compare import check, load, random_case
from tests.conformance.random_kernels.indices import compared, indices_case
from tests.conformance.random_kernels.typed_compare import check as check_typed
from tests.conformance.random_kernels.typed_compare import typed_case
from tests.staging import staged

RENEWED = 400  # kernels of a process: what it compiled stays in its memory
Job = tuple[int, str, int, str, float, str]


def one(job: Job) -> tuple[int, str | None, str]:
    """Run the kernel of a seed; gives the seed, what went wrong (None: there was no time for it),
    and the source.
    """
    seed, device, size, folder, end, kind = job
    if time.time() > end:
        return seed, None, ""
    case = typed_case(seed, size) if kind == "typed" else None
    if kind == "indices":
        source, *shape = indices_case(seed)  # its axes, and whether its grid may be any
    else:
        source, shape = (case.source, case.shape) if case else random_case(seed, size)
    try:
        module = load(source, Path(folder), f"random_kernel_{seed}")
        with contextlib.ExitStack() as stack:
            if device in KNOWN:
                stack.enter_context(emulated(device))
            if device != "cpu":
                stack.enter_context(staged(stack.enter_context(pytest.MonkeyPatch.context())))
            if kind == "indices":
                found = compared(module.random_kernel, *shape, seed, device)
            else:
                found = check_typed(module, device, case) if case else check(module, device, shape)
    except Exception:
        found = traceback.format_exc(limit=-3)
    return seed, f"{found}\nshape {shape}" if found else "", source


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first kernel")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--size", type=int, default=4, help="statements of a block, at most")
    parser.add_argument("--backend", default="cpu", help="cpu, cuda or gfx942 (and so on)")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no kernel after so long"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("fuzz"), help="where kernels that differ are kept"
    )
    parser.add_argument(
        "--typed", action="store_true", help="kernels over every dtype, not of f32 and i32 alone"
    )
    parser.add_argument("--indices", action="store_true", help="kernels whose work is indices")
    parser.add_argument("--show", action="store_true", help="print the kernels and run nothing")
    arguments = parser.parse_args()
    if arguments.show:
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            case = typed_case(seed, arguments.size) if arguments.typed else None
            shown = (case.source, case.shape) if case else random_case(seed, arguments.size)
            shown = indices_case(seed)[:2] if arguments.indices else shown
            print("{}\n\n# shape {}".format(*shown))
        return 0
    agreed = wrong = 0
    start = time.time()
    end = start + arguments.seconds
    with tempfile.TemporaryDirectory(prefix="cubepy-fuzz-") as folder:
        os.environ["CUBEPY_CACHE_DIR"] = os.environ.get("CUBEPY_CACHE_DIR", folder)
        os.environ["CUBEPY_NUM_THREADS"] = "1"
        pool = multiprocessing.get_context("spawn").Pool(arguments.jobs, maxtasksperchild=RENEWED)
        with pool:
            seeds = range(arguments.seed, arguments.seed + arguments.count)
            kernels = "indices" if arguments.indices else "typed" if arguments.typed else ""
            kind = arguments.backend, arguments.size, folder, end, kernels
            jobs = ((seed, *kind) for seed in seeds)
            for seed, found, source in pool.imap_unordered(one, jobs):
                if found is None:
                    continue
                agreed += not found
                wrong += bool(found)
                if found:
                    arguments.out.mkdir(parents=True, exist_ok=True)
                    (arguments.out / f"kernel_{seed}.py").write_text(f'"""\n{found}\n"""\n{source}')
                    print(f"seed {seed}: {found}", flush=True)
                elif agreed % 100 == 0:
                    print(
                        f"{agreed} agreed, {wrong} did not, {time.time() - start:.0f} s", flush=True
                    )
    print(
        f"{agreed} kernels agreed with the python backend, {wrong} did not, {time.time() - start:.0f} s"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
