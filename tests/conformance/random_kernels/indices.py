"""Random kernels whose work is indices: guards, loops over ranges that only run time knows, indices
that lie outside, arrays of sizes that do not go together.

A unit writes places of its own, so what a compiled backend does must be what the python backend
does, which looks at every access, to the bit. Arrays lie in the midst of other memory.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

import cubepy as cb

HEAD = """import cubepy as cb


@cb.kernel
def random_kernel(x: cb.Array, y: cb.Array, at: cb.Array, small: cb.Array, found: cb.Array, out: cb.Array, n, m):
"""
LENGTHS = (0, 1, 2, 3, 5, 9, 33)
MARGIN = 100
POSITIONS = {
    1: ("i = cb.ABSOLUTE_POS", "i = cb.ABSOLUTE_POS_X", "i = cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS"),
    2: ("i, j = cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X",),
    3: ("h, i, j = cb.ABSOLUTE_POS_Z, cb.ABSOLUTE_POS_Y, cb.ABSOLUTE_POS_X",),
}  # fmt: skip


class Indices:
    """Writes one kernel of so many axes."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.axes = rng.choice((1, 1, 2, 2, 3))
        self.place = {1: ["i"], 2: ["i", "j"], 3: ["h", "i", "j"]}[self.axes]
        self.names = [*self.place, "n", "m"]
        self.serial = 0

    def one(self, *choices: str) -> str:
        return self.rng.choice(choices)

    def size(self) -> str:
        return self.one("x.size", "x.shape[0]", "y.shape[0]", "y.shape[1]", "at.size", "found.size",
                        *(f"out.shape[{d}]" for d in range(self.axes)))  # fmt: skip

    def whole(self, depth: int = 2) -> str:
        """A small integer."""
        if depth == 0 or self.rng.random() < 0.3:
            return self.one(
                *self.names, *self.names, *self.place, str(self.rng.randint(-3, 9)), self.size()
            )
        a, b = self.whole(depth - 1), self.whole(depth - 1)
        c = str(self.rng.randint(1, 4))
        return self.one(
            f"({a} + {c})", f"({a} - {c})", f"({a} + {b})", f"({a} - {b})", f"({c} * {a})",
            f"({a} // {c})", f"({a} % {self.one(c, b)})", f"min({a}, {b})", f"max({a}, {b})",
            f"cb.clamp({a}, 0, {b})", f"at[{a}]", f"cb.i32(small[{a}])", f"({a} & 7)", f"(cb.i32(small[{a}]) >> 2)",
        )  # fmt: skip

    def condition(self, depth: int = 2) -> str:
        if depth and self.rng.random() < 0.4:
            a, b = self.condition(depth - 1), self.condition(depth - 1)
            return self.one(f"({a} and {b})", f"({a} or {b})", f"(not {a})")
        a, b = self.whole(1), self.one(self.whole(1), self.size(), "0")
        if self.rng.random() < 0.2:  # both comparisons are made, whatever the first one says
            return f"(0 {self.one('<', '<=')} {a} < {self.one(self.size(), *self.names)})"
        return f"({a} {self.one('<', '<=', '>', '>=', '==', '!=')} {b})"

    def guard(self) -> str:
        """The condition under which most units work."""
        tests = []
        for axis, name in enumerate(self.place):
            end = f"out.shape[{axis}]"
            tests.append(self.one(
                f"{name} < {end}", f"{name} < {end}", f"0 < {name} < {end} - 1", f"{name} != 0 and {name} < {end}",
                f"{name} < {end} and {name} < x.size", f"{name} >= 1 and not {name} >= {end} - 1", f"{name} < {end} and {name} < n",
                f"{name} == 0 and {name} < {end}",
            ))  # fmt: skip
        if self.rng.random() < 0.3:
            tests.append(self.condition(1))
        self.rng.shuffle(tests)
        return " and ".join(tests)

    def read(self) -> str:
        """An element, which may lie outside."""
        a, b = self.whole(self.rng.randint(0, 2)), self.whole(1)
        return self.one(
            f"x[{a}]", f"x[{a}]", f"y[{a}, {b}]", f"x[at[{a}]]", f"at[{a}]", f"cb.i32(small[{a}])"
        )

    def block(self, indent: str, depth: int, jumps: bool = False) -> list[str]:
        lines, kept = [], list(self.names)
        for _ in range(self.rng.randint(1, 3)):
            lines += self.statement(indent, depth)
        if jumps and self.rng.random() < 0.3:
            lines += [
                f"{indent}if {self.condition(1)}:",
                f"{indent}    {self.one('break', 'continue')}",
            ]
        self.names = kept
        return lines

    def statement(self, indent: str, depth: int) -> list[str]:
        kind = self.rng.choice(
            ["read", "read", "name", "again", "atomic"]
            + ["if", "for", "for", "while"] * (depth > 0)
        )
        if kind == "read":
            return [f"{indent}total {self.one('+=', '-=', '= 3 * total +')} {self.read()}"]
        if kind == "atomic":
            text = f"cb.atomic_{self.one('add', 'max', 'xor')}(found, {self.whole(1)}, {self.whole(1)})"
            return [f"{indent}{text}" if text.startswith(f"{self.atomic}(") else f"{indent}pass"]
        if kind == "again":
            own = [v for v in self.names if v[0] == "v"]
            if own:
                name = self.rng.choice(own)
                return [f"{indent}{name} = {self.whole(1)}"]
        if kind in ("name", "again"):
            self.serial += 1
            line = f"{indent}v{self.serial} = {self.whole()}"
            self.names.append(f"v{self.serial}")
            return [line]
        if kind == "if":
            lines = [f"{indent}if {self.condition()}:", *self.block(indent + "    ", depth - 1)]
            return lines + (
                [f"{indent}else:", *self.block(indent + "    ", depth - 1)]
                if self.rng.random() < 0.4
                else []
            )
        self.serial += 1
        name = f"k{self.serial}"
        if kind == "while":
            lines = [f"{indent}w{self.serial} = {self.whole(1)}", f"{indent}c{self.serial} = 0",
                     f"{indent}while w{self.serial} < {self.whole(1)} and c{self.serial} < 9:",
                     f"{indent}    c{self.serial} += 1"]  # fmt: skip
            name, step = (
                f"w{self.serial}",
                [f"{indent}    w{self.serial} += {self.rng.randint(1, 3)}"],
            )
        else:
            ends = f"{self.whole(1)}, min({self.whole(1)}, {self.rng.randint(5, 40)})"
            if self.rng.random() < 0.15:
                ends = (
                    f"min({self.whole(1)}, 40), max({self.whole(1)}, -5), -{self.rng.randint(1, 2)}"
                )
            elif self.rng.random() < 0.2:
                ends += f", {self.rng.randint(1, 3)}"
            lines, step = [f"{indent}for {name} in range({ends}):"], []
        self.names += [name] * 3
        body = self.block(indent + "    ", depth - 1, jumps=not step)
        self.names = [v for v in self.names if v != name]
        return lines + body + step

    def text(self) -> str:
        """The source of the kernel."""
        self.atomic = self.one("cb.atomic_add", "cb.atomic_max", "cb.atomic_xor")
        form = self.rng.random()
        self.guarded = form < 0.7
        if self.axes == 1 and form > 0.8:
            return HEAD + "\n".join(self.striding() if form > 0.9 else self.together()) + "\n"
        lines = [f"    {self.one(*POSITIONS[self.axes])}"]
        place = ", ".join(self.place)
        store = f"out[{place}] = total"
        if self.axes == 1 and self.rng.random() < 0.4:
            index = self.one("2 * i", "2 * i + 1", "i + 3", "n - i", "i - 1", "3 * i - n")
            store = f"out[{index}] = total"
        deep = "        "
        if form < 0.45:
            lines += [f"    if {self.guard()}:", f"{deep}total = cb.i32(0)"]
        elif form < 0.6:
            lines += [f"    if not ({self.guard()}):", f"{deep}return", "    total = cb.i32(0)"]
            deep = "    "
        elif form < 0.7:
            lines += ["    total = x[i]", f"    if {self.guard()}:"]
        else:
            lines += ["    total = cb.i32(0)"]
            deep = "    "
        return HEAD + "\n".join([*lines, *self.block(deep, 2), f"{deep}{store}"]) + "\n"

    def striding(self) -> list[str]:
        """A kernel whose units go on by as many places as there are units."""
        stride = self.one("cb.CUBE_COUNT * cb.CUBE_DIM", "cb.CUBE_DIM * cb.CUBE_COUNT_X", "stride")
        start = self.one("cb.ABSOLUTE_POS", "first", "cb.CUBE_POS * cb.CUBE_DIM + cb.UNIT_POS")
        end = self.one("out.size", "out.shape[0]", "min(out.size, n)", "out.size - 1", "last")
        lines = ["    stride = cb.CUBE_COUNT * cb.CUBE_DIM", "    first = cb.ABSOLUTE_POS",
                 "    last = max(out.size - m, 0)", "    kept = cb.i32(0)", "    count = cb.i32(0)"]  # fmt: skip
        if self.rng.random() < 0.4:
            lines += [
                f"    for q in range(cb.UNIT_POS, x.size, {self.one('cb.CUBE_DIM', '64')}):",
                "        count += x[q]",
            ]
        loop = [f"    for i in range({start}, {end}, {stride}):"]
        step = []
        if self.rng.random() < 0.4:
            loop = [f"    i = {start}", f"    while i < {end}:"]
            step = [f"        i += {stride}"]
        carried = self.one("kept += total", "pass", "kept = max(kept, total)")
        jump = [f"        if {self.condition(1)}:", f"            {self.one('break', 'return')}"]
        body = [
            *self.block("        ", 1),
            f"        {carried}",
            "        out[i] = total + kept + count",
        ]
        body += jump if self.rng.random() < 0.15 else []
        lines += [*loop, "        total = cb.i32(1)", *body, *step]
        return lines + [f"    {self.atomic}(found, 0, kept)"] * (self.rng.random() < 0.4)

    def together(self) -> list[str]:
        """A kernel whose units meet at barriers."""
        lines = ["    s = cb.shared(cb.CUBE_DIM, cb.i32)", "    t = cb.UNIT_POS", "    i = cb.ABSOLUTE_POS",
                 f"    s[t] = {self.read()}", "    total = cb.i32(0)", "    cb.sync_cube()"]  # fmt: skip
        step = self.one("d *= 2", "d += 1")
        guard = self.one("t >= d", "t < d", "t + d < s.size", "0 < t - d < m", "t != 0")
        other = self.one("s[t - d]", "s[t + d]", "s[t - d] - s[t]", "s[d - 1]", "s[n]")
        loop = ["    d = 1", "    while d < min(cb.CUBE_DIM, 20):", "        v = s[t]", f"        if {guard}:",
                f"            v += {other}", "        cb.sync_cube()", "        s[t] = v",
                "        cb.sync_cube()", f"        {step}"]  # fmt: skip
        self.names += ["t"]
        return [
            *lines,
            *loop,
            "    if i < out.size:",
            *self.block("        ", 1),
            "        out[i] = total + s[t]",
        ]


