"""Running warp-specialised kernels without a GPU: every unit a generator, Hopper's engines played in Python.

The generated text is ordinary Python; here its ops are given another meaning. Units run in a random order, copies of
the copy engine land late and out of order, and results leave shared memory only when somebody waits for them, so that
a missing wait or a phase too many shows as a wrong result or a deadlock. What it knows: topology, arithmetic, shared
memory, named barriers, mbarriers, tensor maps of three axes with 128-byte swizzle, `wgmma` on shared memory, `mma`,
`load_matrix` and `store_matrix`. It is for small cases: a cube of 384 units takes about a second.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

PLANE, GROUP, ROW = 32, 128, 128
MEETINGS = {"sync_cube", "sync_group", "sync_plane", "wgmma", "mma", "load_matrix", "store_matrix", "barrier_wait"}
NAMES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16, "f16": "f2", "f32": "f4", "u64": "u8", "u32": "u4", "i32": "i4", "i8": "i1",
}  # fmt: skip
DTYPES = {name: np.dtype(of) for name, of in NAMES.items()}
PURE: dict[str, Callable[..., Any]] = {
    "i64": int, "i32": lambda x: (int(x) + (1 << 31)) % (1 << 32) - (1 << 31), "u32": lambda x: int(x) % (1 << 32),
    "f32": np.float32, "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "minnum": np.minimum, "maxnum": np.maximum,
    "xor": lambda a, b: a ^ b, "and_": lambda a, b: a & b, "neg": lambda a: -a, "fma": lambda a, b, c: a * b + c,
    "splat": lambda v, n: np.full(n, v), "extract": lambda v, k: v[k], "select": lambda c, a, b: a if c else b, "multiple": lambda v, n: v,
    "approximate_exp2": np.exp2, "approximate_log2": np.log2, "same_in_plane": lambda v: v,
    "bf16": lambda v: np.asarray(v).astype(DTYPES["bf16"]), "f16": lambda v: np.asarray(v).astype(DTYPES["f16"]),
    "pack": lambda v, dtype: np.asarray(v, np.float32).astype(DTYPES[dtype]).view(np.uint32),
    "unpack": lambda w, dtype: np.asarray(w, np.uint32).view(DTYPES[dtype]).astype(np.float32),
}  # fmt: skip
SILENT = ("set_registers", "barrier_fence", "fence_async", "wgmma_fence", "wgmma_commit", "wgmma_wait", "tma_prefetch")


def shuffle(a: Any, b: Any, order: str) -> np.ndarray:
    """Lanes of two lines, in the order of a text of numbers."""
    return np.concatenate([np.atleast_1d(a), np.atleast_1d(b)])[[int(x) for x in order.split()]]


class Meeting(ast.NodeTransformer):
    """Ops in which units meet become yields."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in MEETINGS:
            return ast.Yield(ast.Tuple([ast.Constant(node.func.id), *node.args], ast.Load()))
        return node


def translated(text: str) -> Any:
    """The generated function as a generator's code."""
    tree = ast.parse(text)
    tree.body = [s for s in tree.body if isinstance(s, ast.FunctionDef)]
    return compile(ast.fix_missing_locations(Meeting().visit(tree)), "emulated", "exec")


def swizzled(address: Any) -> Any:
    """Where a byte stands in memory that is swizzled by 128 bytes."""
    return address ^ ((address >> 3) & 0x70)


class Shared:
    """An array in a cube's shared memory."""

    def __init__(self, memory: np.ndarray, dtype: str, start: int) -> None:
        self.memory, self.dtype, self.start = memory, DTYPES[dtype], start

    def at(self, i: Any, n: int = 1) -> slice:
        """The bytes of n elements from i on."""
        first = self.start + int(i) * self.dtype.itemsize
        return slice(first, first + n * self.dtype.itemsize)


class Barrier:
    """An mbarrier: arrivals and bytes that its phase still waits for."""

    def __init__(self, count: int) -> None:
        self.count = self.pending = count
        self.bytes = self.phase = 0

    def arrive(self, units: int = 1, more: int = 0) -> None:
        """Arrivals, and bytes to wait for (or, below zero, that came)."""
        self.pending -= units
        self.bytes += more
        assert self.pending >= 0, "more arrivals than the barrier expects"
        if self.pending == 0 and self.bytes == 0:
            self.phase, self.pending = 1 - self.phase, self.count


