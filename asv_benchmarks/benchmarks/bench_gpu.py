"""What a GPU does beside the vendor's libraries: the cases of `gpu.py` and their clock, a class a
part; what is kept of a case is the time of a call, of several rows the geometric mean.

Cells are skipped where torch sees no such GPU. Ours and the peer's are measured in turns for each
cell, so that what else a machine does is in both.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.peers import torch_module

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpu import PARTS

LIBRARIES = ("cubepy", "peer")
DEVICES = ("cuda:0",)


def present(device: str) -> None:
    """Look for a GPU.

    Raises:
        NotImplementedError: torch is not here, or sees no such GPU: asv skips the cell.
    """
    cuda = torch_module().cuda
    if not cuda.is_available() or int(device.partition(":")[2]) >= cuda.device_count():
        raise NotImplementedError(f"there is no {device} that torch sees")


class GpuSuite:
    """What all parts share."""

    param_names = ("library", "case", "device")
    timeout = 900
    cases: dict[str, Any]

    def setup(self, library: str, case: str, device: str) -> None:
        """Skip what cannot be measured."""
        present(device)

    def measured(self, library: str, case: str, device: str) -> float:
        """Milliseconds of a call, of one library; both are measured."""
        rows = list(self.cases[case](device))
        failed = [row["ours"] for row in rows if "ms" not in row]
        if failed:
            raise RuntimeError(failed[0])
        return geometric_mean(row["ms"][LIBRARIES.index(library)] for row in rows)


def suite(part: str) -> type:
    """The class of a part, such as `GpuMatmul`."""

    def track(self: GpuSuite, library: str, case: str, device: str) -> float:
        return self.measured(library, case, device)

    track.unit = "ms"  # type: ignore[attr-defined]
    cases = importlib.import_module(f"gpu_{part}").CASES
    body = {"cases": cases, "params": (LIBRARIES, tuple(cases), DEVICES), f"track_{part}": track}
    return type(f"Gpu{part.title().replace('_', '')}", (GpuSuite,), body)


globals().update({made.__name__: made for made in map(suite, PARTS)})
