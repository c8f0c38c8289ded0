"""From the names of Hugging Face's weights to ours, by tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cubepy.errors import FileFormatError
from cubepy.models.architectures.weights import listed
from cubepy.models.formats.stored import Stored
from cubepy.tensor import Tensor, as_tensor

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True)
class Names:
    """How the weights of a family are called.

    Attributes:
        parts: what follows the number of a layer, without weight or bias.
        whole: what is in no layer.
        layer: a pattern with the groups `number` and `part`, and `stack` where a model has several.
        stacks: our path of the layers of each stack.
        prefix: what may stand before all names.
        ignored: names of what is not wanted.
        kinds: other words for weight and bias.

    Example:
        >>> layer = re.compile(r"h[.](?P<number>.)[.](?P<part>.+)")
        >>> names = Names({"fc1": "up"}, {"ln": "norm"}, layer)
        >>> names.ours("h.3.fc1.weight"), names.ours("ln.bias")
        ('layers.3.up.weight', 'norm.bias')
    """

    parts: Mapping[str, str]
    whole: Mapping[str, str]
    layer: re.Pattern[str]
    stacks: Mapping[str, str] = field(default_factory=dict)
    prefix: re.Pattern[str] = _NEVER
    ignored: re.Pattern[str] = _NEVER
    kinds: Mapping[str, str] = field(default_factory=dict)

    def ours(self, name: str) -> str | None:
        """Our name of a weight; None where it is not wanted.

        Raises:
            KeyError: it is not known.
        """
        if self.ignored.search(name):
            return None
        name = self.prefix.sub("", name)
        part, _, kind = name.rpartition(".")
        kind = self.kinds.get(kind, kind)
        if kind not in ("weight", "bias"):
            part, kind = name, ""
        found = None if part in self.whole else self.layer.fullmatch(part)
        if found is None:
            ours = self.whole[part]
        else:
            stack = self.stacks[found["stack"]] if self.stacks else "layers"
            ours = f"{stack}.{found['number']}.{self.parts[found['part']]}"
        return f"{ours}.{kind}" if kind else ours

    def renamed(self, stored: Mapping[str, Stored], family: str) -> dict[str, Tensor]:
        """The tensors of a file by our names: matrices as they are, all other floats f32.

        Raises:
            FileFormatError: names that are not known.
        """
        found: dict[str, Tensor] = {}
        unknown = []
        for name, one in stored.items():
            try:
                ours = self.ours(name)
            except KeyError:
                unknown.append(name)
                continue
            if ours is not None:
                array = one.data
                found[ours] = as_tensor(array if array.ndim == 2 else array.astype(np.float32))
        if unknown:
            raise FileFormatError(
                f"weights that a model of the kind {family} does not have: {listed(unknown)}",
                hint="does config.json belong to these weights?",
            )
        return found
