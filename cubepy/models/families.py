"""Which kinds of models a folder may hold."""

from __future__ import annotations

from typing import Any

from cubepy.models.architectures.decoders import DECODERS
from cubepy.models.architectures.encoders import ENCODERS
from cubepy.models.architectures.t5_family import T5_FAMILIES
from cubepy.models.architectures.vision.families import VISION

KINDS: dict[str, tuple[str, ...]] = {
    "decoder": tuple(DECODERS),
    "encoder": (*ENCODERS, "modernbert"),
    "encoder with decoder": T5_FAMILIES,
    "vision": tuple(VISION),
    "speech": ("whisper",),
}
"""What `model_type` may be, by what becomes of it."""
FAMILIES = tuple(family for names in KINDS.values() for family in names)


def kind_of(family: Any) -> str | None:
    """What becomes of a `model_type`; None: nothing.

    Example:
        >>> kind_of("mixtral"), kind_of("mamba")
        ('decoder', None)
    """
    return next((kind for kind, names in KINDS.items() if family in names), None)
