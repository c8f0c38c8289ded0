"""The conformance suite through numba-hip's front end, without ROCm and without an AMD GPU:
`python scripts/numba_hip.py`.

numba-hip is imported in an environment of its own (numba below 0.64, no numba-cuda), which this
makes at first in `.cache/numba-hip`. A ROCm installation brings what it looks for; here others
stand in:

* comgr, HIP's headers and the header of hipRTC are Debian's packages (ROCm 5.2), unpacked and not
  installed: libamd-comgr2, libamdhip64-dev, libhiprtc-builtins5. `apt-get update` comes before.
* libclang is the wheel of that name. It is older than what the bindings are for, which they are
  told; headers of clang are not needed.
* librocm_sysdeps_z and _zstd, which the bindings' LLVM asks for, are made with the C compiler: they
  have its functions, and end the process when one is called, which happens for compressed debug
  information alone.

Kernels are lowered through it, compiled by llvmlite's LLVM, and run by the emulator. What follows
`--` goes to pytest instead of the conformance suite:

    python scripts/numba_hip.py                                        # gfx942 and gfx1100
    python scripts/numba_hip.py --processors gfx90a gfx950 gfx1201
    python scripts/numba_hip.py -- tests/backends/hip/test_front_ends.py
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "numba-hip"
COMGR = "libamd-comgr2"
PACKAGES = (COMGR, "libamdhip64-dev", "libhiprtc-builtins5")
WHEELS = ("libclang", "pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
SYSTEM = ("z", "zstd")
VERSION = "AMDROCM_SYSDEPS_1.0"
"""Of the symbols of the two libraries that are made."""
TESTS = ("tests/conformance", "tests/backends/hip/test_front_ends.py", "-k", "gfx or front_end")

AT_START = '''"""What stands in for ROCm, where numba-hip looks for it."""

import os

os.environ.setdefault("ROCM_PATH", {rocm!r})
os.environ.setdefault("NUMBA_HIP_LIBCLANG_FILE", {clang!r})
os.environ.setdefault("HIP_PYTHON_HIPRTC_RUNTIME_HEADER", {header!r})
try:
    from rocm.bindings.clang.cindex import Config
except ImportError:  # nothing is installed yet
    pass
else:
    Config.set_compatibility_check(False)
'''


def ran(*command: str | Path, **where: Any) -> str:
    """What a command printed; it must work.

    Raises:
        SystemExit: it is not there, or failed, with what it said.
    """
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, **where)
    except FileNotFoundError:
        raise SystemExit(f"{command[0]} is needed and not here") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise SystemExit(f"{' '.join(map(str, command))}: status {done.returncode}\n{said}")
    return done.stdout


class Standins:
    """The environment, and what stands in for ROCm there.

    Attributes:
        folder: where all of it lies.
        python: its interpreter.
        unpacked: Debian's packages.
        libraries: of those packages.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, folder / "venv/bin/python"
        self.unpacked = folder / "debian"
        self.libraries = self.unpacked / "usr/lib/x86_64-linux-gnu"

    def made(self) -> Standins:
        """All of it, made anew where this file or the project's requirements have changed."""
        wanted = hashlib.sha256(
            b"".join(p.read_bytes() for p in (Path(__file__), ROOT / "pyproject.toml"))
        ).hexdigest()
        note = self.folder / "made"
        if not note.exists() or note.read_text() != wanted:
            print(f"making {self.folder}", flush=True)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self._environment()
            self._system_libraries()
            self._debian()
            self._rocm()
            note.write_text(wanted)
        return self

    def _environment(self) -> None:
        ran(sys.executable, "-m", "venv", self.folder / "venv")
        ran(self.python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[hip]", *WHEELS)

    @property
    def packages(self) -> Path:
        """Where the environment's packages are."""
        return next((self.folder / "venv/lib").glob("python3*/site-packages"))

    def _system_libraries(self) -> None:
        """Beside the LLVM that asks for them, where the loader looks first."""
        llvm = self.packages / "rocm/bindings/llvm/libLLVM.so"
        asked = re.findall(rf"(\w+)@{re.escape(VERSION)}", ran("nm", "-D", "-u", llvm))
        versions = self.folder / "versions"
        versions.write_text(f"{VERSION} {{ *; }};\n")
        for name in SYSTEM:
            mine = [f for f in asked if f.startswith("ZSTD_") == (name == "zstd")]
            source, library = self.folder / f"{name}.c", f"librocm_sysdeps_{name}.so.1"
            source.write_text("".join(f"void {f}(void) {{ __builtin_trap(); }}\n" for f in mine))
            flags = ("-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{library}")
            ran(
                "cc",
                *flags,
                f"-Wl,--version-script={versions}",
                source,
                "-o",
                llvm.parent / library,
            )

    def _debian(self) -> None:
        """The packages, and those that comgr needs and the system does not have."""
        told = ran("apt-get", "install", "--print-uris", "-y", "--no-install-recommends", COMGR)
        needed = set(re.findall(r"^'\S+' ([^_\s]+)_", told, re.M)) | set(PACKAGES)
        archives = self.folder / "archives"
        archives.mkdir()
        ran("apt-get", "download", *sorted(needed), cwd=archives)
        for archive in sorted(archives.glob("*.deb")):
            ran("dpkg", "-x", archive, self.unpacked)

    def _rocm(self) -> None:
        """The folders of a ROCm installation, and what tells the environment of them."""
        rocm, header = self.folder / "rocm", self.folder / "hiprtc.h"
        (rocm / "lib/llvm/lib/clang/0/include").mkdir(parents=True)
        (rocm / "include").symlink_to(self.unpacked / "usr/include")
        comgr = next(self.libraries.glob("libamd_comgr.so.*"))
        (rocm / "lib/libamd_comgr.so").symlink_to(comgr)
        builtins = ctypes.CDLL(str(next(self.libraries.glob("libhiprtc-builtins.so.*"))))
        size = ctypes.c_uint.in_dll(builtins, "__hipRTC_header_size").value
        text = (ctypes.c_char * size).in_dll(builtins, "__hipRTC_header").raw
        header.write_bytes(text.rstrip(b"\0"))
        clang = next((self.packages / "clang/native").glob("libclang.so*"))
        told = AT_START.format(rocm=str(rocm), clang=str(clang), header=str(header))
        (self.packages / "sitecustomize.py").write_text(told)

    def environment(self, processors: list[str]) -> dict[str, str]:
        """The variables of a run of tests."""
        paths = [str(self.libraries), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            **os.environ,
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
            "PYTHONPATH": str(ROOT),
            "CUBEPY_TEST_PROCESSORS": " ".join(processors),
        }


ASK = """
from cubepy.backends.hip.codegen.front_end import front_end, why_not
print(why_not() or front_end())
"""


def main() -> int:
    """Make the environment, look whether numba-hip is the front end there, run the tests."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--processors", nargs="+", default=["gfx942", "gfx1100"])
    parser.add_argument("--processes", type=int, default=2, help="of pytest")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the environment lies")
    parser.add_argument("tests", nargs="*", help="for pytest, after --")
    arguments = parser.parse_args()
    standins = Standins(arguments.folder.resolve()).made()
    environment = standins.environment(arguments.processors)
    said = ran(standins.python, "-c", ASK, cwd=ROOT, env=environment).strip()
    if not re.fullmatch(r"numba-hip \S+", said):
        print(f"numba-hip is not the front end: {said}", file=sys.stderr)
        return 1
    print(f"kernels are lowered by {said}", flush=True)
    pytest = [standins.python, "-m", "pytest", "-q", "-n", str(arguments.processes)]
    return subprocess.run(
        [*pytest, *(arguments.tests or TESTS)], check=False, cwd=ROOT, env=environment
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
