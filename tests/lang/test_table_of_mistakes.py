"""Lines that people who know NumPy, CUDA or Triton write: each is refused with a caret under it and a
way out.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy.lang import names

HEAD = """
import math
import numpy as np
import cubepy as cb

known = [1, 2, 3]
counter = 0

class Thing:
    pass

thing = Thing()

@cb.struct
class Pair:
    low: cb.f32
    high: cb.f32

@cb.kernel
def wrong(x: cb.Array, out: cb.Array):
    """
IN_KERNELS = {
    "out[...] = 0": "Ellipsis",
    "out[0] = 'abc'": "text is comptime",
    "out[0] = x[None]": "None is none",
    "out[cb.thread_id()] = 1.0": r"cb\.UNIT_POS",
    "out[0] = cb.sum(x)": r"line\.sum\(\)",
    "out[0] = cb.load(x, 0)": r"x\.load\(i, lanes\)",
    "i = cb.ABSOLUTE_POS()": r"cb\.ABSOLUTE_POS without",
    "i = cb.ABSOLUTE_POS.x": "_X, _Y and _Z",
    "i = cb.UNIT_POS[0]": "_X, _Y and _Z",
    "out[0] = x(0)": "brackets",
    "counter = counter + 1": "module's 'counter' is only read",
    "for i in range(3):\n        out[i] = 1.0\n    else:\n        out[0] = 2.0": "set a flag",
    "while x[0] > 0:\n        break\n    else:\n        out[0] = 2.0": "set a flag",
    "out[0] = 1j * x[0]": "struct of two floats",
    "out[0] = x[0] & 1": r"joined by `and`",
    "out[0] = ~x[0]": r"joined by `not`",
    "out[0] = x[0] << 1": r"cb\.bitcast",
    "for i in cb.unroll(x.size):\n        out[i] = 1.0": r"cb\.Comptime\[int\]",
    "s = cb.shared(-3, cb.f32)": "one int",
    "s = cb.shared(4)": r"write cb\.shared\(shape, dtype\)",
    "out[0] = cb.exp()": r"write cb\.exp\(x\)",
    "out[0] = cb.exp(x[0], 2)": r"takes 1 argument but 2.*write cb\.exp\(x\)",
    "out[0] = cb.exp(x)": r"x\[i\]",
    "out[0] = cb.select(x, 1.0, 2.0)": r"x\[i\]",
    "out[0] = not x": r"x\[i\]",
    "out[0] = cb.max(*x)": r"x\[i\]",
    "out.store(0, x.load(0, 65))": "one element is",
    "out.store(0, x.load(0, x.size))": r"cb\.Comptime\[int\]",
    "out.store(0, x.load(0, 4) + x.load(0, 8))": r"cb\.slice_line",
    "v = x.load(0, 4)\n    out[0] = v[4]": "0 to 3",
    "v = x.load(0, 4)\n    out[0] = v[cb.UNIT_POS]": "write a number",
    "cb.atomic_and(out, 0, 1)": "array of integers",
    "cb.atomic_add(out[0], 1.0)": r"write cb\.atomic_add\(array, index, value\)",
    "p = Pair(1.0, 2.0)\n    p.low = x[0]": r"p = Pair\(\.\.\., p\.high\)",
    "x.shape = (2, 2)": "'shape' of the array 'x' cannot be assigned",
    "thing.x = 1": "'x' of the comptime value .* only read",
    "p = Pair(1.0)": "its fields are",
    "a, b = (1, 2, 3)": "3 names",
    "t = (1.0, 2.0)\n    t[0] = 3.0": "immutable",
    "t = (1.0, 2.0)\n    out[0] = t[2]": "known when the code is made",
    "known[0] = 3": "only read",
    "known.append(1)": "would change a list once",
    "known.sort()": "would change a list once",
    "cb.sync_cube": r"write cb\.sync_cube\(\.\.\.\)",
    "y = None\n    out[0] = y + 1": "as Python does",
    "for k in range(1, 2, 3, 4):\n        out[0] = 1.0": r"range\(start, stop, step\)",
    "out[0] = cb.bitcast(x[0], cb.i64)": r"cb\.cast",
    "out[0] = cb.philox(1, 2)[0]": r"\(a,\)",
    "if isinstance(x, int):\n        out[0] = 1.0": r"x\.dtype",
    "for v in x:\n        out[0] = v": r"for i in range\(x\.shape\[0\]\)",
    "out[0] = max(x)": r"line\.max\(\)",
    "out[0] = x.sum()": r"x\.load\(i, 8\)",
    "out[0] = x.T[0]": r"x\[j, i\]",
    "out[0] = x.strides[0]": r"x\.stride",
    "a, *b = (1, 2, 3)": r"first, rest = t\[0\], t\[1:\]",
    "t = (x[0], x[1])\n    out[0] = t[2]": "numbered 0 to 1",
    "out[0] = (1, 2)": "one of its items",
    "for i, v in enumerate(range(x.size)):\n        out[i] = v": r"cb\.Comptime parameter",
}
WORDS = {
    "threadIdx vec3 mat33 pi inf nan random randint rand cdiv swap ballot shfl_down shfl_xor len length printf clock "
    "isclose sigmoid relu lerp mod sort matrix where maximum zeros dot atomic_cas popc program_id float int": "^(?!did)",
    "atomicAdd": "atomic_add", "sqroot": "sqrt", "absolute_pos": "ABSOLUTE_POS", "plane_shufle": "plane_shuffle", "floorf": "floor",
}  # fmt: skip
"""Names of other languages, and of this one misspelt, and what the hint says."""


def written(folder: Path, text: str) -> Any:
    path = folder / f"wrong_{abs(hash(text))}.py"
    path.write_text(HEAD + text + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("line", IN_KERNELS)
def test_a_mistake_in_a_kernel_says_where_it_is_and_what_to_do(line: str, tmp_path: Path) -> None:
    module = written(tmp_path, line)
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(errors.CompileError) as caught:
        module.wrong[1, 4](x, out)
    text = str(caught.value)
    assert re.search(IN_KERNELS[line], text, re.DOTALL), text
    assert "^" in text and "Hint: " in text and "wrong_" in text
    assert module.known == [1, 2, 3]


@pytest.mark.parametrize("name", [name for names in WORDS for name in names.split()])
def test_a_word_of_another_language_is_answered_with_one_of_this(name: str, tmp_path: Path) -> None:
    wanted = next(hint for names, hint in WORDS.items() if name in names.split())
    module = written(tmp_path, f"out[0] = cb.{name}(x[0])")
    with pytest.raises(errors.KernelNameError) as caught:
        module.wrong[1, 4](np.ones(8, np.float32), np.zeros(8, np.float32))
    assert re.search(wanted, caught.value.hint or "-"), caught.value
    for meant in re.findall(r"did you mean '(\w+)'", str(caught.value)):
        assert meant in names.__all__  # a word that kernels have


@cb.struct
class Pair:
    low: cb.f32
    high: cb.f32


@cb.kernel
def copied(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i]


@cb.kernel
def two_axes(out: cb.Array):
    out[0, 0] = 1.0


@cb.kernel
def given(n: cb.i8, out: cb.Array):
    out[0] = n


@cb.kernel
def given_a_pair(p: Pair, out: cb.Array):
    out[0] = p.low


X, OUT = np.ones(4, np.float32), np.zeros(4, np.float32)
STRIDED = np.lib.stride_tricks.as_strided
LAUNCHES = {
    "an extra argument": (lambda: copied[1, 4](X, OUT, 3), errors.KernelTypeError, "parameters are x, out"),
    "one given twice": (lambda: copied[1, 4](X, OUT, x=X), errors.KernelTypeError, "by position or by name"),
    "an array as grid": (lambda: copied[X, 4](X, OUT), errors.LaunchError, "cubes, units"),
    "a float as grid": (lambda: copied[1.5, 4](X, OUT), errors.LaunchError, "cubes, units"),
    "four axes": (lambda: copied[(1, 1, 1, 1), 4](X, OUT), errors.LaunchError, "join axes"),
    "more cubes than a device has": (lambda: copied[1 << 40, 4](X, OUT), errors.LaunchError, "in a loop"),
    "too many units": (lambda: copied[1, 1 << 20](X, OUT), errors.LaunchError, "more cubes"),
    "no lanes": (lambda: copied[cb.over(4, lanes=0)](X, OUT), errors.LaunchError, "lanes=8"),
    "a number that does not fit": (lambda: given[1, 1](300, OUT), errors.DTypeError, "wider dtype"),
    "an array for a number": (lambda: given[1, 1](X, OUT), errors.KernelTypeError, r"cb\.Array"),
    "a tuple for a struct": (lambda: given_a_pair[1, 1]((1, 2), OUT), errors.KernelTypeError, r"Pair\(low, high\)"),
    "a stretched output": (lambda: copied[1, 4](X, STRIDED(np.zeros(1, np.float32), (4,), (0,))), errors.AliasError, "elements are apart"),
    "windows as output": (lambda: two_axes[1, 1](STRIDED(np.zeros(8, np.float32), (4, 2), (4, 4))), errors.AliasError, "elements are apart"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_a_mistake_in_a_launch_says_what_to_do(name: str) -> None:
    run, kind, hint = LAUNCHES[name]
    with pytest.raises(kind) as caught:
        run()
    assert re.search(hint, str(caught.value)), caught.value
    assert caught.value.hint


def test_elements_that_lie_between_each_other_are_an_output() -> None:
    """Steps of 3 and 2 elements, of which no two meet."""
    memory = np.zeros(6, np.float32)
    out = STRIDED(memory, (2, 2), (12, 8))
    two_axes[1, 1](out)
    assert memory.tolist() == [1, 0, 0, 0, 0, 0]


def test_a_name_in_an_annotation_that_is_misspelt_is_shown(tmp_path: Path) -> None:
    other = written(tmp_path, "pass\n\n@cb.kernel\ndef other(x: 'cb.Arry'):\n    pass").other
    with pytest.raises(errors.KernelTypeError, match=r"Arry(.|\n)*\^(.|\n)*Hint"):
        other[1, 1](X)
