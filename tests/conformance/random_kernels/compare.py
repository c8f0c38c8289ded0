"""Random kernels on a compiled backend beside the python backend: `check(...)` runs one and compares.
`scripts/fuzz_kernels.py` does so for as many as one likes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from cubepy.runtime.launch import launcher
from tests.conformance.random_kernels.source import Source


def load(source: str, folder: Path, name: str) -> Any:
    """The kernel of a source."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


SHAPES: tuple[tuple[int, Any], ...] = (
    (3, 4), (2, 1), (4, 1), (2, 2), (2, 3), (2, 5), (2, 7), (2, 8), (1, 16), (2, (2, 3)), (1, (2, 2, 2)), (1, 31), (1, 33),
    (2, 13), (3, 2), (1, 64),
)  # fmt: skip
RARE_SHAPES: tuple[tuple[int, Any], ...] = ((1, 300), (1, 100), (2, 128), (1, 257), (1, (16, 16)))


def draw_shape(rng: random.Random) -> tuple[int, Any]:
    """Cubes of a launch, and their units: 1 to 300, mostly few, because the python backend takes
    them one by one.
    """
    return rng.choice(RARE_SHAPES if rng.random() < 0.02 else SHAPES)


@contextlib.contextmanager
def one_walk() -> Iterator[None]:
    """Let a CPU and the python backend, for which code means the same, share what the compiler
    finds out: half of the walks of random kernels.
    """
    known: dict[Any, Any] = {}
    walked = launcher.program_of

    def program_of(kernel: Any, specs: Any, target: Any) -> Any:
        same = kernel, specs, target.units, target.mode, target.index, target.plane, target.debug
        if same not in known:
            known[same] = walked(kernel, specs, target)
        return known[same]

    with mock.patch.object(launcher, "program_of", program_of):
        yield


def check(
    module: Any, device: str, shape: tuple[int, Any], levels: tuple[int, ...] = (2, 0, 5)
) -> str:
    """Launch a kernel on a compiled backend and on the python backend, with several inputs; gives
    how they differ.
    """
    with one_walk() if device == "cpu" else contextlib.nullcontext():
        return compared(module, device, shape, levels)


def inputs(module: Any, seed: int, level: int, count: int) -> tuple[Any, tuple[Any, ...]]:
    """The array that a random kernel reads, and its arguments behind the arrays."""
    x = np.random.default_rng(seed).standard_normal(count + 4).astype(np.float32)
    pair = module.Pair(float(x[0]), 0.5)
    box = module.Box(pair, (np.int32(3), np.int32(level)), code=(seed + 1) // 2 + count % 2)
    return x, (level, (x[1], np.int32(seed + 2)), pair, box)


def compared(module: Any, device: str, shape: tuple[int, Any], levels: tuple[int, ...]) -> str:
    """The same without sharing."""
    cubes, units = shape
    count = cubes * int(np.prod(units))
    for seed, level in enumerate(levels):
        x, arguments = inputs(module, seed, level, count)
        results = []
        for where in (device, "python"):
            out, whole = np.zeros((count, 6), np.float32), np.zeros((count, 4), np.int32)
            module.random_kernel[cubes, units](x, out, whole, *arguments, device=where)
            results.append((out, whole))
        (out, whole), (out_python, whole_python) = results
        for name, have, want in (("count", whole, whole_python), ("out", out, out_python)):
            wrong = np.argwhere(~((have == want) | ((have != have) & (want != want))))
            if len(wrong):
                at = tuple(map(int, wrong[0]))
                return f"level {level}: {len(wrong)} of {name} differ, {name}{list(at)} is {have[at]}, not {want[at]}"
    return ""


def random_case(seed: int, size: int = 4) -> tuple[str, tuple[int, Any]]:
    """The source of a module and the shape of its launch."""
    rng = random.Random(seed)
    source = Source(rng, size).text()
    return source, draw_shape(rng)
