"""What modules do besides: functions that are called with them, and torch's short conversions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.tensor.program.watched import changed

M = TypeVar("M", bound="Hooked")


class Removal:
    """Takes a hook away again: `handle()`, or `handle.remove()`."""

    __slots__ = ("key", "table")

    def __init__(self, table: dict[Any, Any], key: Any) -> None:
        self.table, self.key = table, key

    def __call__(self) -> None:
        self.table.pop(self.key, None)
        changed()

    remove = __call__


class Hooked:
    """What `Module` inherits: hooks, `float()`, `half()` and the like."""

    _pre_hooks: dict[Any, Any]
    _hooks: dict[Any, Any]
    to: Callable[..., Any]

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, args)` before every `forward`; the result removes it again when
        called, or by `remove()`.
        """
        return _registered(self._pre_hooks, hook, "(module, args)")

    def register_forward_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, args, output)` after every `forward`: what it gives, if it is not
        None, is the output instead. The result removes it again. Programs (`cb.jit`) call hooks
        when they are traced.

        Raises:
            ArgumentError: it cannot be called.

        Example:
            >>> from cubepy import nn
            >>> net, seen = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), []
            >>> handle = net[0].register_forward_hook(lambda m, args, out: seen.append(out.shape))
            >>> _ = net([[1.0, 2.0]])
            >>> handle.remove()
            >>> _ = net([[1.0, 2.0]])
            >>> seen
            [(1, 3)]
        """
        return _registered(self._hooks, hook, "(module, args, output)")

    def float(self: M) -> M:
        """`to("f32")`

        Example:
            >>> from cubepy import nn
            >>> layer = nn.Linear(2, 2).half()
            >>> layer.weight.dtype, layer.float().weight.dtype
            (cb.f16, cb.f32)
        """
        return self.to("f32")  # type: ignore[no-any-return]

    def double(self: M) -> M:
        """`to("f64")`"""
        return self.to("f64")  # type: ignore[no-any-return]

    def half(self: M) -> M:
        """`to("f16")`"""
        return self.to("f16")  # type: ignore[no-any-return]

    def bfloat16(self: M) -> M:
        """`to("bf16")`"""
        return self.to("bf16")  # type: ignore[no-any-return]

    def cpu(self: M) -> M:
        """`to("cpu")`"""
        return self.to("cpu")  # type: ignore[no-any-return]

    def cuda(self: M, device: Any = None) -> M:
        """`to("cuda")`, or to a device by number or name."""
        where = "cuda" if device is None else f"cuda:{device}" if type(device) is int else device
        return self.to(where)  # type: ignore[no-any-return]


def _registered(table: dict[Any, Any], hook: Any, of: str) -> Removal:
    if not callable(hook):
        raise ArgumentError(f"hook must be a function of {of}, not {shown(hook)}")
    key = object()
    table[key] = hook
    changed()
    return Removal(table, key)
