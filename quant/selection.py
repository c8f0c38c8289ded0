"""Which weights of a model are quantized, and why the others are not."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from cubepy import nn
from cubepy.errors import QuantizationError, QuantizationWarning

Skip = str | Sequence[str] | Callable[[str, Any], bool]

# The parameters of a module that are weights of linear layers.
_WEIGHTS: dict[type, tuple[str, ...]] = {
    nn.Linear: ("weight",),
    nn.MultiHeadAttention: ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"),
}


@dataclass(frozen=True)
class Candidate:
    """A matrix of a model.

    Attributes:
        name: of the module; of the parameter where the module has several.
        module: that owns it.
        key: its name in the module.
        reason: why it stays as it is; empty: it is to be quantized.
        unasked: whether that is nobody's wish and follows neither from what it is: something to
            warn of.
        linear: whether it is a linear layer's or an embedding's.
    """

    name: str
    module: nn.Module
    key: str
    reason: str
    unasked: bool = False
    linear: bool = True

    @property
    def tensor(self) -> nn.Parameter:
        """The parameter as it is now."""
        return getattr(self.module, self.key)  # type: ignore[no-any-return]


class Skips:
    """What the user wants left alone: names, patterns, or a predicate.

    Args:
        skip: names of modules or parameters, with the wildcards of the shell (`*`, `?`, `[...]`),
            or a function of name and module.

    Raises:
        QuantizationError: neither of them.
    """

    def __init__(self, skip: Skip) -> None:
        self.predicate = skip if callable(skip) else None
        alone = isinstance(skip, str) or not isinstance(skip, Iterable)
        given: tuple[Any, ...] = () if callable(skip) else (skip,) if alone else tuple(skip)
        if not all(isinstance(pattern, str) for pattern in given):
            raise QuantizationError(
                f"skip takes names, patterns or a function of (name, module), not {skip!r}",
                hint='for example skip=("head", "encoder.*.query")',
            )
        self.patterns: tuple[str, ...] = given
        self.unused = set(given)

    def reason(self, names: Sequence[str], module: Any) -> str:
        """Why something of these names is skipped, or an empty text."""
        if self.predicate is not None:
            return "asked for by skip=" if self.predicate(names[0], module) else ""
        for pattern in self.patterns:
            if any(fnmatchcase(name, pattern) for name in names):
                self.unused.discard(pattern)
                return f"matches skip={pattern!r}"
        return ""

    def notes(self) -> list[str]:
        """A remark on every pattern that matched nothing."""
        return [
            f"skip={pattern!r} matched no layer"
            for pattern in self.patterns
            if pattern in self.unused
        ]


def candidates(model: nn.Module, skips: Skips) -> Iterator[Candidate]:
    """Every linear weight and embedding of a model, and what else has two axes, in order."""
    tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    elsewhere = {id(p) for m in model.modules() for key, p in _own(m) if key not in _keys(m)}
    shown = {id(p) for m in model.modules() for key, p in _own(m) if key in _keys(m)} | tables
    for prefix, module in model.named_modules():
        if isinstance(module, nn.Embedding):
            reason = skips.reason((prefix, f"{prefix}.weight"), module)
            yield Candidate(
                prefix, module, "weight", reason or "an embedding is looked up, not multiplied"
            )
            continue
        for key in _keys(module):
            full = f"{prefix}.{key}" if prefix else key
            name = prefix if isinstance(module, nn.Linear) else full
            reason = _reason(module, key, (name, full, prefix), skips, tables, elsewhere)
            yield Candidate(name, module, key, reason)
        for key, value in _own(module):
            if key in _keys(module) or value.ndim < 2 or not value.dtype.is_float:
                continue
            if id(value) not in shown and value.storage.kind == "dense":
                shown.add(id(value))
                full = f"{prefix}.{key}" if prefix else key
                kind = f"a weight of {type(module).__name__}, which is no linear layer"
                reason = skips.reason((full, prefix), module) or kind
                yield Candidate(full, module, key, reason, linear=False)


def _own(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The parameters that a module itself names, shared ones too."""
    return (
        (key, value) for key, value in module.__dict__["_parameters"].items() if value is not None
    )


def _keys(module: nn.Module) -> tuple[str, ...]:
    """The names of a module's weights that are those of linear layers."""
    for kind, keys in _WEIGHTS.items():
        if isinstance(module, kind):
            own = module.__dict__["_parameters"]
            return tuple(key for key in keys if own.get(key) is not None)
    return module.__dict__.get("matrices", ())  # type: ignore[no-any-return]


def warn_of(left: Sequence[tuple[str, str]]) -> list[str]:
    """Warn of layers that stay in float though nobody asked for it, by name and reason; gives notes
    for the report.
    """
    if not left:
        return []
    named = "; ".join(f"{name!r}: {reason}" for name, reason in left[:8])
    more = f"; and {len(left) - 8} more" if len(left) > 8 else ""
    text = f"{len(left)} layer{'s stay' if len(left) > 1 else ' stays'} in float: {named}{more}"
    warnings.warn(text, QuantizationWarning, stacklevel=3)
    return [text]


def _reason(
    module: nn.Module,
    key: str,
    names: Sequence[str],
    skips: Skips,
    tables: set[int],
    elsewhere: set[int],
) -> str:
    weight = getattr(module, key)
    reason = skips.reason(names, module)
    if reason:
        return reason
    if weight.storage.kind != "dense":
        return f"already {weight.storage.kind}"
    if id(weight) in tables:
        return "shared with an embedding"
    if id(weight) in elsewhere:
        return "shared with a module that is no linear layer"
    if 0 in weight.shape:
        return "it has no elements"
    if not weight.dtype.is_float or weight.dtype.storage_only:
        return f"its dtype is {weight.dtype.name}"
    return ""
