"""`python -m cubepy tune`: measure an operation, or everything that a program or a model file
needs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import typing
from typing import Any

from cubepy.config import config
from cubepy.errors import TuneError
from cubepy.program import check_program, failure, run_program
from cubepy.runtime.device import as_device
from cubepy.tune.keys import text_of
from cubepy.tune.progress import progress_for
from cubepy.tune.routine import OPS, library, op_named
from cubepy.tune.table import Table, export_table, import_table
from cubepy.tune.tuned import TunedOp
from cubepy.tune.tuner import TUNER


def add_command(commands: Any) -> None:
    """Declare the arguments of the command."""
    tune = commands.add_parser("tune", help="measure which routines are fastest here")
    tune.add_argument(
        "target", nargs="?", help="an operation such as matmul, a .py file, or a .safetensors file"
    )
    tune.add_argument(
        "--problem",
        action="append",
        default=[],
        metavar="FIELD=VALUE,...",
        help="a problem of the operation, such as m=1,k=4096,n=4096; may be repeated",
    )
    tune.add_argument(
        "--rows", default="1,32,128", help="rows of the inputs of a model file's linear layers"
    )
    tune.add_argument("--level", choices=["quick", "full"], default="full")
    tune.add_argument("--device", default="cpu")
    tune.add_argument(
        "--again", action="store_true", help="measure what is known already once more"
    )
    tune.add_argument("--list", action="store_true", help="show what is known, with all timings")
    tune.add_argument("--json", action="store_true", help="as JSON")
    tune.add_argument(
        "--clear",
        action="store_true",
        help="forget what is known (of the operation, if one is named)",
    )
    tune.add_argument(
        "--export", metavar="FILE", help="write all results of the device into a file"
    )
    tune.add_argument(
        "--import", dest="take", metavar="FILE", help="take the results of such a file"
    )
    tune.add_argument(
        "--any-device", action="store_true", help="import results of a device of another name"
    )


def run(arguments: argparse.Namespace) -> None:
    """Do what the command line says.

    Raises:
        TuneError: it asks for nothing, or for something that does not exist.
    """

    library()
    device = str(as_device(arguments.device))
    if arguments.take:
        count = import_table(arguments.take, device, any_device=arguments.any_device)
        print(f"{count} results taken from {arguments.take}")
    if arguments.clear:
        count = Table(device).clear(arguments.target)
        TUNER.forget()
        print(f"{count} results forgotten")
    elif arguments.target:
        _measure(arguments, device)
    if arguments.export:
        print(f"{export_table(arguments.export, device)} results written to {arguments.export}")
    if arguments.list:
        known = list(Table(device))
        if not known:
            print(f"nothing is tuned for {Table(device).device}", file=sys.stderr)
        _show(known, arguments.json)
    if not any(
        (arguments.take, arguments.clear, arguments.target, arguments.export, arguments.list)
    ):
        raise TuneError(
            "nothing to tune",
            hint=f"name one of {', '.join(sorted(_tuned()))}, or a .py or .safetensors file",
        )


def _measure(arguments: argparse.Namespace, device: str) -> None:
    found = _problems(arguments, device)
    keys = {
        (op.name, op.key(p)): (op, p) for op, p in reversed(found)
    }  # the first of each key is measured
    decisions = []
    TUNER.progress = progress_for()
    for op, problem in reversed(list(keys.values())):
        known = None if arguments.again else TUNER.decision(op, problem)
        if known is None or (known.level, arguments.level) == ("quick", "full"):
            known = TUNER.tune(op, problem, arguments.level, again=arguments.again)
        elif not arguments.json:
            print(f"{op.name} {text_of(problem)}: known", file=sys.stderr)
        decisions.append(known)
        if not arguments.json:
            print(known, flush=True)
    if arguments.json:
        _show(decisions, True)


def _show(decisions: list[Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps([d.as_dict() for d in decisions], indent=1))
        return
    for d in decisions:
        print(d)


def _problems(arguments: argparse.Namespace, device: str) -> list[tuple[TunedOp, Any]]:
    target = arguments.target
    if target.endswith(".py"):
        return _of_program(target, device)
    if target.endswith(".safetensors"):
        rows = [_number("--rows", r, 1) for r in arguments.rows.split(",")]
        layers = [
            (op, op.linear(device, m, *s))
            for s in _linear_shapes(target)
            for m in rows
            for op in _tuned().values()
        ]
        return [(op, problem) for op, problem in layers if problem is not None]
    op = op_named(target)
    if not isinstance(op, TunedOp):
        raise TuneError(
            f"{target} has an order of routines and nothing to measure",
            hint=f"name one of {', '.join(sorted(_tuned()))}",
        )
    chosen = [_problem_of(op, text, device) for text in arguments.problem] or list(
        op.typical(device)
    )
    if not chosen:
        raise TuneError(
            f"{op.name} has no typical problems on {device}", hint="name some with --problem"
        )
    return [(op, p) for p in chosen]


def _tuned() -> dict[str, TunedOp]:
    """The operations that can be measured."""
    return {name: op for name, op in OPS.items() if isinstance(op, TunedOp)}


def _of_program(path: str, device: str) -> list[tuple[TunedOp, Any]]:
    if not os.path.exists(path):
        raise TuneError(f"there is no file {path}")
    check_program(path)
    with TUNER.record() as seen, config.override(tune="none"):
        try:
            run_program(path)
        except SystemExit as end:  # how many programs end
            if end.code:
                raise TuneError(f"{path} ended with exit status {end.code}") from None
        except Exception as error:
            if config.debug >= 2:
                raise
            raise TuneError(
                failure(path, error), hint=f"python -m cubepy run {path} shows where"
            ) from error
    found = [(op, p) for op, p in seen if str(as_device(p.device)) == device]
    if not found:
        raise TuneError(f"{path} uses no operation on {device} that can be tuned")
    return found


def _linear_shapes(path: str) -> list[tuple[int, int]]:
    """(inputs, outputs) of the matrices in a safetensors file, each once."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if length > 100 << 20:
            raise TuneError(f"{path} is not a safetensors file")
        try:
            header = json.loads(f.read(length))
            shapes = [
                tuple(v["shape"])
                for k, v in header.items()
                if k != "__metadata__" and k.endswith("weight")
            ]
        except (ValueError, TypeError, KeyError, AttributeError):
            raise TuneError(f"{path} is not a safetensors file") from None
    found = list(dict.fromkeys((s[1], s[0]) for s in shapes if len(s) == 2))
    if not found:
        raise TuneError(
            f"{path} holds no matrix named *.weight", hint="tune a .py file that uses the model"
        )
    return found


