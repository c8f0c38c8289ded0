"""What `cb.look` gives: facts about a model as data, and as a table of 80 columns."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

WIDTH = 80


@dataclass(frozen=True)
class TensorInfo:
    """A tensor of a model, an input or an output.

    Attributes:
        name: as the file has it.
        dtype: the name of its dtype, or of its blocks ("Q4_0").
        shape: lengths; texts stand for lengths that a call decides, None for unknown ones.
        nbytes: in the file; 0 of inputs and outputs.

    Example:
        >>> TensorInfo("x", "f32", ("batch", 3)).describe()
        'x: f32 (batch, 3)'
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    nbytes: int = 0

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(n for n in self.shape if isinstance(n, int))

    def describe(self) -> str:
        """Name, dtype and lengths."""
        return f"{self.name}: {self.dtype} ({', '.join(map(_length, self.shape))})"


@dataclass(frozen=True)
class Look:
    """What a model file holds; printing it shows a table.

    Attributes:
        source: the path.
        format: such as "GGUF 3".
        facts: texts by their titles: architecture, layers, context, opsets.
        inputs, outputs: what a call takes and gives.
        tensors: its weights.
        operators: how often each operator comes (ONNX).
        unsupported: operators that cannot run, with the names of their nodes.
        notes: what is read otherwise than it is stored, and the like.
    """

    source: str
    format: str
    facts: dict[str, str] = field(default_factory=dict)
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    tensors: tuple[TensorInfo, ...] = ()
    operators: dict[str, int] = field(default_factory=dict)
    unsupported: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return sum(t.size for t in self.tensors)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.nbytes for t in self.tensors)

    @property
    def dtypes(self) -> dict[str, int]:
        """How many tensors have each dtype."""
        return dict(Counter(t.dtype for t in self.tensors).most_common())

    def table(self, tensors: bool = False) -> str:
        """The table, with a line for every tensor where that is asked."""
        kinds = ", ".join(f"{name} x {n}" for name, n in self.dtypes.items())
        rows = [("file", self.source), ("format", self.format), *self.facts.items()]
        rows += [("input", t.describe()) for t in self.inputs]
        rows += [("output", t.describe()) for t in self.outputs]
        rows += [
            ("parameters", f"{self.parameters:,} in {len(self.tensors):,} tensors"),
            ("bytes", f"{self.nbytes:,}"),
            ("dtypes", kinds or "none"),
        ]
        if self.operators:
            counted = sorted(self.operators.items(), key=lambda one: (-one[1], one[0]))
            rows.append(("operators", ", ".join(f"{name} x {n}" for name, n in counted)))
        for name, nodes in self.unsupported.items():
            rows.append(("cannot run", f"{name}: {', '.join(nodes)}"))
        rows += [("note", note) for note in self.notes]
        if tensors:
            rows += [("tensor", t.describe()) for t in self.tensors]
        title = max(len(name) for name, _ in rows)
        return "\n".join(
            line for name, text in rows for line in _wrapped(name, _printable(text), title)
        )

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__


def _length(n: int | str | None) -> str:
    return "?" if n is None else str(n)


def _printable(text: str) -> str:
    """Texts of files may hold anything; a terminal gets what it can show."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _wrapped(name: str, text: str, title: int) -> list[str]:
    """A row of the table, on as many lines as it needs."""
    room = WIDTH - title - 2
    lines = [""]
    for word in text.split(" "):
        while len(word) > room:
            lines.append(word[:room])
            word = word[room:]
        if not lines[-1] or len(lines[-1]) + 1 + len(word) <= room:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
        else:
            lines.append(word)
    lines = [line for line in lines if line] or [""]
    return [f"{name if not n else '':{title}}  {line}" for n, line in enumerate(lines)]
