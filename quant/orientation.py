"""Which way round the matrices of a file lie: (outputs, inputs), as PyTorch's `Linear` has them, or
the other one.

A file does not say. A bias has as many elements as there are outputs; where there is none, or a
matrix is square, the other matrices of the file and the names that GPT-2 gave its `Conv1D` layers,
which are (inputs, outputs), speak for it.
"""

from __future__ import annotations

from collections.abc import Mapping

_CONV1D = ("c_attn", "c_proj", "c_fc", "q_attn")


class Orientations:
    """What the shapes of a file say of its matrices.

    Args:
        shapes: of all tensors, by name.

    Example:
        >>> shapes = {"c_fc.weight": (8, 32), "c_fc.bias": (32,), "head.weight": (50, 8),
        ...     "head.bias": (50,)}
        >>> Orientations(shapes).doubt("head.weight"), Orientations(shapes).doubt("c_fc.weight")
        ('', 'its bias of 32 says that it is (inputs, outputs), as in Conv1D')
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        known = {name: self._by_bias(name) for name, shape in shapes.items() if len(shape) == 2}
        self.known = {name: turned for name, turned in known.items() if turned is not None}

    def doubt(self, name: str) -> str:
        """Why a matrix should not be taken for (outputs, inputs), or an empty text."""
        bias = self._bias(name)
        turned = self.known.get(name)
        if turned is not None:
            return (
                f"its bias of {bias} says that it is (inputs, outputs), as in Conv1D"
                if turned
                else ""
            )
        if bias is not None and bias not in self.shapes[name]:
            return f"its bias of {bias} goes with neither of its axes"
        if any(self.known.values()):
            return "it may be (inputs, outputs), as other matrices of this file are"
        if _of_conv1d(name) and not any(_of_conv1d(other) for other in self.known):
            return "it may be (inputs, outputs), as GPT-2's Conv1D of this name is"
        return ""

    def _bias(self, name: str) -> int | None:
        """The length of the bias that belongs to a matrix."""
        shape = self.shapes.get(name.removesuffix("weight") + "bias", ())
        return shape[0] if len(shape) == 1 else None

    def _by_bias(self, name: str) -> bool | None:
        """Whether a matrix is (inputs, outputs); None where its bias does not tell."""
        bias, (rows, columns) = self._bias(name), self.shapes[name]
        if bias is None or rows == columns or bias not in (rows, columns):
            return None
        return bias == columns


def _of_conv1d(name: str) -> bool:
    return name.rpartition(".")[0].rpartition(".")[2] in _CONV1D
