"""Syntax that kernels do not have."""

from __future__ import annotations

import ast

from cubepy.errors import KernelSyntaxError, Location


def unsupported(node: ast.AST, location: Location | None) -> KernelSyntaxError:
    """The error for syntax that kernels do not have."""
    name = type(node).__name__
    what = {
        "Try": "try",
        "TryStar": "try",
        "With": "with",
        "Raise": "raise",
        "Delete": "del",
        "Import": "import",
        "ImportFrom": "import",
        "Global": "global",
        "Nonlocal": "nonlocal",
        "ClassDef": "class",
        "FunctionDef": "a nested def",
        "AsyncFunctionDef": "async def",
        "AsyncFor": "async for",
        "AsyncWith": "async with",
        "Match": "match",
        "Lambda": "lambda",
        "ListComp": "a comprehension",
        "SetComp": "a comprehension",
        "DictComp": "a comprehension",
        "Yield": "yield",
        "YieldFrom": "yield from",
        "Await": "await",
        "NamedExpr": ":=",
        "Starred": "*unpacking",
        "JoinedStr": "an f-string",
        "Dict": "a dict",
        "Set": "a set",
        "List": "a list",
        "Slice": "a slice",
    }.get(name, name)
    hint = {
        "Try": "kernels do not raise; use cb.debug_assert while debugging",
        "Lambda": "declare a @cb.func and pass it as a comptime argument",
        "ListComp": "write tuple(... for ...), or use cb.local(shape, dtype) and a loop",
        "FunctionDef": "declare it outside with @cb.func",
        "Slice": "use a.load(i, lanes) for a line, or index element by element",
        "Match": "use if and elif",
        "List": "use a tuple, or cb.local(shape, dtype)",
        "JoinedStr": 'give the parts one by one, as in print("x is", x[i])',
        "Dict": "use a @cb.struct, or a frozen dataclass that is passed as cb.Comptime",
        "Set": "use a tuple: a number is looked for with `in` there too",
        "SetComp": "write tuple(... for ...)",
        "DictComp": "write tuple(... for ...)",
        "With": "a kernel opens and closes nothing; do it around the launch",
        "Raise": "kernels do not raise; use cb.debug_assert(condition, message) while debugging",
        "TryStar": "kernels do not raise; use cb.debug_assert while debugging",
        "Delete": "leave it out: a name means nothing behind its last use",
        "Import": "import it at the top of the module",
        "ImportFrom": "import it at the top of the module",
        "Global": "store into an array argument; names of the module are read without it",
        "Nonlocal": "store into an array argument; names around are read without it",
        "ClassDef": "declare a @cb.struct at the top of the module",
        "AsyncFunctionDef": "declare it outside with @cb.func, without async",
        "Yield": "store into an output array",
        "YieldFrom": "store into an output array",
        "Await": "leave it out: launches are waited for outside, with cb.sync()",
        "NamedExpr": "give the name its value on a line of its own, before",
        "Starred": "name every item, or take a part of the tuple, as in t[1:]",
    }.get(name, "")
    return KernelSyntaxError(f"{what} cannot be used in a kernel", location=location, hint=hint)
