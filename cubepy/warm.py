"""`python -m cubepy warm`: compile ahead what functions of the library, or a program, will need.

The work is done by a process of its own, in which launches run nothing (`processes.jobs`):
it goes through the calls, notes which programs the cache lacks, and lets as many processes as there
are cores compile them. For another processor, or a GPU, that process pretends to run there.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

from cubepy.config import config
from cubepy.errors import ConfigError, CubeError, FileFormatError
from cubepy.program import check_program, failure, run_program
from cubepy.runtime import cache

_GPU = re.compile(r"sm_\d+a?")
NOT_FOLLOWED = 3
"""Exit status of the process that rehearses: the program needs the results of its launches."""


def add_command(commands: Any) -> None:
    """Declare the arguments of the command."""
    warm = commands.add_parser("warm", help="compile ahead what a first call would wait for")
    warm.add_argument(
        "what", nargs="*", help="functions of the library such as K.conv2d, and .py files to run"
    )
    warm.add_argument("--all", action="store_true", help="all functions of the library")
    warm.add_argument(
        "--target",
        metavar="FILE-or-ARCHITECTURE",
        help="compile for the processor that wrote this file with `info --json`, or for NVIDIA GPUs"
        " such as sm_90a",
    )
    warm.add_argument(
        "--dtype",
        default="f32",
        choices=("f32", "f16", "bf16", "f64"),
        help="what functions of the library are called with",
    )


def run(arguments: argparse.Namespace) -> None:
    """Do what the command line says.

    Raises:
        CubeError: it names nothing, or what does not exist; or a program could not be compiled.
    """
    what = [_checked(name) for name in arguments.what]
    if arguments.all:
        what += [n for n in _typical() if n not in what]
    if not what:
        raise ConfigError(
            "nothing to compile", hint="name functions such as K.conv2d, .py files, or --all"
        )
    if not config.cache:
        raise ConfigError("the cache is switched off, so nothing can be kept in it")
    _refuse_closed_cache()
    environment = os.environ | {"CUBEPY_CACHE_DIR": config.cache_dir, "CUBEPY_CACHE": "1"}
    target: dict[str, Any] = {}
    if _GPU.fullmatch(arguments.target or ""):
        target = {"architecture": _architecture(arguments.target)}
    elif arguments.target:
        target = _target(arguments.target)
        environment |= {"NUMBA_CPU_NAME": target["cpu"], "NUMBA_CPU_FEATURES": target["features"]}
    files = [name for name in what if name.endswith(".py")]
    functions = [name for name in what if name not in files]
    for part in ([functions] if functions else []) + [[name] for name in files]:
        order = json.dumps(
            {
                "what": part,
                "properties": target.get("properties"),
                "architecture": target.get("architecture"),
                "dtype": arguments.dtype,
            }
        )
        done = subprocess.run(
            [sys.executable, "-m", "cubepy.warm", order], env=environment, check=False
        )
        if done.returncode == NOT_FOLLOWED and not target:
            print(f"{part[0]} needs its results: it runs as it is", file=sys.stderr)
            done = subprocess.run(
                [sys.executable, "-m", "cubepy", "run", part[0]], env=environment, check=False
            )
        if done.returncode:
            raise CubeError(f"{', '.join(part)} could not be compiled; see above")


def _refuse_closed_cache() -> None:
    """Raises:
    ConfigError: nothing can be written there, so that all would be compiled for nobody.
    """
    folder = cache.directory() / "code"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(
            f"the cache {cache.directory()} cannot be written, so nothing is kept: {error}",
            hint="set CUBEPY_CACHE_DIR to a folder that can",
        ) from None


def _typical() -> dict[str, Any]:
    calls: dict[str, Any] = importlib.import_module("cubepy.kernels.typical").calls()
    return calls


def _checked(name: str) -> str:
    """A name of what to compile, without the "K." before it."""
    if name.endswith(".py"):
        if not os.path.exists(name):
            raise ConfigError(f"there is no file {name}")
        check_program(name)
        return name
    short = name.removeprefix("K.")
    known = _typical()
    if short not in known:
        close = difflib.get_close_matches(short, known, n=3)
        raise ConfigError(
            f"the library has no function {name!r}",
            hint=f"did you mean {' or '.join(f'K.{n}' for n in close)}?"
            if close
            else f"it has {', '.join(sorted(known))}",
        )
    return short


def _target(path: str) -> dict[str, Any]:
    """What a file of `info --json` says of the processor that wrote it."""
    if not os.path.exists(path):
        raise ConfigError(
            f"--target {path!r} is no file, and no architecture that code is made for",
            hint="it is a file that `python -m cubepy info --json` wrote, or an NVIDIA GPU's: "
            "sm_80, sm_86, sm_89, sm_90a or sm_100a",
        )
    try:
        with open(path, encoding="utf-8") as f:
            target: dict[str, Any] = json.load(f)["target"]
        properties = target["properties"]
        if not isinstance(target["cpu"], str) or not isinstance(target["features"], str):
            raise ValueError("the processor has no name")
        _properties(properties)
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"{path} does not say what to compile for: {type(error).__name__}: {error}",
            hint="it is what `python -m cubepy info --json` prints there",
        ) from None
    return target


def _architecture(name: str) -> str:
    """A compute capability that there is code for, and what compiles it."""
    from importlib.util import find_spec

    from cubepy.backends.cuda.codegen.compile import Architecture

    if find_spec("numba_cuda") is None:
        raise ConfigError(
            "compiling for NVIDIA GPUs needs the package numba-cuda",
            hint='pip install "cubepy[cuda13]" (no GPU and no driver is needed)',
        )
    return str(Architecture.of(name))


def described() -> dict[str, Any]:
    """What `info` says of this processor, for compiling elsewhere."""
    from dataclasses import asdict

    from cubepy.backends.llvm.machine_code import host
    from cubepy.runtime.device import backend_named

    name, features = host()
    properties = asdict(backend_named("cpu").properties())
    return {
        "cpu": name,
        "features": features,
        "properties": properties | {"features": sorted(properties["features"])},
    }


def _properties(given: dict[str, Any]) -> Any:
    from cubepy.runtime.device import DeviceProperties

    return DeviceProperties(**given | {"features": frozenset(given["features"])})


def rehearse(
    what: list[str], properties: dict[str, Any] | None, architecture: str | None, dtype: str
) -> int:
    """Find and compile what calls or a program need; the exit status. The process is of no use
    afterwards.

    Args:
        what: functions, or one program.
        properties: of another CPU.
        architecture: of a GPU, which is then the device that all goes to.
        dtype: of the functions' arguments.
    """
    from cubepy.backends.cpu import backend
    from cubepy.backends.cpu.threads import choice
    from cubepy.backends.llvm.processes import jobs, workers
    from cubepy.lang import dtypes
    from cubepy.runtime.device import use

    cores = choice.threads(launches=False)
    if properties is not None:
        backend.pretended = _properties(properties)
    if architecture is not None:
        _pretend_gpu(architecture)
    begin = time.monotonic()
    with jobs.rehearsal() as known, use("cuda" if architecture else "cpu"):
        if what[0].endswith(".py"):
            try:
                run_program(what[0])
            except SystemExit as end:
                if end.code:
                    print(f"{what[0]} ended with exit status {end.code}", file=sys.stderr)
                    return NOT_FOLLOWED
            except Exception as error:
                print(failure(what[0], error), file=sys.stderr)
                return NOT_FOLLOWED
        else:
            _call(what, getattr(dtypes, dtype).numpy)
    found = [j for j in known.values() if (architecture is not None) == hasattr(j, "architecture")]
    terminal = sys.stderr.isatty() and config.progress is not False
    done = 0

    def tell(job: Any, wrong: str) -> None:
        nonlocal done
        done += 1
        if terminal:
            text = f"cubepy: compiled {job.kernel} ({done} of {len(found)}) ..."
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    wrong = workers.compile_all(found, config.compile_workers or cores, tell)
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    for kernel, why in wrong.items():
        print(f"{kernel}: {why}", file=sys.stderr)
    made = len(found) - len(wrong)
    title = what[0] if len(what) == 1 else f"{len(what)} functions"
    print(
        f"{title}: {made} kernels compiled in {time.monotonic() - begin:.1f} s; "
        f"the cache holds {cache.usage()[0]} entries"
    )
    return 1 if wrong else 0


def _pretend_gpu(architecture: str) -> None:
    """Let there be one GPU, of this architecture."""
    from cubepy.backends import cuda
    from cubepy.backends.cuda.backend import offline

    cuda.pretended = offline(architecture)


def _call(names: list[str], dtype: Any) -> None:
    """Make the typical calls of functions; those that take no such dtype are told."""
    from cubepy.kernels import typical

    with typical.arrays_of(dtype):
        calls = typical.calls()
        for name in names:
            for call in calls[name]:
                try:
                    call()
                except CubeError as error:
                    print(f"K.{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    try:
        sys.exit(rehearse(**json.loads(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)  # the process that asked says so
