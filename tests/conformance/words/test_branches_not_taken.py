"""What is in a branch that is not taken need not be valid: on every backend the same."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

EXPRESSIONS = (
    *("[{a} for q in x]", "{{{a} for q in x}}", "{{q: {a} for q in x}}", "[[{a} for q in x]]"),
    *("tuple({a} for q in x for r in x)", "tuple({a} for x[0] in x)", "sum({a} for q in [{b}])"),
    *("(lambda q: {a})", "(lambda q={a}: {b})", "f'{{{a}}}'", "(q := {a})", "x[{a}:{b}]"),
    *("[{a}, {b}]", "{{{a}: {b}}}", "nothing({a}, *{b})", "x.nothing({a})", "cb.max(**{a})"),
    *("{a} @ {b}", "({a} if {b} else nothing)", "not {a}", "3j", "{a} in {b}"),
)
STATEMENTS = (
    *("v = {a}", "x[{a}] = {b}", "x[{a}] += {b}", "x.v += {a}", "a, *v = {a}", "v: {a} = {b}"),
    *("assert {a}, {b}", "raise ValueError({a})", "del x[0]", "global x_", "import math as m"),
    *("try:\n            v = {a}\n        finally:\n            v = {b}",),
    *("with {a}:\n            v = {b}", "def g(q):\n            return {a}"),
    *("async def g(q):\n            return {a}", "class G({a}):\n            v = {b}"),
    *("while {a}:\n            v = 1\n        else:\n            v = {b}",),
    *(
        "for v, (q, r) in {a}:\n            v = {b}",
        "match {a}:\n            case 1:\n                v = 2",
    ),
)


def expression(draw: random.Random, depth: int = 0) -> str:
    if depth > 2 or draw.random() < 0.3:
        return draw.choice(("n", "cb.exp(n)", "nothing", "x[0]", "cb.sync_cube()"))
    chosen = draw.choice(EXPRESSIONS)
    return chosen.format(a=expression(draw, depth + 1), b=expression(draw, depth + 1))


def test_random_statements_that_are_not_run(device: str, tmp_path: Path) -> None:
    draw = random.Random(0)
    tried = 0
    for number in range(80):
        dead = draw.choice(STATEMENTS).format(a=expression(draw), b=expression(draw))
        text = (
            "import cubepy as cb\n\n@cb.kernel\n"
            "def kernel(x: cb.Array, out: cb.Array, *, taken: cb.Comptime[bool] = False):\n"
            f"    n = 3\n    if taken:\n        {dead}\n    out[0] = 7\n"
        )
        path = tmp_path / f"{device}_{number}.py"
        path.write_text(text)
        try:
            code = compile(text, str(path), "exec")
        except SyntaxError:
            continue
        names: dict = {}
        exec(code, names)
        out = np.zeros(1, np.float32)
        names["kernel"][1, 1](np.ones(3, np.float32), out, device=device)
        assert out[0] == 7, text
        tried += 1
    assert tried > 40
