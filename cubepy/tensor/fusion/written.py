"""The arithmetic of a group as text of a function of the kernel language.

The text is the group's identity: equal groups are one function, and one kernel. Every step is
rounded as the op alone would round it, but for floats of 16 bits, which stay f32 until they are
stored; so floats of 32 bits and more are equal bit by bit, fused or not.
"""

from __future__ import annotations

import itertools
import linecache
import math
import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from cubepy.lang.declare import Func
from cubepy.lang.dtypes import DType, dtype_named
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.elementwise import Mapped, Rounded
from cubepy.tensor.ops.library import function

LITERALS = (-1.0, 0.0, 0.5, 1.0, 2.0)
"""Numbers that are written into functions; others are arguments, so that a new one compiles
nothing."""
LONG = frozenset("exp log log1p expm1 sin cos tan tanh erf sigmoid silu gelu pow".split())
"""Ops that take many instructions."""


SAME = ("expand", "contiguous")
"""Ops that give the elements that they get: in a group, nothing."""


class Step(NamedTuple):
    """An op of a group.

    Attributes:
        op: its name.
        attrs: (name, value) pairs.
        given: its inputs: numbers of values of the group.
        dtypes: of its inputs.
        result: its dtype.
    """

    op: str
    attrs: tuple[tuple[str, Any], ...]
    given: tuple[int, ...]
    dtypes: tuple[DType, ...]
    result: DType


def step_of(step: Any, number: dict[int, int], specs: dict[int, Any]) -> Step:
    """A step of a schedule as one of a function, whose values have other numbers."""
    return Step(
        step.op,
        tuple(sorted(step.attrs.items())),
        tuple(number[i] for i in step.read),
        tuple(specs[i].dtype for i in step.read),
        specs[step.results[0]].dtype,
    )


def writable(op: str, attrs: dict[str, Any], dtypes: Sequence[DType], result: DType) -> bool:
    """Whether an op can be a step of a function."""
    if any(d.storage_only for d in (*dtypes, result)):
        return False
    return op in ("cast", "gelu", *SAME) or isinstance(OPS[op].run, Mapped)


def literal(op: str, attrs: dict[str, Any]) -> bool:
    """Whether a node is a number that is written into functions."""
    if op != "constant":
        return False
    value = attrs["value"]
    if isinstance(value, bool):
        return True
    return value in LITERALS and not (value == 0 and math.copysign(1, value) < 0)


def text_of(
    parameters: Sequence[int | str],
    steps: Sequence[tuple[int, Step]],
    outputs: Sequence[int | str],
    first: Sequence[str] = (),
    several: bool = False,
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The function of a group.

    Args:
        parameters: numbers of values that it is given, or names.
        steps: numbers of values, and what gives them.
        outputs: numbers of the values that it gives.
        first: lines before the steps.
        several: whether it gives a tuple, also of one value.

    Returns:
        The text, and what its names of functions stand for.
    """
    names: dict[str, str] = {}
    head = ", ".join(_name(p) for p in parameters)
    lines = [f"def group({head}):", *(f"    {line}" for line in first)]
    lines += [f"    v{n} = {_line(step, names)}" for n, step in steps]
    parts = [_name(n) for n in outputs]
    found = "(" + ", ".join(parts) + ",)"
    lines.append(f"    return {parts[0] if len(parts) == 1 and not several else found}")
    return "\n".join(lines) + "\n", tuple(sorted(names.items()))


def _name(value: int | str) -> str:
    return value if isinstance(value, str) else f"v{value}"


def _line(step: Step, names: dict[str, str]) -> str:
    attrs = dict(step.attrs)
    given = [f"v{n}" for n in step.given]
    if step.op == "constant":
        return f"cb.cast({attrs['value']!r}, cb.{step.result.name})"
    if step.op in SAME or step.op == "reshape":
        return given[0]
    if step.op == "cast":
        return _converted(given[0], step.dtypes[0], step.result, names)
    if step.op == "gelu":
        text = "f:gelu_erf" if attrs["approximate"] == "none" else "f:gelu_tanh"
    else:
        run = OPS[step.op].run
        assert isinstance(run, Mapped)
        if isinstance(run, Rounded) and not step.dtypes[0].is_float:
            return given[0]
        text = "f:exp_below_one" if attrs.get("below_one") else run.text
    name = text.replace(":", "_")
    names[name] = text
    return rounded(f"{name}({', '.join(given)})", step.result)


def rounded(text: str, dtype: DType) -> str:
    """A value as its dtype; narrow floats stay f32."""
    if dtype.is_float and dtype.bits < 32:
        return f"cb.cast({text}, cb.f32)"
    return f"cb.cast({text}, cb.{dtype.name})"


def _converted(text: str, before: DType, dtype: DType, names: dict[str, str]) -> str:
    if dtype.kind == "b" and before.kind != "b":
        names["t_nonzero"] = "t:nonzero"
        return f"t_nonzero({text})"
    if dtype.is_float and dtype.bits < 32:  # rounded, as what comes next would read it
        return f"cb.cast(cb.cast({text}, cb.{dtype.name}), cb.f32)"
    return f"cb.cast({text}, cb.{dtype.name})"


_numbers = itertools.count()


@lru_cache(maxsize=2048)
def compiled(text: str, names: tuple[tuple[str, str], ...]) -> Func[..., Any]:
    """The function of a text; one for equal texts."""
    import cubepy as cb

    file = f"<fused group {next(_numbers)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    scope: dict[str, Any] = {"__name__": "cubepy.fused", "cb": cb}
    scope |= {name: function(where) for name, where in names}
    exec(compile(text, file, "exec"), scope)
    weakref.finalize(scope["group"], linecache.cache.pop, file, None)
    made: Func[..., Any] = Func(scope["group"])
    made.text = text, names
    return made


def dtypes_named(names: Sequence[str]) -> list[Any]:
    """NumPy's dtypes of names."""
    return [dtype_named(name).numpy for name in names]
