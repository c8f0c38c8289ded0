"""A launch: compile to text, make every unit a generator, run cluster after cluster."""

from __future__ import annotations

import ast
import math
import random
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.backends.cuda.offline import compile_for
from tests.cuda.emulator.arithmetic import ARITHMETIC, OPERATORS
from tests.cuda.emulator.cube import MEETINGS, Cube
from tests.cuda.emulator.memory import array_words


class Generator(ast.NodeTransformer):
    """Ops in which units meet become yields, and operators are written as such."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Name):
            return node
        name = node.func.id
        if name in MEETINGS:
            return ast.Yield(ast.Tuple([ast.Constant(name), *node.args], ast.Load()))
        if name in OPERATORS:
            return ast.BinOp(node.args[0], OPERATORS[name](), node.args[1])
        return node.args[0] if name in ("multiple", "same_in_plane") else node


@lru_cache(256)
def translated(text: str) -> Any:
    """The generated function's code, as a generator's."""
    tree = ast.parse(text)
    kernel = next(n for n in tree.body if isinstance(n, ast.FunctionDef))
    kernel.body.append(ast.parse("if False: yield").body[0])  # for kernels in which nobody meets
    tree.body = [kernel]
    space: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(Generator().visit(tree)), "emulated", "exec"), space)
    return space[kernel.name].__code__


def leaves_of(value: Any) -> list[Any]:
    """What an argument is made of: tuples may have tuples in them."""
    return [leaf for part in value for leaf in leaves_of(part)] if isinstance(value, tuple) else [value]


def emulate(
    kernel: Any, units: int, cubes: int | tuple[int, ...], *args: Any, architecture: str = "sm_90a", late: float = True,
    seed: int = 0, **comptime: Any
) -> Any:  # fmt: skip
    """Run a kernel's text for a GPU on NumPy arrays and tensor maps; gives the compiled code.

    Args:
        kernel: the kernel.
        units: of a cube.
        cubes: along up to three axes.
        args: the kernel's arguments.
        architecture: such as "sm_90a".
        late: the chance that a copy lands, or a product reads, only when it is waited for; otherwise at once.
        seed: of the order in which units run and copies land.
        comptime: further arguments by name.

    Raises:
        RuntimeError: units wait for ever.
        AssertionError: an access outside an array, a copy that is not aligned.
    """
    code = compile_for(architecture, kernel, units, *args, mode="unchecked", **comptime)
    words: list[Any] = []
    for p, value in zip(kernel.parameters, args, strict=False):
        if value is not None and p.kind != "comptime":
            for part in leaves_of(value):
                words += array_words(part) if isinstance(part, np.ndarray) else [part]
    x, y, z = (*(cubes if isinstance(cubes, tuple) else (cubes,)), 1, 1)[:3]
    run_cubes(code, words, (x, y, z), late, seed)
    return code


def run_cubes(code: Any, words: list[Any], cubes: tuple[int, int, int], late: float, seed: int) -> None:
    """Run compiled code with the words of its parameters."""
    given = [ARITHMETIC.get(p.kind, lambda v: v)(w) for p, w in zip(code.text.parameters, words, strict=True)]
    x, y, z = cubes
    together, *others = code.program.cluster
    assert others == [1, 1] and x % together == 0, "clusters are whole, and along x"
    chance, body, units = random.Random(seed), translated(code.text.text), math.prod(code.program.units)
    with np.errstate(all="ignore"):
        for *rest, first in np.ndindex(z, y, x // together):
            cluster = [
                Cube(
                    body, given, (first * together + k, *rest[::-1]), cubes, units, code.text.shared_bytes, chance, late
                )
                for k in range(together)
            ]
            for cube in cluster:
                cube.cluster = cluster
            for _ in zip(*(cube.run() for cube in cluster), strict=True):
                pass
