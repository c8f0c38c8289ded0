"""Write what editors and type checkers know of the kernel library: `cubepy/kernels/__init__.pyi`.

Every public function gives back the kind of array that it was given. Its stub says so by overloads,
one for each kind, made of the function's own signature. A test fails where the file is not what
this script makes.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cubepy.kernels as library
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tensor import Tensor
from cubepy.tune.explain import Explanation

FILE = Path(library.__file__).with_suffix(".pyi")
HEAD = '''"""The kernel library, with the types of its results.

Made by `scripts/library_stub.py` from the functions' signatures: change those, not this file.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, overload

import numpy as np

'''
FUNCTION = '''
class Function:
    """A function of the library."""

    __name__: str
    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """What a call with these arguments would do: routines, launches, share of the limit."""
'''
HOST = "Host: TypeAlias = np.ndarray[Any, Any] | Sequence[Any] | float"
KINDS = {"Tensor": "Tensor", "DeviceArray": "DeviceArray", "Host": "np.ndarray[Any, Any]"}
"""What a function gives back for each kind of array."""

LEADS = ("grad_output", "x", "input", "a", "query", "grad", "arrays")
"""The parameters whose kind decides."""

SCALARS = "keepdims"
"""Functions with this parameter give a NumPy scalar where they reduce a host's array along all
axes.
"""


def annotation(parameter: Any) -> str:
    """The text of an annotation; `from __future__ import annotations` keeps it as it was written."""
    return parameter if isinstance(parameter, str) else inspect.formatannotation(parameter)


def default(value: Any) -> str:
    """The text of a default."""
    return repr(value) if isinstance(value, (int, float, str, type(None))) else "..."


def parameters(signature: inspect.Signature, types_of: dict[str, str]) -> str:
    """The text of the parameters, with other types for some."""
    texts, star = [], False
    for p in signature.parameters.values():
        kind = types_of.get(p.name, annotation(p.annotation))
        if p.kind is p.KEYWORD_ONLY and not star:
            texts.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        prefix = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        given = "" if p.default is p.empty else f" = {default(p.default)}"
        texts.append(f"{prefix}{p.name}: {kind}{given}")
    return ", ".join(texts)


def ways(function: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Each way to call a function: its parameters and its result."""
    signature = inspect.signature(function)
    result = annotation(signature.return_annotation)
    names = signature.parameters
    if "Any" not in result:
        yield parameters(signature, {}), result
        return
    lead = next((name for name in LEADS if name in names), "")
    plain = {"return_indices": "Literal[False]"} if "return_indices" in names else {}
    for kind, given in KINDS.items() if lead else ():
        if given == KINDS["Host"] and SCALARS in names:
            continue
        if lead == "arrays" and names[lead].kind is not inspect.Parameter.VAR_POSITIONAL:
            kind = f"Sequence[{kind}]"
        yield parameters(signature, {**plain, lead: kind}), result.replace("Any", given)
    if "device" in names:
        on_host = {"device": "None", "out": "None"}
        yield parameters(signature, on_host), result.replace("Any", KINDS["Host"])
    yield parameters(signature, {}), result


def names_in(text: str) -> set[str]:
    """The names that an annotation is made of."""
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def origins(function: Callable[..., Any]) -> dict[str, str]:
    """The modules of the classes that a function's annotations name."""
    scope, found = inspect.unwrap(function).__globals__, {}
    signature = inspect.signature(function)
    texts = [annotation(p.annotation) for p in signature.parameters.values()]
    for name in set().union(*map(names_in, [*texts, annotation(signature.return_annotation)])):
        if not hasattr(builtins, name) and name not in HEAD:
            found[name] = scope[name].__module__
    return found


def stub(name: str, function: Callable[..., Any]) -> list[str]:
    """The lines of a function: an object that is called, since it has `explain`, too."""
    every = list(ways(function))
    lines = [f"class _{name}(Function):"]
    for given, result in every:
        lines += ["    @overload"] if len(every) > 1 else []
        whole = f"    def __call__(self{', ' if given else ''}{given}) -> {result}: ..."
        if len(whole) > 100:
            rows = textwrap.wrap(f"self, {given}", 92, break_long_words=False)
            lines += ["    def __call__("]
            lines += [*(f"        {row}" for row in rows), f"    ) -> {result}: ..."]
        else:
            lines.append(whole)
    words = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
    rows = textwrap.wrap(words, 92)
    rows[0] = '"""' + rows[0]
    rows[-1] += '"""'
    return [*lines, "", f"{name}: _{name}", *rows, ""]


def text() -> str:
    """The text of the stub."""
    kinds = (DeviceArray, Explanation, Tensor)
    imports = {f"from {kind.__module__} import {kind.__name__}" for kind in kinds}
    lines: list[str] = []
    for name in library.__all__:
        value = getattr(library, name)
        if isinstance(value, types.ModuleType):
            imports.add(f"from {value.__package__} import {name} as {name}")
        elif isinstance(value, types.FunctionType):
            imports |= {f"from {where} import {n} as {n}" for n, where in origins(value).items()}
            lines += stub(name, value)
        else:
            imports.add(f"from {value.__module__} import {name} as {name}")
    every = ["__all__ = [", *(f'    "{name}",' for name in library.__all__), "]"]
    return HEAD + "\n".join([*sorted(imports), FUNCTION, HOST, "", *every, "", *lines]) + "\n"


def main() -> int:
    """The exit status: 1 when `--check` finds that the file is not what the signatures say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    if parser.parse_args().check:
        return int(not FILE.exists() or FILE.read_text() != text())
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