def indices_case(seed: int) -> tuple[str, int, bool]:
    """The source of a kernel, its axes, and whether units without a place do nothing."""
    writer = Indices(random.Random(seed))
    return writer.text(), writer.axes, writer.guarded


def grid_of(rng: np.random.Generator, shape: tuple[int, ...], guarded: bool) -> Any:
    """A grid over places, with more or fewer units than there are."""
    if guarded and rng.random() < 0.5:  # how many units `cb.over` has depends on the device
        return cb.over(shape)
    units = [int(rng.choice([1, 2, 4, 8])), *(int(rng.choice([1, 1, 3])) for _ in shape[1:])]
    cubes = [int(rng.integers(1, 2 + n // u)) for n, u in zip(reversed(shape), units, strict=True)]
    return tuple(cubes), tuple(units)


def compared(kernel: Any, axes: int, guarded: bool, seed: int, device: str, rounds: int = 6) -> str:
    """Launch a kernel with arrays of several sizes on a backend and on the python backend; how they
    differ.
    """
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        shape = tuple(rng.choice(LENGTHS[: 7 if axes == 1 else 6], axes).tolist())
        sizes = [(int(rng.choice(LENGTHS)),), tuple(rng.choice(LENGTHS[:6], 2).tolist()),
                 (int(rng.choice(LENGTHS)),), (int(rng.choice(LENGTHS)),), (int(rng.choice((1, 7, 40))),), shape]  # fmt: skip
        if rng.random() < 0.4:  # as a kernel expects them
            sizes[0] = sizes[2] = sizes[3] = (int(np.prod(shape)) + 1,)
            sizes[1] = shape[-2:] if axes > 1 else (3, 5)
        dtypes = (np.int32, np.int32, np.int32, np.uint8, np.int32, np.int32)
        before = [rng.integers(0 if t is np.uint8 else -3, 40, int(np.prod(s)) + 2 * MARGIN).astype(t)
                  for s, t in zip(sizes, dtypes, strict=True)]  # fmt: skip
        numbers = [int(v) for v in rng.integers(-3, 12, 2)]
        grid = grid_of(rng, shape, guarded)
        mode = str(rng.choice(["checked", "validate"])) if isinstance(grid[0], tuple) else "checked"
        results = []
        for where in (device, "python"):
            memory = [a.copy() for a in before]
            arrays = [
                a[MARGIN : len(a) - MARGIN].reshape(s) for a, s in zip(memory, sizes, strict=True)
            ]
            try:
                kernel[grid](*arrays, *numbers, device=where, mode=mode)
                results.append(memory)
            except cb.errors.OutOfBoundsError:
                results.append(None)
        have, want = results
        if (have is None) != (want is None):
            return f"{sizes} {numbers} {grid} {mode}: {'no' if have else 'an'} index outside was reported"
        for name, a, b in zip(
            ("x", "y", "at", "small", "found", "out"), have or (), want or (), strict=False
        ):
            if not np.array_equal(a, b):
                where = np.flatnonzero(a != b)[:5] - MARGIN
                return f"{sizes} {numbers} {grid} {mode}: {name} differs at {where.tolist()}"
    return ""
