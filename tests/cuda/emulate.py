"""Running the text that the CUDA backend generates for kernels of planes, unit by unit, in plain Python.

Every unit is a generator that stops where planes or cubes meet. Copies that run beside the units' own work are made as
early or as late as they may be, and units take their turns in random order: what waits too little fails here. It is
slow (a unit takes about a microsecond for an operation of a GPU's nanosecond) and needs no GPU.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

PLANE = 32
MEETINGS = ("sync_cube", "sync_plane", "mma", "plane_shuffle_xor", "plane_max", "plane_min")
DTYPES = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32),
    "i32": np.dtype(np.int32), "u32": np.dtype(np.uint32), "i8": np.dtype(np.int8), "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
}  # fmt: skip


class Meet(ast.NodeTransformer):
    """Makes every meeting a yield."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in MEETINGS:
            parts: list[ast.expr] = [ast.Constant(node.func.id), *node.args]
            return ast.Yield(ast.Tuple(parts, ast.Load()))
        return node


class Place:
    """Memory with a type: bytes of shared memory, or an array."""

    def __init__(self, data: np.ndarray, dtype: np.dtype, start: int = 0) -> None:
        self.data, self.dtype, self.start = data, dtype, start

    def part(self, i: int, count: int) -> np.ndarray:
        at = self.start + int(i) * self.dtype.itemsize
        assert 0 <= at and at + count * self.dtype.itemsize <= self.data.size, (i, count, self.data.size)
        return self.data[at : at + count * self.dtype.itemsize].view(self.dtype)


def carried(values: np.ndarray) -> np.ndarray:
    """16-bit floats as f32."""
    return values.astype(np.float32) if values.dtype.itemsize == 2 else values.copy()


