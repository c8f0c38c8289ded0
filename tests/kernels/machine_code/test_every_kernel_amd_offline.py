"""Every kernel that the library launches on a GPU compiles for AMD's processors: registers of units
are never spilled, scalars and private memory only where a list says why; no GPU is needed.

By default one kind of each kernel is compiled every other day, for one of two processors by turns
(`tests/turns.py`), with `CUBEPY_TEST_ARCHITECTURES=all` everything for all of them.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from cubepy.backends.hip.codegen.architecture import KNOWN, Architecture
from tests.backends.cuda.thorough import THOROUGH, by_turns
from tests.backends.hip.emulator.assembly import assembly_of
from tests.backends.hip.recording import recording
from tests.kernels.machine_code.every_kernel import (
    CALLS,
    ON_THE_STACK,
    ONLY_FOR_CPUS,
    elsewhere,
    every_kernel,
    for_cpus,
    name_of,
    run,
)
from tests.turns import TURN

pytestmark = [pytest.mark.day(1, 2), pytest.mark.turns(1)]  # NVIDIA's have the other day
PROCESSORS = tuple(KNOWN) if THOROUGH else by_turns(("gfx942", "gfx1100"), TURN // 2, 2)

SPILLS_SCALARS = {
    "attention.flash_lines.attend": (
        (9, 11, 12),
        "one unit, as on a CPU: all that it computes with is a scalar",
    )
}
"""Kernels for whose scalars the registers of a plane do not suffice: by generation, and why. They
wait in lanes of a unit's register, not in memory.
"""

ONLY_FOR_NVIDIA = {
    "convolution.gpu.weight_gradient.window_weight": "copies beside the work",
    "convolution.sm90.implicit_gemm_simt.fma_convolution": "the copy engine",
    "pooling.sm90.max_tma.max_boxes": "the copy engine",
    "quant.linear.gpu.layout.arrange_codes": "fragments of NVIDIA's matrix units",
    "quant.linear.gpu.layout.arrange_facts": "fragments of NVIDIA's matrix units",
    "quant.linear.gpu.layout.zeroed": "fragments of NVIDIA's matrix units",
}
"""Kernels that calls reach on NVIDIA's GPUs alone, and what they are made for."""


@cache
def launched(name: str, processor: str) -> dict[str, tuple[str, Any]]:
    """The code of what a call launches: kernel and code, by the code's key."""
    with recording(processor) as launches:
        run(name)
    return {code.key: (name_of(kernel), code) for kernel, code in launches}


def said(assembly: str, what: str) -> int:
    """A number of the kernel's description."""
    found = re.search(rf"\.{what}: *(\d+)", assembly)
    assert found is not None, what
    return int(found[1])


READ: dict[str, set[str]] = {name: set() for name in KNOWN}
"""By processor, keys of code that was read, and kernels: one kind of each is enough where not
everything is compiled.
"""


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", CALLS)
def test_nothing_spills(name: str, processor: str) -> None:
    wrong, generation = {}, Architecture(processor).major
    for key, (kernel, code) in launched(name, processor).items():
        if key in READ[processor] or (not THOROUGH and kernel in READ[processor]):
            continue
        READ[processor].update((key, kernel))
        text = assembly_of(code)
        found = {
            "registers": said(text, "vgpr_spill_count"),
            "scalars": said(text, "sgpr_spill_count"),
            "private bytes": said(text, "private_segment_fixed_size"),
            "accesses to what may be any memory": len(re.findall(r"^\tflat_", text, re.M)),
        }
        if kernel in SPILLS_SCALARS and generation in SPILLS_SCALARS[kernel][0]:
            del found["scalars"]
        if kernel in ON_THE_STACK:
            del found["private bytes"]
        if any(found.values()):
            wrong[kernel, key[:8]] = {what: n for what, n in found.items() if n}
    assert not wrong


@pytest.mark.parametrize("processor", PROCESSORS)
def test_every_kernel_is_reached(processor: str) -> None:
    """But those with tests of their own, and what only CPUs run."""
    reached = {kernel for name in CALLS for kernel, _ in launched(name, processor).values()}
    known = every_kernel()
    only = ONLY_FOR_CPUS.keys() | ONLY_FOR_NVIDIA.keys() | {n for n in known if for_cpus(n)}
    assert not sorted(n for n in known.keys() - reached - only if not elsewhere(n))
    assert not reached & only
    assert SPILLS_SCALARS.keys() | ON_THE_STACK <= reached, "the list names what is not there"