class TensorMap:
    """An array (batch, rows, columns) and the box that one copy takes."""

    def __init__(self, array: np.ndarray, box: tuple[int, ...]) -> None:
        self.array, self.box = array, box

    def line(self, batch: int, row: int, column: int) -> np.ndarray:
        """One row of a box, zeros beyond the array."""
        out = np.zeros(self.box[2], self.array.dtype)
        if row < self.array.shape[1]:
            part = self.array[batch, row, column : column + self.box[2]]
            out[: len(part)] = part
        return out


class Cube:
    """One cube of a launch."""

    def __init__(
        self, code: Any, args: list[Any], position: int, cubes: int, units: int, chance: random.Random
    ) -> None:
        self.memory = np.full(240 << 10, 0xFF, np.uint8)
        self.units, self.chance, self.position, self.cubes = units, chance, position, cubes
        self.barriers: dict[int, Barrier] = {}
        self.copies: list[Callable[[], None]] = []
        self.stores: list[list[list[Callable[[], None]]]] = [[[]] for _ in range(units)]
        self.meetings: dict[Any, dict[int, list[Any]]] = {}
        self.answers: list[Any] = [None] * units
        self.programs = []
        for unit in range(units):
            names = self.names(unit)
            exec(code, names)
            self.programs.append(names["kernel"](*args))

    def names(self, unit: int) -> dict[str, Any]:
        """The ops as one unit sees them."""

        def stack(dtype: str, lanes: int, n: int) -> np.ndarray:
            return np.full((n, lanes) if lanes else n, np.nan if dtype == "f32" else -1, DTYPES[dtype])

        return {
            **PURE, **dict.fromkeys(SILENT, lambda *_: None), "shuffle": shuffle, "stack": stack,
            "load": self.load, "store": self.store, "load_line": self.load_line, "store_line": self.store_line,
            "load_line_part": self.load_part, "store_line_part": self.store_part,
            "shared_memory": lambda dtype, start: Shared(self.memory, dtype, start),
            "unit_position": lambda axis, n: unit if axis == 0 else 0, "lane_position": lambda: unit % PLANE,
            "cube_position": lambda axis: 0 if axis else self.position,
            "cube_count": lambda axis: 1 if axis else self.cubes,
            "barrier_init": self.barrier_init,
            "barrier_arrive": lambda p, i: self.barrier(p, i).arrive(),
            "barrier_expect": lambda p, i, n: self.barrier(p, i).arrive(1, n),
            "tma_load": self.tma_load,
            "tma_store": lambda *args: self.stores[unit][-1].append(lambda: self.tma_store(*args)),
            "tma_commit": lambda: self.stores[unit].append([]), "tma_wait": lambda n, _: self.tma_wait(unit, n),
        }  # fmt: skip

    # Memory

    @staticmethod
    def load(p: Any, i: Any) -> Any:
        return p[int(i)] if isinstance(p, np.ndarray) else p.memory[p.at(i)].view(p.dtype)[0]

    @staticmethod
    def store(p: Any, i: Any, value: Any) -> None:
        if isinstance(p, np.ndarray):
            p[int(i)] = value
        else:
            p.memory[p.at(i)] = np.array([value], p.dtype).view(np.uint8)

    @staticmethod
    def load_line(p: Any, i: Any, n: int, *_: Any) -> np.ndarray:
        if isinstance(p, np.ndarray):
            return p[int(i) : int(i) + n].copy()
        return p.memory[p.at(i, n)].view(p.dtype).copy()  # type: ignore[no-any-return]

    @staticmethod
    def store_line(p: Any, i: Any, value: Any, *_: Any) -> None:
        if isinstance(p, np.ndarray):
            p[int(i) : int(i) + len(value)] = value
        else:
            p.memory[p.at(i, len(value))] = np.asarray(value).astype(p.dtype).view(np.uint8)

    @staticmethod
    def load_part(p: np.ndarray, i: Any, n: int, valid: Any, *_: Any) -> np.ndarray:
        out, here = np.zeros(n, p.dtype), max(0, min(n, int(valid)))
        out[:here] = p[int(i) : int(i) + here]
        return out

    @staticmethod
    def store_part(p: np.ndarray, i: Any, value: Any, valid: Any, *_: Any) -> None:
        here = max(0, min(len(value), int(valid)))
        p[int(i) : int(i) + here] = np.asarray(value)[:here]

    # Barriers and copies

    def barrier_init(self, p: Shared, count: int, arrivals: int) -> None:
        for k in range(count):
            self.barriers[p.start + 8 * k] = Barrier(arrivals)

    def barrier(self, p: Shared, i: Any) -> Barrier:
        return self.barriers[p.start + 8 * int(i)]

    def tma_load(self, to: Shared, bar: Shared, source: TensorMap, at: Any, b: Any, *coords: Any) -> None:
        batch, row, column = map(int, coords)
        start, barrier = to.at(at).start, self.barrier(bar, b)

        def arrive() -> None:
            for r in range(source.box[1]):
                raw = source.line(batch, row + r, column).view(np.uint8)
                assert len(raw) == ROW
                for piece in range(0, ROW, 16):
                    place = swizzled(start + r * ROW + piece)
                    self.memory[place : place + 16] = raw[piece : piece + 16]
            barrier.arrive(0, -source.box[1] * ROW)

        self.copies.append(arrive)

    def tma_store(self, source: Shared, target: TensorMap, at: Any, *coords: Any) -> None:
        batch, row, column = map(int, coords)
        start, array = source.at(at).start, target.array
        n = max(0, min(target.box[2], array.shape[2] - column))
        for r in range(min(target.box[1], array.shape[1] - row)):
            pieces = [self.memory[swizzled(start + r * ROW + p) :][:16] for p in range(0, ROW, 16)]
            array[batch, row + r, column : column + n] = np.concatenate(pieces).view(array.dtype)[:n]

    def tma_wait(self, unit: int, pending: int) -> None:
        groups = self.stores[unit]
        while len(groups) - 1 > pending:  # the last one is not committed
            for store in groups.pop(0):
                store()

    # Matrix units

    def operand(self, p: Shared, at: int, rows: int, transposed: bool, lead: int, stride: int) -> np.ndarray:
        """What a descriptor names: (rows, 32 bytes of K)."""
        size = p.dtype.itemsize
        r, k = np.arange(rows)[:, None], np.arange(32 // size)[None]
        if transposed:
            place = r // 64 * lead * size + k // 8 * stride * size + k % 8 * ROW + r % 64 * size
        else:
            place = r // 8 * stride * size + r % 8 * ROW + k * size
        where = swizzled(p.at(at).start + place)
        return self.memory[where[..., None] + np.arange(size)].reshape(rows, -1).view(p.dtype).astype(np.float32)

    def wgmma(self, calls: dict[int, list[Any]]) -> None:
        first = calls[min(calls)]
        _, a, b, at_a, at_b, _, n, _, start, *layout, more_a, more_b = first
        flip_a, _, lead_a, stride_a, flip_b, _, lead_b, stride_b = layout
        left = self.operand(a, int(at_a) + int(more_a), 64, flip_a, lead_a, stride_a)
        right = self.operand(b, int(at_b) + int(more_b), n, flip_b, lead_b, stride_b)
        product = left @ right.T
        for unit, call in calls.items():
            assert [int(v) for v in call[3:6]] == [int(v) for v in first[3:6]]
            assert call[6:] == first[6:]
            row = unit % GROUP // PLANE * 16 + unit % PLANE // 4
            column = np.arange(n // 8) * 8 + unit % 4 * 2
            mine = np.stack([product[row + i, column + j] for i in (0, 8) for j in (0, 1)], 1).reshape(-1)
            acc = call[0]
            acc[start : start + n // 2] = mine + (acc[start : start + n // 2] if call[5] else 0)

    @staticmethod
    def mma(calls: dict[int, list[Any]]) -> dict[int, Any]:
        units, dtype = sorted(calls), DTYPES[calls[min(calls)][3]]
        a, b, c = np.zeros((16, 16), np.float32), np.zeros((8, 16), np.float32), np.zeros((16, 8), np.float32)
        for lane, unit in enumerate(units):
            g, t = lane // 4, lane % 4 * 2
            words_a, words_b, acc = (np.asarray(v) for v in calls[unit][:3])
            halves_a = words_a.astype(np.uint32).view(dtype).astype(np.float32)
            halves_b = words_b.astype(np.uint32).view(dtype).astype(np.float32)
            for w in range(4):
                a[g + w % 2 * 8, t + w // 2 * 8 : t + w // 2 * 8 + 2] = halves_a[2 * w : 2 * w + 2]
            for w in range(2):
                b[g, t + w * 8 : t + w * 8 + 2] = halves_b[2 * w : 2 * w + 2]
                c[g + w * 8, t : t + 2] = acc[2 * w : 2 * w + 2]
        c = c + a @ b.T
        rows = [(k // 4, k % 4 * 2) for k in range(PLANE)]
        return {
            u: np.concatenate([c[g, t : t + 2], c[g + 8, t : t + 2]]) for u, (g, t) in zip(units, rows, strict=True)
        }

    def matrix(self, op: str, calls: dict[int, list[Any]]) -> dict[int, Any]:
        """`load_matrix` and `store_matrix`: unit k gives the place of row k % 8 of tile k // 8."""
        units, stores = sorted(calls), op == "store_matrix"
        source, count = calls[units[0]][0], len(calls[units[0]][1]) if stores else calls[units[0]][2]
        out = {u: np.zeros(count, np.uint32) for u in units}
        for tile in range(count):
            for r in range(8):
                start = source.at(calls[units[tile * 8 + r]][2 if stores else 1]).start
                assert start % 16 == 0
                for t, unit in enumerate(units[r * 4 : r * 4 + 4]):
                    word = self.memory[start + 4 * t : start + 4 * t + 4]
                    if stores:
                        word[:] = np.array([calls[unit][1][tile]], np.uint32).view(np.uint8)
                    else:
                        out[unit][tile] = word.view(np.uint32)[0]
        return out

    # Time

    def meet(self, unit: int, op: str, args: list[Any]) -> list[int]:
        """A unit arrives where others must come too; gives those that go on."""
        key: Any = (op, unit // PLANE)
        size = PLANE
        if op == "sync_cube":
            key, size = op, self.units
        elif op == "wgmma":
            key, size = (op, unit // GROUP), GROUP
        elif op == "sync_group":
            key, size = (op, int(args[0])), args[1]
        here = self.meetings.setdefault(key, {})
        assert unit not in here
        here[unit] = args
        if len(here) < size:
            return []
        del self.meetings[key]
        if op == "wgmma":
            self.wgmma(here)
        elif op in ("mma", "load_matrix", "store_matrix"):
            for u, answer in (self.mma(here) if op == "mma" else self.matrix(op, here)).items():
                self.answers[u] = answer
        return list(here)

    def run(self) -> None:
        """Run all units to their end.

        Raises:
            RuntimeError: no unit can go on.
        """
        ready, alive = list(range(self.units)), self.units
        waiting: dict[int, tuple[Barrier, int]] = {}
        while alive:
            self.chance.shuffle(ready)
            going: list[int] = []
            moved = bool(ready)
            for unit in ready:
                answer, self.answers[unit] = self.answers[unit], None
                try:
                    op, *args = self.programs[unit].send(answer)
                except StopIteration:
                    alive -= 1
                    continue
                if op == "barrier_wait":
                    waiting[unit] = (self.barrier(args[0], args[1]), int(args[2]))
                else:
                    going += self.meet(unit, op, args)
            if self.copies and (not ready or self.chance.random() < 0.5):
                self.copies.pop(0 if self.chance.random() < 0.7 else self.chance.randrange(len(self.copies)))()
                moved = True
            for unit, (barrier, parity) in list(waiting.items()):
                if barrier.phase != parity:
                    del waiting[unit]
                    going.append(unit)
            ready = going
            if not moved and not ready:
                raise RuntimeError(f"{alive} units wait for ever: {len(waiting)} at barriers, {list(self.meetings)}")
        for unit in range(self.units):
            self.tma_wait(unit, -1)


def emulate(code: Any, values: dict[str, Any], cubes: int, units: int, seed: int = 0) -> None:
    """Run compiled code (`compile_for`) with arguments by the names of its parameters, cube after cube."""
    program, chance = translated(code.text.text), random.Random(seed)
    args = [values[p.name] for p in code.text.parameters]
    for position in range(cubes):
        Cube(program, args, position, cubes, units, chance).run()