class Cube:
    """One cube of a launch."""

    def __init__(self, code: Any, args: Sequence[Any], position: tuple[int, ...], cubes: tuple[int, ...], units: int,
                 rng: random.Random, late: bool) -> None:  # fmt: skip
        self.shared = np.full(256 * 1024, 0xFF, np.uint8)
        self.late, self.units, self.rng = late, units, rng
        self.running: list[Iterator[Any]] = []
        for unit in range(units):
            space = {**SHARED_OPS, **self.own(unit, position, cubes)}
            exec(code, space)
            self.running.append(space["kernel"](*args))

    def own(self, unit: int, position: tuple[int, ...], cubes: tuple[int, ...]) -> dict[str, Any]:
        """Ops of one unit."""
        groups: list[list[Any]] = [[]]

        def copy_async(to: Place, source: Place, i: Any, j: Any, nbytes: int) -> None:
            count = nbytes // to.dtype.itemsize
            assert (to.start + int(i) * to.dtype.itemsize) % nbytes == 0, "the target of a copy is not aligned"
            assert int(j) * source.dtype.itemsize % nbytes == 0, "the source of a copy is not aligned"

            def copy() -> None:
                to.part(i, count)[:] = source.part(j, count).view(to.dtype)

            groups[-1].append(copy) if self.late else copy()

        def wait(pending: int) -> None:
            while len(groups) - 1 > pending:
                for copy in groups.pop(0):
                    copy()

        return {
            "unit_position": lambda axis, n: unit if axis == 0 else 0,
            "cube_position": lambda axis: position[axis], "cube_count": lambda axis: cubes[axis],
            "lane_position": lambda: unit % PLANE, "shared_memory": lambda d, at: Place(self.shared, DTYPES[d], at),
            "copy_async": copy_async, "copy_async_commit": lambda: groups.append([]), "copy_async_wait": wait,
        }  # fmt: skip

    def run(self) -> None:
        """Let units take turns until all are done."""
        answers: list[Any] = [None] * self.units
        alive = list(range(self.units))
        waiting: dict[tuple[str, int], dict[int, list[Any]]] = {}
        ready = list(alive)
        while ready:
            self.rng.shuffle(ready)
            again = []
            for unit in ready:
                try:
                    op, *args = self.running[unit].send(answers[unit])
                except StopIteration:
                    alive.remove(unit)
                    continue
                key = (op, 0 if op == "sync_cube" else unit // PLANE)
                group = waiting.setdefault(key, {})
                group[unit] = args
                if len(group) == (self.units if op == "sync_cube" else PLANE):
                    for member, answer in met(op, waiting.pop(key)).items():
                        answers[member] = answer
                        again.append(member)
            ready = again
        assert not alive, f"units {alive[:8]} wait for ever: {[(k, len(v)) for k, v in waiting.items()]}"


def met(op: str, group: dict[int, list[Any]]) -> dict[int, Any]:
    """What a meeting gives each of its units."""
    units = sorted(group)
    if op.startswith("sync"):
        return dict.fromkeys(units)
    if op == "plane_shuffle_xor":
        return {u: group[u // PLANE * PLANE + (u % PLANE ^ int(group[u][1]))][0] for u in units}
    if op in ("plane_max", "plane_min"):
        values = [group[u][0] for u in units]
        return dict.fromkeys(units, max(values) if op == "plane_max" else min(values))
    return matrix_product(units, group)


def matrix_product(units: list[int], group: dict[int, list[Any]]) -> dict[int, np.ndarray]:
    """`mma.sync` m16n8 on the fragments of a plane, by the layout that PTX describes."""
    dtype = DTYPES[group[units[0]][3]]
    per = 4 // dtype.itemsize  # neighbours in a word
    wide = np.int64 if dtype.kind in "iu" else np.float64
    a, b = np.zeros((16, 8 * per), wide), np.zeros((8 * per, 8), wide)
    for lane, u in enumerate(units):
        g, t = lane // 4, lane % 4
        words = group[u][0].view(dtype).astype(wide).reshape(4, per)
        for n in range(4):
            k = t * per + n // 2 * 4 * per
            a[g + n % 2 * 8, k : k + per] = words[n]
        words = group[u][1].view(dtype).astype(wide).reshape(2, per)
        for n in range(2):
            k = t * per + n * 4 * per
            b[k : k + per, g] = words[n]
    product = a @ b
    out = {}
    for lane, u in enumerate(units):
        g, t = lane // 4, lane % 4
        c = group[u][2]
        mine = [product[g, 2 * t], product[g, 2 * t + 1], product[g + 8, 2 * t], product[g + 8, 2 * t + 1]]
        out[u] = (c.astype(wide) + mine).astype(c.dtype)
    return out


def u32(value: Any) -> Any:
    """A number or line as u32."""
    return value.astype(np.uint32) if isinstance(value, np.ndarray) else np.uint32(int(value) & 0xFFFFFFFF)


def converted(dtype: Any) -> Any:
    """A conversion of numbers or lines."""
    return lambda value: value.astype(dtype) if isinstance(value, np.ndarray) else dtype(value)


def i32(value: Any) -> Any:
    """A number or line as i32."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int32)
    return (int(value) + (1 << 31)) % (1 << 32) - (1 << 31)


def bitcast(value: Any, dtype: str) -> Any:
    """The same bits."""
    if isinstance(value, np.ndarray):
        return value.view(DTYPES[dtype])
    number = np.asarray(value, np.int32 if isinstance(value, int) else None)
    return number.view(DTYPES[dtype])[()]


def load_line(place: Any, i: Any, lanes: int) -> np.ndarray:
    """Neighbours as a line."""
    if isinstance(place, list):
        return np.asarray(place[int(i) : int(i) + lanes])
    return carried(place.part(i, lanes))


def load_line_part(place: Any, i: Any, lanes: int, valid: Any) -> np.ndarray:
    """The first neighbours as a line, zeros after them."""
    out = np.zeros(lanes, carried(place.part(0, 1)).dtype)
    n = max(0, min(lanes, int(valid)))
    if n:
        out[:n] = carried(place.part(i, n))
    return out


def store_line(place: Place, i: Any, line: np.ndarray) -> None:
    """A line to neighbours."""
    place.part(i, len(line))[:] = line.astype(place.dtype)


def store_line_part(place: Place, i: Any, line: np.ndarray, valid: Any) -> None:
    """The first lanes to neighbours."""
    n = max(0, min(len(line), int(valid)))
    if n:
        store_line(place, i, line[:n])


def load(place: Any, i: Any) -> Any:
    """One element."""
    if isinstance(place, list):
        return place[int(i)]
    value = carried(place.part(i, 1))[0]
    return int(value) if value.dtype == np.int32 else value


def store(place: Any, i: Any, value: Any) -> None:
    """One element."""
    if isinstance(place, list):
        place[int(i)] = value
    else:
        place.part(i, 1)[0] = value


def shuffle(a: Any, b: Any, lanes: str) -> np.ndarray:
    """Lanes of two lines."""
    return np.concatenate([a, b])[[int(k) for k in lanes.split()]]


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    wide = np.asarray(a, np.float64) * b + c
    return wide.astype(np.float32) if wide.ndim else np.float32(wide)


def line_of(v: Any, lanes: int) -> np.ndarray:
    """A number in every lane."""
    return np.full(lanes, v, np.int32 if isinstance(v, int) and not isinstance(v, bool) else None)


def rounded(dtype: str) -> Any:
    """Rounding to 16 bits, carried as f32."""
    return lambda value: np.asarray(value, np.float32).astype(DTYPES[dtype]).astype(np.float32)[()]


SHARED_OPS: dict[str, Any] = {
    "f16": rounded("f16"), "bf16": rounded("bf16"),
    "i32": i32, "i64": int, "u32": u32, "f32": converted(np.float32), "bitcast": bitcast, "load": load, "store": store,
    "load_line": load_line, "load_line_part": load_line_part, "store_line": store_line, "fma": fma,
    "store_line_part": store_line_part, "shuffle": shuffle, "splat": line_of, "stack": lambda d, lanes, n: [None] * n,
    "extract": lambda v, k: int(v[k]) if v.dtype == np.int32 else v[k], "multiple": lambda v, k: v,
    "same_in_plane": lambda v: v, "range": range, "INF": np.inf, "NAN": np.nan,
    "pack": lambda v, d: v.astype(DTYPES[d]).view(np.uint32),
    "unpack": lambda v, d: np.atleast_1d(v).view(DTYPES[d]).astype(np.float32),
    "line_sum": lambda v: v.sum(dtype=v.dtype), "line_max": np.max, "line_min": np.min, "rint": np.rint,
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "neg": lambda a: -a,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "and_": lambda a, b: a & b, "or_": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "shl": lambda a, b: a << b, "shr": lambda a, b: a >> b,
    "minnum": lambda a, b: np.minimum(a, b) if isinstance(a, np.ndarray) else min(a, b),
    "maxnum": lambda a, b: np.maximum(a, b) if isinstance(a, np.ndarray) else max(a, b),
    "select": lambda m, a, b: np.where(m, a, b) if isinstance(m, np.ndarray) else a if m else b,
}  # fmt: skip


def launch(code: Any, cubes: tuple[int, ...], *args: Any, late: bool = True, seed: int = 0) -> None:
    """Run a kernel on NumPy arrays.

    Args:
        code: what `compile_for` gives; its specialisation must fit the arguments.
        cubes: along up to three axes.
        args: the kernel's runtime arguments, without None and comptime ones.
        late: whether copies are made when they are waited for, or at once.
        seed: of the order in which units run.
    """
    text = code.text.text
    tree = ast.parse(text)
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    # A kernel without a meeting is a generator too.
    tree.body[0].body.append(ast.parse("if False: yield").body[0])  # type: ignore[attr-defined]
    compiled = compile(ast.fix_missing_locations(Meet().visit(tree)), code.symbol, "exec")
    words: list[Any] = []
    for value in args:
        if isinstance(value, np.ndarray):
            assert value.flags.c_contiguous
            words += [Place(value.reshape(-1).view(np.uint8), value.dtype)]
            words += [*value.shape, *(s // value.itemsize for s in value.strides)]
        else:
            words.append(SHARED_OPS.get(code.text.parameters[len(words)].kind, float)(value))
    x, y, z = (*cubes, 1, 1)[:3]
    rng = random.Random(seed)
    units = int(np.prod(code.program.units))
    with np.errstate(all="ignore"):
        for position in np.ndindex(z, y, x):
            Cube(compiled, words, position[::-1], (x, y, z), units, rng, late).run()
