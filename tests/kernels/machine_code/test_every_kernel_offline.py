"""Every kernel that the library launches on a GPU compiles for NVIDIA GPUs and spills nothing; no
GPU is needed.

Public functions run on devices that keep the code of what is launched on them. A new kernel that no
call of `every_kernel` reaches fails the last test: add a call, or name the kernel there with the
reason why no GPU runs it. The day after, the same kernels are compiled for AMD's GPUs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.codegen.disassemble import usage
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.recording import recording
from tests.backends.cuda.thorough import ARCHITECTURES, THOROUGH
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
from tests.kernels.test_library_offline import WIDE

pytestmark = [pytest.mark.day(0, 2), pytest.mark.turns(1)]  # AMD's have the other day


@cache
def launched(name: str, architecture: str) -> dict[str, tuple[str, Any]]:
    """The code of what a call launches: kernel and code, by the code's key."""
    with recording(architecture) as launches:
        run(name)
    return {code.key: (name_of(kernel), code) for kernel, code in launches}


CHECKED = {name_of(call[0]) for *_, call in WIDE.values()}
"""Keys of code that was read, and kernels: calls share much of theirs, and one kind of each kernel
is enough where not everything is compiled. Those of `WIDE` have tests of their own machine code.
"""


@needs_sass
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", CALLS)
def test_nothing_spills(name: str, architecture: str) -> None:
    spilled = {}
    for key, (kernel, code) in launched(name, architecture).items():
        seen = key in CHECKED if THOROUGH else kernel in CHECKED or elsewhere(kernel)
        if kernel not in ON_THE_STACK and not seen and (stack := usage(code.cubin).stack):
            spilled[kernel, key[:8]] = stack
        CHECKED.update((key, kernel))
    assert not spilled, "bytes of stack by kernel"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_is_reached(architecture: str) -> None:
    reached = {kernel for name in CALLS for kernel, _ in launched(name, architecture).values()}
    known = every_kernel()
    only = ONLY_FOR_CPUS.keys() | {name for name in known if for_cpus(name)}
    missing = sorted(n for n in known.keys() - reached - only if not elsewhere(n))
    assert not missing, (
        "kernels that no call reaches: add a call to CALLS, or a reason to ONLY_FOR_CPUS"
    )
    assert not reached & only, "a GPU runs these: they are not the CPU's, and need no reason"
    assert ONLY_FOR_CPUS.keys() <= known.keys(), "these kernels are gone"
