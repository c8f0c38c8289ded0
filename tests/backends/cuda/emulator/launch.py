"""A launch: compile to text, make every unit a generator, run cluster after cluster."""

from __future__ import annotations

import ast
import math
import random
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.backends.cuda.offline import compile_for
from cubepy.lang.struct import Struct
from tests.backends.cuda.emulator.arithmetic import ARITHMETIC, OPERATORS
from tests.backends.cuda.emulator.cube import MEETINGS, Cube
from tests.backends.cuda.emulator.memory import array_words

KNOWN_NUMBERS = frozenset({"f32", "f64", "u32", "u64", "i64", "splat", "iota"})
"""What makes numbers, and lines that nobody writes to, of numbers."""


class Generator(ast.NodeTransformer):
    """Ops in which units meet become yields, and what Python does itself is written as such: calls
    are slow. Numbers that are known are made once: `numbers` are they, by names that stand for them.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.numbers: dict[str, Any] = {}
        self.stacks = {
            node.targets[0].id  # of lines
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign)
            and called(node.value) == "stack"
            and node.value.args[1].value
        }

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name, args = called(node), node.args
        if name in MEETINGS:
            return ast.Yield(ast.Tuple([ast.Constant(name), *args], ast.Load()))
        if name in OPERATORS:
            return bare(ast.BinOp(args[0], OPERATORS[name](), args[1]))
        if name == "load" and isinstance(args[0], ast.Name) and args[0].id in self.stacks:
            line = ast.Subscript(
                args[0], args[1], ast.Load()
            )  # a copy: later stores must not change it
            return ast.Call(ast.Attribute(line, "copy", ast.Load()), [], [])
        if name == "i32" and isinstance(args[0], ast.Constant) and type(args[0].value) is int:
            return ast.Constant(ARITHMETIC["i32"](args[0].value))
        if name in KNOWN_NUMBERS and all(map(self.is_known, args)):
            text = ast.unparse(node)
            self.numbers[text] = value = eval(text, dict(ARITHMETIC))
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            return ast.Name(text, ast.Load())
        return args[0] if name in ("multiple", "same_in_plane") else node

    def is_known(self, node: ast.AST) -> bool:
        """Whether a node is a number."""
        if isinstance(node, ast.UnaryOp):
            node = node.operand
        return isinstance(node, ast.Constant) or (
            isinstance(node, ast.Name) and node.id in {"INF", "NAN", *self.numbers}
        )

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return bare(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if called(node.value) != "store":
            return node
        to, at, value = node.value.args
        if not isinstance(to, ast.Name) or to.id not in self.stacks:
            return node
        return ast.Assign([ast.Subscript(to, at, ast.Store())], value)


def called(node: ast.AST) -> str:
    """The name of the function that an expression calls, if it does."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""


def bare(node: ast.BinOp) -> ast.BinOp:
    """An operator whose one side is a number made a line: NumPy does that by itself."""
    splats = called(node.left) == "splat", called(node.right) == "splat"
    if splats == (True, False):
        node.left = node.left.args[0]
    elif splats == (False, True):
        node.right = node.right.args[0]
    return node


@lru_cache(256)
def translated(text: str) -> tuple[Any, dict[str, Any]]:
    """The generated function's code, as a generator's, and its known numbers."""
    tree = ast.parse(text)
    kernel = next(n for n in tree.body if isinstance(n, ast.FunctionDef))
    kernel.body.append(ast.parse("if False: yield").body[0])  # for kernels in which nobody meets
    tree.body = [kernel]
    space: dict[str, Any] = {}
    generator = Generator(tree)
    exec(compile(ast.fix_missing_locations(generator.visit(tree)), "emulated", "exec"), space)
    return space[kernel.name].__code__, generator.numbers


def leaves_of(value: Any) -> list[Any]:
    """What an argument is made of: tuples and structs may have others in them; None is comptime."""
    if isinstance(value, Struct):
        value = tuple(value.__cubepy_values__.values())
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves_of(part)]
    return [] if value is None else [value]


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
        late: the chance that a copy lands, or a product reads, only when it is waited for;
            otherwise at once.
        seed: of the order in which units run and copies land.
        comptime: further arguments by name.

    Raises:
        RuntimeError: units wait for ever.
        AssertionError: an access outside an array, a copy that is not aligned.
    """
    code = compile_for(architecture, kernel, units, *args, mode="unchecked", **comptime)
    words: list[Any] = []
    for p, value in zip(kernel.parameters, args, strict=False):
        if p.kind != "comptime":
            for part in leaves_of(value):
                words += array_words(part) if isinstance(part, np.ndarray) else [part]
    x, y, z = (*(cubes if isinstance(cubes, tuple) else (cubes,)), 1, 1)[:3]
    run_cubes(code, words, (x, y, z), late, seed)
    return code


def run_cubes(
    code: Any, words: list[Any], cubes: tuple[int, int, int], late: float, seed: int
) -> None:
    """Run compiled code with the words of its parameters."""
    given = [
        ARITHMETIC.get(p.kind, lambda v: v)(w)
        for p, w in zip(code.text.parameters, words, strict=True)
    ]
    x, y, z = cubes
    together, *others = code.program.cluster
    assert others == [1, 1] and x % together == 0, "clusters are whole, and along x"
    chance, units = random.Random(seed), math.prod(code.program.units)
    body, numbers = translated(code.text.text)
    with np.errstate(all="ignore"):
        for *rest, first in np.ndindex(z, y, x // together):
            cluster = [
                Cube(
                    body,
                    numbers,
                    given,
                    (first * together + k, *rest[::-1]),
                    cubes,
                    units,
                    code.text.shared_bytes,
                    chance,
                    late,
                )
                for k in range(together)
            ]
            for cube in cluster:
                cube.cluster = cluster
            run_cluster(cluster, chance)
            cluster.clear()  # cubes know each other: nobody shall have to find out that they end


def run_cluster(cluster: list[Cube], chance: random.Random) -> None:
    """Run the cubes of a cluster to their ends, a piece of each in any order.

    Raises:
        RuntimeError: no unit can go on.
    """
    runs = {n: cube.run() for n, cube in enumerate(cluster)}
    met: set[int] = set()
    while runs:
        moved = False
        for n in chance.sample(list(runs), len(runs)):
            if n in met:
                continue
            said = next(runs[n], None)
            if said is None:
                del runs[n]
            elif said == "meets":
                met.add(n)
            moved |= said != "waits"
        if len(met) == len(cluster):
            met.clear()
        elif not moved:
            waiting, meetings = (
                [len(c.waiting) for c in cluster],
                [list(c.meetings) for c in cluster],
            )
            raise RuntimeError(f"units wait for ever: {waiting} at barriers, and at {meetings}")
