"""A program on the python backend under a real debugger."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DEBUGGED = """
import numpy as np, cubepy as cb

@cb.kernel
def some(x: cb.Array, y: cb.Array, out: cb.Array):
    board = cb.shared((2, 3), cb.f32)
    line = x.load(0, 4)
    v = x[cb.ABSOLUTE_POS]
    breakpoint()
    out[cb.ABSOLUTE_POS] = v

some[1, 1](np.arange(6, dtype=np.float32), np.arange(6).reshape(2, 3), np.zeros(6, np.float32), device="python")
"""


def test_arrays_in_a_debugger_act_as_those_of_numpy(tmp_path: Path) -> None:
    """Looking at one never hangs: `list` and `asarray` used to read zeros behind its end for ever."""
    program = tmp_path / "debugged.py"
    program.write_text(DEBUGGED)
    asked = {
        "p list(map(float, x))": "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]", "p np.asarray(x).sum()": "15.0",
        "p x": "array([0., 1., 2., 3., 4., 5.], dtype=float32)", "p len(x), len(y), len(board)": "(6, 2, 2)",
        "p y": "array([[0, 1, 2],", "p np.asarray(y).tolist()": "[[0, 1, 2], [3, 4, 5]]", "p x[1:3]": "array([1., 2.]",
        "p [row.tolist() for row in y]": "[[0, 1, 2], [3, 4, 5]]", "p 4.0 in x, 9.0 in x": "(True, False)",
        "p np.isnan(board).all()": "True", "p y[..., -1].tolist()": "[2, 5]", "p str(x)": "'[0. 1. 2. 3. 4. 5.]'",
        "p list(map(float, line))": "[0.0, 1.0, 2.0, 3.0]", "p np.asarray(line).tolist()": "[0.0, 1.0, 2.0, 3.0]",
        "p float(np.asarray(v))": "0.0", "p dict(enumerate(map(float, line)))": "{0: 0.0, 1: 1.0", "p sorted(x)[-1]": "5.0",
        "p np.max(x)": "5.0", "p tuple(v.shape for v in map(np.asarray, (x, y, board)))": "((6,), (2, 3), (2, 3))",
    }  # fmt: skip
    session = subprocess.run(
        [sys.executable, str(program)], input="\n".join([*asked, "c", ""]), cwd=tmp_path, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    answers = session.stdout.split("(Pdb) ")[1:]
    for (question, wanted), answer in zip(asked.items(), answers, strict=False):
        assert wanted in answer, (question, answer)
    assert session.returncode == 0 and len(answers) == len(asked) + 1
