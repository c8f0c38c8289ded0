"""What printing a program gives: the text, its parameters, and the places that may report."""

from __future__ import annotations

from dataclasses import dataclass

from cubepy.errors import Location


@dataclass(frozen=True)
class Parameter:
    """One parameter of the generated function: `kind` is "i64", "ptr", "map" or a carrier dtype."""

    name: str
    kind: str
    dtype: str = ""


@dataclass(frozen=True)
class Site:
    """A place that may report a fault at run time."""

    kind: str  # "bounds", "assert", or "print", whose message is the format
    array: str
    message: str
    location: Location | None


@dataclass(frozen=True)
class Emitted:
    """Generated code and what is needed to compile, call and explain it.

    Attributes:
        text: the Python source.
        parameters: of the function `kernel`, in the order of the argument block.
        sites: for validate mode and assertions: where a report's number points.
    """

    text: str
    parameters: tuple[Parameter, ...]
    sites: tuple[Site, ...]
