"""`clone`: a tree of modules a second time, with what its attributes hold of the tree."""

from __future__ import annotations

import functools
import types
from typing import Any

from cubepy.nn.parameter import Parameter
from cubepy.tensor.program.jit import Jitted

HOOKS = ("_pre_hooks", "_hooks", "_backward_hooks", "_backward_pre_hooks")
TABLES = ("_parameters", "_buffers", "_modules", *HOOKS)


def cloned(module: Any, done: dict[int, Any], outermost: bool) -> Any:
    """A copy of a module and all below.

    Args:
        module: an `nn.Module`.
        done: by identity what is there already; the copies are entered.
        outermost: whether the tree is complete then, so that attributes can be looked through.
    """
    if id(module) not in done:
        copy = object.__new__(type(module))
        done[id(module)] = copy
        copy.__dict__.update(module.__dict__)
        for name in HOOKS:
            copy.__dict__[name] = dict(module.__dict__[name])
        hooks = module.__dict__["_state_hooks"]
        copy.__dict__["_state_hooks"] = {when: dict(table) for when, table in hooks.items()}
        copy.__dict__["_unsaved"] = set(module._unsaved)
        for b in module._buffers.values():
            if b is not None and id(b) not in done:
                done[id(b)] = b.detach()
        copy.__dict__["_buffers"] = {
            name: b if b is None else done[id(b)] for name, b in module._buffers.items()
        }
        for p in module._parameters.values():
            if p is not None and id(p) not in done:
                done[id(p)] = Parameter(p, p.requires_grad)
        copy.__dict__["_parameters"] = {
            name: p if p is None else done[id(p)] for name, p in module._parameters.items()
        }
        copy.__dict__["_modules"] = {
            name: child.clone(done) for name, child in module._modules.items()
        }
    copy = done[id(module)]
    if outermost:
        for one in copy.modules():
            for name, value in one.__dict__.items():
                if name not in TABLES and name != "_unsaved":
                    one.__dict__[name] = translated(value, done)
    return copy


def translated(value: Any, done: dict[int, Any]) -> Any:
    """A value with the copies instead of what they are copies of; itself where it has none, or
    where it holds itself.

    Example:
        >>> from cubepy import nn
        >>> old, new = nn.ReLU(), nn.ReLU()
        >>> translated([old, "text"], {id(old): new})[0] is new
        True
    """
    if id(value) in done:
        return done[id(value)]
    kind = type(value)
    if kind not in PARTED:
        return value
    done[id(value)] = value  # until its parts are known
    found = done[id(value)] = _parts_translated(value, kind, done)
    return found


PARTED = (list, tuple, dict, types.MethodType, functools.partial, Jitted)


def _parts_translated(value: Any, kind: type, done: dict[int, Any]) -> Any:
    if kind in (list, tuple):
        items = [translated(one, done) for one in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else kind(items)
    if kind is dict:
        table = {key: translated(one, done) for key, one in value.items()}
        return value if all(table[key] is one for key, one in value.items()) else table
    if kind is types.MethodType:
        owner = translated(value.__self__, done)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
    if kind is functools.partial:
        parts = (value.func, value.args, value.keywords)
        found = [translated(part, done) for part in parts]
        if all(a is b for a, b in zip(found, parts, strict=True)):
            return value
        return functools.partial(found[0], *found[1], **found[2])
    function = translated(value.function, done)
    return value if function is value.function else Jitted(function, value.memory)
