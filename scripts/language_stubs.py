"""Write what editors and type checkers know of the language: `cubepy/lang/names.pyi` and
`scalars.pyi`.

The names, their words and their parameters come from the tables of `cubepy.lang`: a docstring that
begins with a call in backticks says the parameters. A test fails where the files are not what this
script makes.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from pathlib import Path

from cubepy.lang.builtins import ATOMIC_OPS, BUILTINS, PLANE_OPS, TOPOLOGY
from cubepy.lang.dtypes import ALL
from cubepy.runtime.device import DeviceProperties

FOLDER = Path(__file__).resolve().parent.parent / "cubepy" / "lang"
MADE = '"""{}\n\nMade by `scripts/language_stubs.py`: change the tables of `cubepy.lang`, not this file.\n"""\n\n'

PARAMETERS = {
    "min": "x, y, *more",
    "max": "x, y, *more",
    "nan_min": "x, y, *more",
    "nan_max": "x, y, *more",
    "sync_cube": "",
    "sync_plane": "",
    "device_properties": "",
    "comptime": "expr",
    "unroll": "over",
    "debug_assert": "condition, message='assertion failed'",
    "lines": "start, stop, lanes",
    "line": "a, *more",
    "range": "start, stop=None, step=None, unroll=True",
    "wgmma": "acc, a, ai, b, bi, n, dtype, accumulate=True, transpose_a=False, transpose_b=False, swizzle=128,"
    " swizzle_a=None, swizzle_b=None, start=0, a_lead=0, a_stride=0, b_lead=0, b_stride=0",
}
"""The parameters of names whose words do not begin with a call that says them all; else it is one,
x.
"""

TYPES = {
    "array": "Array",
    "shared": "Array",
    "sums": "Array",
    "bar": "Array",
    "map": "TensorMap",
    "dtype": "DTypeLike",
    "shape": "int | tuple[int, ...]",
    "transpose": "bool",
    "unroll": "bool",
    "read": "bool",
    "grow": "bool",
    "accumulate": "bool",
    "message": "str",
    **dict.fromkeys(
        ("count", "arrivals", "nbytes", "cubes", "units", "n", "id", "x_", "y_", "z_"), "int"
    ),
}
"""The types of parameters, by their names; others take any value."""

RESULTS = {
    "comptime": "T",
    "unroll": "Iterable[T]",
    "lines": "Iterable[tuple[int, int]]",
    "range": "Iterable[int]",
    "unravel": "tuple[int, ...]",
    "device_properties": "DeviceProperties",
    **dict.fromkeys(("shared", "local", "barrier"), "Array"),
    **dict.fromkeys(
        "splat line iota keep_first concat slice_line interleave partition shuffle dot_i8 dot_bf16 mma load_matrix pack unpack".split(),
        "Line",
    ),
    **dict.fromkeys(
        """sync_cube sync_plane debug_print debug_assert copy_async copy_async_commit copy_async_wait barrier_arrive
        barrier_expect barrier_wait store_matrix tma_load tma_store tma_commit tma_wait add_line tma_prefetch
        fence_async wgmma wgmma_fence wgmma_commit wgmma_wait set_registers sync_group arrive_group cluster
        sync_cluster barrier_arrive_cluster store_cluster tile_dot wait_previous start_next resident""".split(),
        "None",
    ),
}
"""What names return that do not return a value like their first argument: a line of a line, else a
number.
"""

GENERIC = {"comptime": {"expr": "T"}, "unroll": {"over": "Iterable[T]"}}

BINARY = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
COMPARISONS = "lt le gt ge eq ne".split()
UNARY = "neg pos invert".split()


def operators(result: str) -> list[str]:
    """The methods of a class whose operators give `result`."""
    lines = []
    for op in [*BINARY, *(f"r{op}" for op in BINARY), *COMPARISONS]:
        ignored = "  # type: ignore[override]" if op in ("eq", "ne") and result != "Any" else ""
        lines.append(f"    def __{op}__(self, other: Any, /) -> {result}: ...{ignored}")
    return lines + [f"    def __{op}__(self) -> {result}: ..." for op in UNARY]


def documented(words: str, indent: str = "    ") -> list[str]:
    """The lines of a docstring."""
    rows = textwrap.wrap(words, 96 - len(indent))
    if len(rows) == 1:
        return [f'{indent}"""{rows[0]}"""']
    return [f'{indent}"""{rows[0]}', *(indent + row for row in rows[1:]), f'{indent}"""']


def scalars() -> str:
    """The text of `scalars.pyi`."""
    lines = [
        "from typing import Any",
        "",
        "from typing_extensions import Self",
        "",
        "from cubepy.lang.dtypes import DType",
        "",
        "class Scalar:",
        *documented("A number in a kernel; `cb.f32(x)` is `cb.cast(x, cb.f32)`."),
        "",
        "    def __new__(cls, value: Any, /) -> Any: ...",
        "    def __get__(self, instance: object, owner: Any) -> Self: ...",
        "    def __set__(self, instance: object, value: Any) -> None: ...",
        "    def __bool__(self) -> bool: ...",
        "    def __int__(self) -> int: ...",
        "    def __float__(self) -> float: ...",
        "    def __index__(self) -> int: ...",
        "    @property",
        "    def dtype(self) -> DType: ...",
        *operators("Any"),
    ]
    for dtype in ALL:
        words = (type(dtype).__doc__ if dtype.__doc__ is None else dtype.__doc__) or ""
        lines += [
            "",
            f"class {dtype.name}(Scalar, metaclass=DType):",
            *documented(words.partition("\n\n")[0]),
        ]
    head = MADE.format(
        "The dtypes, which to a type checker are classes, so that they can annotate."
    )
    return head + "\n".join(lines) + "\n"


def line() -> list[str]:
    """The class of lines."""
    return [
        "class Line:",
        *documented("1 to 64 neighbours of one dtype in one value; operators work lane by lane."),
        "",
        "    lanes: int",
        "    dtype: DType",
        "    def __getitem__(self, lane: int, /) -> Any: ...",
        "    def __len__(self) -> int: ...",
        *operators("Line"),
        *(
            row
            for name, words in LINE_METHODS.items()
            for row in (f"    def {name}(self) -> Any:", *documented(words, "        "))
        ),
        "",
    ]


LINE_METHODS = {
    "sum": "The sum of the lanes; of a mask, how many hold.",
    "prod": "The product of the lanes.",
    "max": "The largest lane.",
    "min": "The smallest lane.",
    "any": "Whether some lane of a mask holds.",
    "all": "Whether every lane of a mask holds.",
}


def parameters(name: str, words: str) -> ast.arguments:
    """The parameters of a name, from the call that its words begin with, or from the table."""
    called = re.match(rf"`{name}\(([^`]*)\)`", words)
    if name in PARAMETERS:
        given = PARAMETERS[name]
    elif called:
        given = called[1]
    else:
        given = "v" if name in PLANE_OPS else "x"
    (made,) = ast.parse(f"def f({given}): ...").body
    assert isinstance(made, ast.FunctionDef)
    return made.args


def signatures(name: str, words: str) -> list[tuple[str, str]]:
    """Each way to call a name: its parameters and its result."""
    args = parameters(name, words)
    first = args.args[0].arg if args.args else ""
    defaults = [None] * (len(args.args) - len(args.defaults)) + [
        ast.unparse(d) for d in args.defaults
    ]
    like = name not in RESULTS and name not in ATOMIC_OPS and name != "load_cluster"
    result = RESULTS.get(name, "Any")
    ways = [("Line", "Line"), ("Any", "Any")] if like and first else [("", result)]
    out = []
    for start, given in ways:
        texts = []
        for arg, default in zip(args.args, defaults, strict=True):
            kind = GENERIC.get(name, {}).get(arg.arg) or TYPES.get(arg.arg, "Any")
            if name in ("splat", "local", "slice_line", "iota", "lines") and arg.arg in (
                "lanes",
                "start",
            ):
                kind = "int"
            elif (name, arg.arg) in (("lines", "start"), ("unravel", "shape")):
                kind = "Any"
            elif name == "shuffle" and arg.arg == "lanes":
                kind = "tuple[int, ...]"
            if like and arg.arg == first:
                kind = start
            if default is not None:
                kind = f"{kind} | None" if default == "None" and kind != "Any" else kind
                texts.append(f"{arg.arg}: {kind} = {default}")
            else:
                texts.append(f"{arg.arg}: {kind}")
        if name in PLANE_OPS and len(texts) > 1:
            texts.append("/")  # the second is called for what it is, not by its keyword
        if args.vararg:
            texts.append(f"*{args.vararg.arg}: Any")
        out.append((", ".join(texts), given))
    return out


def function(name: str, words: str) -> list[str]:
    """The stub of a builtin."""
    ways = signatures(name, words)
    lines = []
    for given, result in ways:
        lines += ["@overload"] if len(ways) > 1 else []
        head = f"def {name}({given}) -> {result}:"
        rows = given.split(", ") if len(head) > 100 else []
        lines += (
            [f"def {name}(", *(f"    {row}," for row in rows), f") -> {result}:"]
            if rows
            else [head]
        )
        lines += documented(words)
    return lines


def names() -> str:
    """The text of `names.pyi`."""
    every = [*BUILTINS, *TOPOLOGY, *(dtype.name for dtype in ALL)]
    lines = [
        "from collections.abc import Iterable",
        "from typing import Any, TypeVar, overload",
        "",
        "from cubepy.lang.annotations import Array, TensorMap",
        "from cubepy.lang.dtypes import DType, DTypeLike",
        *(f"from cubepy.lang.scalars import {dtype.name} as {dtype.name}" for dtype in ALL),
        f"from {DeviceProperties.__module__} import DeviceProperties",
        "",
        'T = TypeVar("T")',
        "",
        "__all__ = [",
        *(f'    "{name}",' for name in sorted(every)),
        "]",
        "",
        *line(),
    ]
    for name, topology in TOPOLOGY.items():
        lines += [f"{name}: int", *documented((topology.__doc__ or "").partition("\n\n")[0], "")]
    for name, builtin in BUILTINS.items():
        lines += function(name, (builtin.__doc__ or "").partition("\n\n")[0])
    return MADE.format("The names of the language, with their types.") + "\n".join(lines) + "\n"


STUBS = {"names.pyi": names, "scalars.pyi": scalars}


def main() -> int:
    """The exit status: 1 when `--check` finds a file that is not what its maker makes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    stale = 0
    for name, make in STUBS.items():
        file = FOLDER / name
        if check and (not file.exists() or file.read_text() != make()):
            print(f"{file} is stale: run scripts/language_stubs.py")
            stale = 1
        elif not check:
            file.write_text(make())
    return stale


if __name__ == "__main__":
    sys.exit(main())