def _number(where: str, text: str, least: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise TuneError(f"{where}: {text!r} is not a whole number") from None
    if number < least:
        raise TuneError(f"{where} must be at least {least}, not {number}")
    return number


def _problem_of(op: TunedOp, text: str, device: str) -> Any:
    """A problem from a text such as "m=1,k=4096,n=4096"."""
    values: dict[str, Any] = {"device": device}
    fields = [f for f in op.problem._fields if f != "device"]
    usual = op.problem._field_defaults
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in fields or not value:
            raise TuneError(
                f"a problem of {op.name} has no {part!r}",
                hint=f"its fields are {', '.join(fields)}",
            )
        values[name] = _value(
            name, value, typing.get_type_hints(op.problem)[name], usual.get(name, 1)
        )
    missing = [f for f in fields if f not in values and f not in usual]
    if missing:
        raise TuneError(
            f"a problem of {op.name} needs {', '.join(missing)} too",
            hint=f"{text},{missing[0]}=...",
        )
    return op.problem(**values)


def _value(name: str, text: str, kind: Any, usual: Any) -> Any:
    """A field's value from its text; numbers may be 0 only where that is usual."""
    if kind is int:
        return _number(name, text, min(usual, 1))
    choices = ("false", "true", "0", "1", "no", "yes") if kind is bool else typing.get_args(kind)
    if choices and text.lower() not in choices:
        raise TuneError(f"{name} cannot be {text!r}", hint=f"it is one of {', '.join(choices)}")
    return text.lower() in ("1", "true", "yes") if kind is bool else text
