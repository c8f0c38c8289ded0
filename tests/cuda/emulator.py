"""Runs a kernel's generated text for a GPU on the host: a thread for each unit of a cube, and a meeting at everything
that a plane or a cube does together. Slow, and enough to test kernels with matrix units of a plane where there is no GPU.

Ops without a meaning here fail as unknown names. Asynchronous copies are done when they are waited for, or at once
(`early`): a kernel that waits too little, or reuses a stage too early, gives wrong results in one of the two.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

PLANE = 32
PATIENCE = 120  # seconds for a meeting, after which the kernel counts as stuck
NARROW = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
NAMES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "uint32": "u32", "int32": "i32", "bool": "bool_"}
f32 = np.float32
here = threading.local()


class Pointer(NamedTuple):
    """Memory from some element on."""

    memory: np.ndarray
    dtype: str


class Circle:
    """Where some units meet: each brings a value, one computes, each takes its own result."""

    def __init__(self, units: int) -> None:
        self.units = units
        self.meeting = threading.Barrier(units, timeout=PATIENCE)
        self.brought: list[Any] = [None] * units
        self.made: list[Any] = []

    def together(self, value: Any, compute: Callable[[list[Any]], list[Any]]) -> Any:
        """What `compute` makes of the values of all, for this unit."""
        at = here.unit % self.units
        self.brought[at] = value
        if self.meeting.wait() == 0:
            self.made = compute(list(self.brought))
        self.meeting.wait()
        mine = self.made[at]
        self.meeting.wait()
        return mine


class Cube:
    """What the units of a cube share."""

    def __init__(self, units: int, shared_bytes: int, early: bool) -> None:
        self.early = early
        self.shared = np.full(shared_bytes // 8 + 2, 0x7FC07FC07FC07FC0, np.uint64).view(np.uint8)  # NaN
        self.whole = Circle(units)
        self.planes = [Circle(PLANE) for _ in range(units // PLANE)]
        self.groups = [Circle(4 * PLANE) for _ in range(units // (4 * PLANE))]
        self.lock = threading.Lock()
        self.named: dict[int, threading.Barrier] = {}
        self.counted: dict[int, Any] = {}
        self.broken = False

    def pointer(self, dtype: str, at: int) -> Pointer:
        """Shared memory from a byte on."""
        kind = np.dtype({"bf16": np.uint16, "f16": np.uint16, "f32": f32, "u64": np.uint64}.get(dtype, np.uint32))
        end = at + (len(self.shared) - at) // 8 * 8
        return Pointer(self.shared[at:end].view(kind), dtype)

    def leave(self) -> None:
        """Let nobody wait any longer."""
        self.broken = True
        for circle in (self.whole, *self.planes, *self.groups):
            circle.meeting.abort()
        for barrier in self.named.values():
            barrier.abort()


def together(value: Any, compute: Callable[[list[Any]], list[Any]]) -> Any:
    """What `compute` makes of the values of the plane, for this unit."""
    return here.cube.planes[here.unit // PLANE].together(value, compute)


def unpack(words: Any, dtype: str) -> np.ndarray:
    return np.asarray(words, np.uint32).view(NARROW[dtype]).astype(f32)


def products(fragments: list[Any], dtype: str) -> list[np.ndarray]:
    """c + a @ b from the fragments of a plane: unit 4 r + j holds rows r and r + 8, columns 2 j and 2 j + 1."""
    a, b, c = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
    for lane, (of_a, of_b, of_c) in enumerate(fragments):
        r, j = lane // 4, lane % 4 * 2
        x, y = unpack(of_a, dtype).reshape(4, 2), unpack(of_b, dtype).reshape(2, 2)
        a[r, j : j + 2], a[r + 8, j : j + 2], a[r, j + 8 : j + 10], a[r + 8, j + 8 : j + 10] = x
        b[j : j + 2, r], b[j + 8 : j + 10, r] = y
        c[r, j : j + 2], c[r + 8, j : j + 2] = of_c[:2], of_c[2:]
    d = (c + a @ b).astype(f32)
    return [np.concatenate([d[n // 4 + 8 * k, n % 4 * 2 : n % 4 * 2 + 2] for k in range(2)]) for n in range(PLANE)]


def halves(p: Pointer, i: int) -> np.ndarray:
    """16 bytes of shared memory as 16-bit elements."""
    return p.memory[i : i + 16 // p.memory.itemsize].view(np.uint16)


def matrices(places: list[tuple[Pointer, int]], count: int, transpose: bool) -> list[np.ndarray]:
    """8x8 tiles of 16-bit elements; unit k gives the place of row k % 8 of tile k // 8."""
    out = np.zeros((PLANE, count), np.uint32)
    for tile in range(count):
        rows = [halves(p, i) for p, i in places[8 * tile : 8 * tile + 8]]
        square = np.stack(rows).T if transpose else np.stack(rows)
        out[:, tile] = np.ascontiguousarray(square).view(np.uint32).reshape(-1)
    return list(out)


