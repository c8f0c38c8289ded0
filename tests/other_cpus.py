"""Other CPUs than this one, as far as this one can be them: machine code for fewer instructions, or
for a matrix unit whose instructions are loops (`amx_stand_in`).

What a process compiles for is decided when it starts, so `environment` says what a new one needs;
`begin` is called in it. The test suite takes one by `CUBEPY_TEST_CPU`, random calls by
`scripts/fuzz_library.py --cpu`.
"""

from __future__ import annotations

import os
from dataclasses import replace

import llvmlite.binding as ll

VARIABLE = "CUBEPY_TEST_CPU"
AMD = "sse4a", "gfni", "vaes", "vpclmul"  # and newer Intel CPUs
BEYOND_AVX2 = "avx512", "avx10", "avxvnni", "amx", *AMD
CPUS: dict[str, tuple[str, tuple[str, ...]]] = {
    "avx2": ("haswell", BEYOND_AVX2),
    "avx": ("sandybridge", (*BEYOND_AVX2, "avx2", "fma", "f16c", "bmi")),
    "sse4": ("nehalem", ("avx", "amx", *AMD, "fma", "f16c", "bmi")),
    "amx": ("", ()),
}
"""LLVM's names of CPUs, and what the features begin with that they lack; the matrix unit's has all
of this one.
"""


def environment(cpu: str) -> dict[str, str]:
    """The variables of a process that plays a CPU; none for this one ("").

    Raises:
        ValueError: nothing is known of such a CPU, or this one does not have its instructions.
    """
    if not cpu:
        return {}
    if cpu not in CPUS:
        raise ValueError(f"no CPU {cpu!r} is known here; these are: {', '.join(CPUS)}")
    name, lacks = CPUS[cpu]
    if not name:
        return {VARIABLE: cpu}
    have = ll.get_host_cpu_features().flatten().split(",")
    wanted = {"avx2": "+avx2", "avx": "+avx", "sse4": "+sse4.2"}[cpu]
    if wanted not in have:
        raise ValueError(f"this CPU cannot be {cpu!r}: it has no {wanted[1:]}")
    features = [f"-{f[1:]}" if f[1:].startswith(lacks) else f for f in have]
    return {VARIABLE: cpu, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ",".join(features)}


def begin() -> None:
    """Be the CPU that the environment names, before a kernel is compiled.

    Raises:
        RuntimeError: the process was not started for it.
    """
    cpu = os.environ.get(VARIABLE, "")
    for name, value in environment(cpu).items():
        if os.environ.get(name) != value:
            raise RuntimeError(f"a process that plays {cpu!r} needs {name}={value}")
    if cpu == "amx":
        from cubepy import config
        from cubepy.backends.cpu import backend
        from cubepy.backends.llvm.ops import amx
        from tests.backends.cpu.amx_stand_in import written

        properties = backend._properties()
        properties = replace(properties, features=properties.features | {"tiles"})
        backend._properties = lambda: properties  # type: ignore[assignment]
        amx.tile_function = written  # type: ignore[assignment]
        config.cache_dir = f"{config.cache_dir}-{cpu}"  # its code is not a matrix unit's
