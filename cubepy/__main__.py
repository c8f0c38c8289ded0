"""`python -m cubepy`: information, the cache, running files on another backend, models, quantizing
model files, tuning, checking a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from cubepy import warm
from cubepy.check import command as check_command
from cubepy.config import config
from cubepy.errors import ConfigError, CubeError
from cubepy.models import command as model_command
from cubepy.program import check_program, own_traceback, run_program
from cubepy.tune import command as tune_command


def command_line() -> argparse.ArgumentParser:
    """What may follow `python -m cubepy`."""
    parser = argparse.ArgumentParser(
        prog="python -m cubepy", description="Kernels in plain Python."
    )
    parser.add_argument("--version", action="version", version=f"cubepy {_version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info", help="versions, devices, cache, settings")
    info.add_argument("--json", action="store_true", help="as JSON")
    cache = commands.add_parser("cache", help="compiled kernels on disk")
    cache.add_argument("action", choices=["info", "clear", "export", "import"])
    cache.add_argument("file", nargs="?", help="archive to write or to take")
    run = commands.add_parser("run", help="run a Python file on a backend")
    run.add_argument("file")
    run.add_argument("--backend", default=None, help="cpu, cuda, hip or python; before the file")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="of the file: all that follows it")
    quantize = commands.add_parser(
        "quantize", help="quantize the linear layers of a safetensors file"
    )
    quantize.add_argument("model")
    quantize.add_argument("--scheme", required=True, help="int8 or int4")
    quantize.add_argument(
        "--group", type=int, default=None, help="neighbours that share a scale (int4)"
    )
    quantize.add_argument(
        "--symmetric", action="store_true", help="no minimum for each group (int4)"
    )
    quantize.add_argument(
        "--skip", action="append", default=[], help="name or pattern of a tensor to leave as it is"
    )
    quantize.add_argument("-o", "--output", required=True, help="file to write")
    model_command.add_commands(commands)
    tune_command.add_command(commands)
    check_command.add_command(commands)
    warm.add_command(commands)
    return parser


def _version() -> str:
    import cubepy

    return cubepy.__version__


def information() -> dict[str, Any]:
    """What `info` shows."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import cubepy
    from cubepy.runtime import cache
    from cubepy.runtime.device import BACKENDS, GPUS, backend_named

    versions = {"python": platform.python_version(), "cubepy": cubepy.__version__}
    for name in ("numpy", "numba", "llvmlite", "ml_dtypes"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    entries, size = cache.usage()
    return {
        "versions": versions,
        "platform": platform.platform(),
        "backends": {b: "available" if backend_named(b).count() else "no device" for b in BACKENDS},
        "front ends": {b: backend_named(b).front_end() for b in GPUS},
        "devices": [
            {
                "backend": d.backend,
                "name": d.name,
                "cores": d.cores,
                "register_bits": d.register_bytes * 8,
                "shared_memory": d.max_shared_memory,
                "features": sorted(d.features),
            }
            for d in cubepy.devices()
        ],
        "cache": {"folder": str(cache.directory()), "kernels": entries, "bytes": size},
        "settings": config.as_dict(),
        "target": warm.described(),
    }


def _info(as_json: bool) -> None:
    found = information()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for section, content in found.items():
        print(f"{section}:" if not isinstance(content, str) else f"{section}: {content}")
        if isinstance(content, dict):
            for k, v in content.items():
                print(f"  {k}: {v}")
        elif isinstance(content, list):
            for item in content:
                print("  " + ", ".join(f"{k} {v}" for k, v in item.items()))


def _cache(action: str, file: str | None) -> None:
    from cubepy.runtime import cache
    from cubepy.runtime.ahead.archive import export_cache, import_cache

    if (file is None) == (action in ("export", "import")):
        raise ConfigError(
            f"cache {action} {'needs' if file is None else 'takes no'} file",
            hint="python -m cubepy cache export FILE, cache import FILE, cache info, cache clear",
        )
    if action == "export":
        print(f"{export_cache(str(file))} kernels written to {file}")
    elif action == "import":
        print(f"{import_cache(str(file))} kernels taken from {file}")
    elif action == "clear":
        print(f"freed {cache.clear()} bytes of {cache.directory()}")
    else:
        entries, size = cache.usage()
        print(f"{entries} kernels, {size} bytes in {cache.directory()}")


def _run(arguments: argparse.Namespace) -> int:
    """Run a program; an error of its own is shown as Python shows it, with exit status 1."""
    if arguments.backend is not None:
        config.backend = arguments.backend
    check_program(arguments.file)
    try:
        run_program(arguments.file, arguments.arguments)
    except Exception as error:
        if config.debug >= 2:
            raise
        error = error.with_traceback(own_traceback(error))
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _quantize(arguments: argparse.Namespace) -> None:
    from cubepy import quant

    report = quant.quantize_file(
        arguments.model,
        arguments.output,
        arguments.scheme,
        group=arguments.group,
        symmetric=True if arguments.symmetric else None,
        skip=tuple(arguments.skip),
    )
    print(report)


def main(argv: list[str] | None = None) -> int:
    """Run a command; 0 when it worked, 1 when a program or a case failed, 2 when the input was
    wrong, 130 when it was interrupted.
    """
    arguments = command_line().parse_args(argv)
    try:
        if arguments.command == "info":
            _info(arguments.json)
        elif arguments.command == "cache":
            _cache(arguments.action, arguments.file)
        elif arguments.command == "warm":
            warm.run(arguments)
        elif arguments.command == "run":
            return _run(arguments)
        elif arguments.command in model_command.NAMES:
            model_command.run(arguments)
        elif arguments.command == "tune":
            tune_command.run(arguments)
        elif arguments.command == "check":
            return check_command.run(arguments)
        else:
            _quantize(arguments)
    except BrokenPipeError:  # who read along has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (CubeError, OSError) as error:
        if config.debug >= 2:
            raise
        print(f"cubepy: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if config.debug >= 2 or arguments.command == "run":  # a program's own
            raise
        print("\ncubepy: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