def load(p: Any, i: int) -> Any:
    if isinstance(p, list):
        return p[i]
    assert 0 <= i < len(p.memory), "a read outside the array"
    x = p.memory[i]
    return bool(x) if p.dtype == "bool_" else int(x) if p.memory.dtype.kind in "iu" else f32(x)


def store(p: Any, i: int, v: Any) -> None:
    if isinstance(p, list):
        p[i] = v
    else:
        assert 0 <= i < len(p.memory), "a write outside the array"
        p.memory[i] = v


def load_line_part(p: Pointer, i: int, lanes: int, n: int) -> np.ndarray:
    out = np.zeros(lanes, f32)
    n = max(0, min(lanes, n))
    out[:n] = p.memory[i : i + n]
    return out


def store_line(p: Pointer, i: int, v: np.ndarray, n: int = 64) -> None:
    n = max(0, min(len(v), n))
    p.memory[i : i + n] = v[:n].astype(p.memory.dtype)


def copy_async_if(to: Pointer, source: Pointer, i: int, j: int, valid: bool, nbytes: int) -> None:
    n = nbytes // to.memory.itemsize
    assert i % n == 0 and i + n <= len(to.memory), "a copy to the wrong place"
    assert not valid or (j % n == 0 and 0 <= j and j + n <= len(source.memory)), "a copy from the wrong place"

    def copy() -> None:
        to.memory[i : i + n] = source.memory[j : j + n] if valid else 0

    if here.cube.early:
        copy()
    else:
        here.copies[-1].append(copy)


def copy_async_wait(pending: int) -> None:
    while len(here.copies) - 1 > pending:
        for copy in here.copies.pop(0):
            copy()


def fma(a: Any, b: Any, c: Any) -> Any:
    return (np.asarray(a, np.float64) * b + c).astype(f32)[()]


def shuffle(a: Any, b: Any, places: str) -> np.ndarray:
    return np.concatenate([np.atleast_1d(a), np.atleast_1d(b)])[[int(k) for k in places.split()]]


def rounded(dtype: str) -> Callable[[Any], Any]:
    return lambda x: np.asarray(x, f32).astype(NARROW[dtype]).astype(f32)


