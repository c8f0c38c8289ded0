"""Schemes: how many bits a weight gets, and what shares a scale.

A scheme says what the stored numbers mean; `packing.py` says where they lie.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cubepy.errors import QuantizationError
from cubepy.nn import arguments

# Eight codes of a channel are unpacked at once, so that groups are multiples of eight.
GROUP_STEP = 8
_GROUPS = (8, 16, 24, 32, 48, 64, 96, 128, 256)
_BITS = {"int8": 8, "int4": 4}
ACTIVATIONS = ("int8", "float")


@dataclass(frozen=True)
class Scheme:
    """How the weights of a linear layer are stored.

    Args:
        name: "int8" or "int4".
        bits: of one stored weight.
        group: how many neighbours along the input axis share a scale; None: a whole row (output
            channel) does.
        symmetric: a weight is `scale * code`; otherwise `scale * code + minimum`.
        activations: "int8": they are quantized to eight bits as they come, one scale and zero point
            for each row; "float": they stay float, and only weights are quantized. On a GPU that is
            faster for one row.

    Raises:
        QuantizationError: there is no such scheme, or it does not have such a group.

    Example:
        >>> parse_scheme("int4", group=64).group
        64
    """

    name: str
    bits: int
    group: int | None
    symmetric: bool
    activations: str = "int8"

    def __post_init__(self) -> None:
        if _BITS.get(self.name) != self.bits:
            raise QuantizationError(
                f"a scheme is int8 with 8 bits or int4 with 4, not {self.name!r} with "
                f"{self.bits!r}",
                hint='parse_scheme("int4", group=64) makes one',
            )
        if self.activations not in ACTIVATIONS:
            raise QuantizationError(
                f"activations are {' or '.join(map(repr, ACTIVATIONS))}, not {self.activations!r}",
                hint='say activations="float" to quantize weights only',
            )
        arguments.flag("symmetric", self.symmetric)
        if self.name == "int8":
            self._check_channels()
            return
        whole = isinstance(self.group, int) and not isinstance(self.group, bool)
        if self.group is None or not whole or self.group <= 0 or self.group % GROUP_STEP:
            raise QuantizationError(
                f"a group is a positive multiple of {GROUP_STEP}: group={self.group!r}",
                hint="32, 64 and 128 are usual",
            )

    def _check_channels(self) -> None:
        """What has one scale for each output channel has nothing to choose."""
        if self.group is not None:
            raise QuantizationError(
                "int8 has one scale for each output channel, so that it takes no group "
                f"(group={self.group!r})",
                hint='leave group out, or use scheme="int4"',
            )
        if not self.symmetric:
            raise QuantizationError(
                "int8 weights are symmetric: symmetric=False is not available", hint="leave it out"
            )

    def misfit(self, columns: int) -> str:
        """Why a layer with `columns` inputs cannot be stored, or an empty text."""
        if self.group is None or columns % self.group == 0:
            return ""
        return f"its {columns} inputs are not a multiple of group={self.group}"

    def check(self, columns: int, layer: str) -> None:
        """Refuse a layer with `columns` inputs that the groups do not fit.

        Raises:
            QuantizationError: the group does not divide the number of inputs.
        """
        if not self.misfit(columns):
            return
        fits = [g for g in _GROUPS if columns % g == 0]
        remedy = f"use group={' or '.join(map(str, fits))}, or leave" if fits else "leave"
        raise QuantizationError(
            f"the group must divide the number of inputs: layer {layer!r} has K={columns} "
            f"inputs, which is not a multiple of group={self.group}",
            hint=f"{remedy} the layer in float with skip=({layer!r},)",
        )

    def describe(self) -> str:
        """The scheme in words, for reports."""
        rest = ", float activations" if self.activations == "float" else ""
        if self.group is None:
            return f"{self.name}, a scale for each output channel{rest}"
        kind = "symmetric" if self.symmetric else "asymmetric"
        return f"{self.name}, {kind}, a scale for each group of {self.group}{rest}"


# Measured on all-MiniLM-L6-v2 (mean cosine of sentence embeddings to float32, no calibration, group
# 32): asymmetric 0.988 at 5 bits a weight, symmetric 0.984 at 4.5.
SCHEMES = {"int8": Scheme("int8", 8, None, True), "int4": Scheme("int4", 4, 32, False)}


def parse_scheme(
    scheme: str | Scheme,
    *,
    group: int | None = None,
    symmetric: bool | None = None,
    activations: str | None = None,
) -> Scheme:
    """The scheme of a name, with its group and symmetry changed where asked.

    Args:
        scheme: a name of `SCHEMES`, or a `Scheme`.
        group: weights that share a scale (int4 only), a multiple of 8.
        symmetric: whether a weight of 0 has the code 0 of a symmetric range (int4 only).
        activations: "int8" or "float".

    Raises:
        QuantizationError: an unknown scheme, or an option that the scheme does not have.

    Example:
        >>> parse_scheme("int4", symmetric=True).describe()
        'int4, symmetric, a scale for each group of 32'
    """
    if isinstance(scheme, str):
        if scheme.lower() not in SCHEMES:
            raise QuantizationError(
                f"unknown scheme {scheme!r}: the schemes are {', '.join(SCHEMES)}",
                hint='say scheme="int8" or "int4"',
            )
        base = SCHEMES[scheme.lower()]
    elif isinstance(scheme, Scheme):
        base = scheme
    else:
        raise QuantizationError(
            f"a scheme is a name ({', '.join(SCHEMES)}) or a Scheme, not {type(scheme).__name__}",
            hint='say scheme="int8" or "int4"',
        )
    asked: dict[str, Any] = {"group": group, "symmetric": symmetric, "activations": activations}
    return replace(base, **{name: value for name, value in asked.items() if value is not None})
