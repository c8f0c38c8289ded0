"""Machine code as text, and what it says about registers and spills."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cubepy.errors import BackendCompileError


@cache
def tool() -> str:
    """The path of NVIDIA's cuobjdump.

    Raises:
        BackendCompileError: it is not installed.
    """
    found = shutil.which("cuobjdump")
    if found is None:
        import importlib.util

        spec = importlib.util.find_spec("nvidia")
        for folder in spec.submodule_search_locations or [] if spec is not None else []:
            for candidate in sorted(Path(folder).glob("*/bin/cuobjdump")):
                return str(candidate)
        raise BackendCompileError(
            "showing SASS needs NVIDIA's cuobjdump, which is not installed",
            hint="pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm",
        )
    return found


def _dump(cubin: bytes, *options: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        near = {
            **os.environ,
            "PATH": f"{Path(tool()).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        command = [tool(), *options, str(path)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=False, env=near
        )
    if done.returncode:
        raise BackendCompileError(f"cuobjdump failed: {done.stderr.strip()[:500]}")
    return done.stdout


def sass(cubin: bytes) -> str:
    """The instructions, without their encodings."""
    lines = []
    for line in _dump(cubin, "--dump-sass").splitlines():
        text = re.sub(r"\s*/\* 0x[0-9a-f]{16} \*/\s*$", "", line).rstrip()
        if text.strip():
            lines.append(text)
    return "\n".join(lines)


@dataclass(frozen=True)
class Usage:
    """Resources of a kernel: registers of a unit, bytes on the stack, bytes of static shared
    memory.
    """

    registers: int
    stack: int
    shared: int


def usage(cubin: bytes) -> Usage:
    """What a kernel needs, from its machine code."""
    text = _dump(cubin, "--dump-resource-usage")
    found = {k: int(v) for k, v in re.findall(r"(REG|STACK|SHARED):(\d+)", text)}
    return Usage(found.get("REG", 0), found.get("STACK", 0), found.get("SHARED", 0))


def count(text: str, *names: str) -> dict[str, int]:
    """How often instructions occur in SASS, by the start of their names:
    `count(s, "HGMMA", "LDL")`.
    """
    words = re.findall(
        r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", text, re.MULTILINE
    )
    return {n: sum(w == n or w.startswith(n + ".") for w in words) for n in names}