OPS: dict[str, Any] = {
    "f32": lambda x: x.astype(f32) if isinstance(x, np.ndarray) else f32(x),
    "bf16": rounded("bf16"), "f16": rounded("f16"), "i32": int, "i64": int, "u32": lambda x: int(x) & 0xFFFFFFFF,
    "INF": f32(np.inf), "NAN": f32(np.nan),
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b, "shr": lambda a, b: a >> b, "and_": lambda a, b: a & b, "xor": lambda a, b: a ^ b, "neg": lambda a: -a, "fma": fma,
    "maxnum": lambda a, b: max(a, b) if isinstance(a, int) else np.fmax(a, b),
    "minnum": lambda a, b: min(a, b) if isinstance(a, int) else np.fmin(a, b),
    "select": lambda c, a, b: np.where(c, a, b) if isinstance(c, np.ndarray) else (a if c else b),
    "exp2": np.exp2, "approximate_exp2": np.exp2, "log2": np.log2, "approximate_log2": np.log2,
    "splat": lambda x, n: np.full(n, x), "extract": lambda v, k: v[k], "shuffle": shuffle, "unpack": unpack,
    "pack": lambda v, dtype: np.asarray(v, f32).astype(NARROW[dtype]).view(np.uint32),
    "stack": lambda dtype, lanes, n: [None] * n, "multiple": lambda v, step: v, "same_in_plane": lambda v: v,
    "load": load, "store": store, "load_line": lambda p, i, n: p.memory[i : i + n].astype(f32), "load_line_part": load_line_part, "store_line": store_line,
    "store_line_part": store_line, "copy_async_if": copy_async_if,
    "copy_async_commit": lambda: here.copies.append([]), "copy_async_wait": copy_async_wait, "lane_position": lambda: here.unit % PLANE,
    "unit_position": lambda axis, units: here.unit if axis == 0 else 0,
    "plane_shuffle_xor": lambda v, mask: together(v, lambda of: [of[k ^ mask] for k in range(PLANE)]),
    "line_sum": lambda v: v.sum(dtype=v.dtype), "plane_sum": lambda v: together(v, lambda of: [f32(sum(of))] * PLANE),
    "mma": lambda a, b, c, dtype: together((a, b, c), lambda of: products(of, dtype)),
    "load_matrix": lambda p, i, count, flip: together((p, i), lambda of: matrices(of, count, flip)),
}  # fmt: skip


def run(
    code: Any, cubes: int, arguments: dict[str, Any], more: dict[str, Any] | None = None, early: bool = False
) -> None:
    """Run compiled code (`compile_for`) cube by cube; `arguments` by the kernel's names, None where it has none.

    `more` are further ops.

    An array that repeats an axis (`np.broadcast_to`) must have a contiguous base.
    """
    text, units, more = code.text.text, code.units[0], more or {}
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray):
            base = value if value.base is None or 0 not in value.strides else value.base
            values[name] = Pointer(base.reshape(-1).view(value.dtype), NAMES[value.dtype.name])
            for d in range(value.ndim):
                values[f"{name}_n{d}"], values[f"{name}_s{d}"] = value.shape[d], value.strides[d] // value.itemsize
        elif value is not None:
            values[name] = f32(value) if isinstance(value, float) else value
    inputs = [values[p.name] for p in code.text.parameters]
    body = compile(re.sub(r"(?s)^.*?(?=def kernel\()", "", text), "kernel", "exec")
    for number in range(cubes):
        cube = Cube(units, code.text.shared_bytes, early)
        space = {
            **OPS, **more, "sync_cube": cube.whole.meeting.wait, "shared_memory": cube.pointer,
            "cube_count": lambda axis: cubes if axis == 0 else 1,
            "cube_position": lambda axis, c=number: c if axis == 0 else 0,
        }  # fmt: skip
        exec(body, space)
        _run_cube(cube, space["kernel"], inputs, units)


def _run_cube(cube: Cube, kernel: Any, inputs: list[Any], units: int) -> None:
    failures: list[Exception] = []

    def unit(number: int) -> None:
        here.unit, here.cube, here.copies = number, cube, [[]]
        try:
            with np.errstate(all="ignore"):
                kernel(*inputs)
        except Exception as error:
            if not isinstance(error, threading.BrokenBarrierError):
                failures.append(error)
            cube.leave()

    threads = [threading.Thread(target=unit, args=(n,)) for n in range(units)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
    assert not cube.broken, "units waited for others that did not come"
