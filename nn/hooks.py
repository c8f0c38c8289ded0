"""What modules do besides: functions that are called with them, and torch's short conversions."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from cubepy.errors import ArgumentError, GradientError
from cubepy.kernels.entry.options import shown
from cubepy.tensor import Tensor, custom_vjp
from cubepy.tensor.custom.hooks import Removal, registered
from cubepy.tensor.modes import mode

M = TypeVar("M", bound="Hooked")


class Hooked:
    """What `Module` inherits: hooks, `float()`, `half()` and the like."""

    _pre_hooks: dict[Any, Any]
    _hooks: dict[Any, Any]
    _backward_hooks: dict[Any, Any]
    _backward_pre_hooks: dict[Any, Any]
    _state_hooks: dict[str, dict[Any, Any]]
    forward: Callable[..., Any]
    to: Callable[..., Any]

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, args)` before every `forward`; the result removes it again when
        called, or by `remove()`.
        """
        return registered(self._pre_hooks, hook, "(module, args)")

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` of the module, or of one that
        it is in, looks at it; the result removes it again.
        """
        return self._of_states("before saving", hook, "(module, prefix, keep_vars)")

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, state_dict, prefix, local_metadata)` when `state_dict` has names: it
        may change the dict.

        Example:
            >>> from cubepy import nn
            >>> layer = nn.Linear(2, 1)
            >>> _ = layer.register_state_dict_post_hook(lambda m, state, *_: state.pop("bias"))
            >>> list(layer.state_dict())
            ['weight']
        """
        return self._of_states("saved", hook, "(module, state_dict, prefix, local_metadata)")

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` before a state is loaded: the dict is a copy, which it may
        change; the lists are empty.

        Example:
            >>> from cubepy import nn
            >>> layer = nn.Linear(2, 1, bias=False)
            >>> def rename(module, state, prefix, *_):
            ...     state[f"{prefix}weight"] = state.pop(f"{prefix}kernel")
            >>> _ = layer.register_load_state_dict_pre_hook(rename)
            >>> layer.load_state_dict({"kernel": layer.weight.detach()})
            LoadResult(missing_keys=[], unexpected_keys=[])
        """
        said = "(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors)"
        return self._of_states("before loading", hook, said)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, incompatible_keys)` when a state was loaded: it may change the lists
        of what `load_state_dict` gives, whose errors come before.
        """
        return self._of_states("loaded", hook, "(module, incompatible_keys)")

    def _of_states(self, when: str, hook: Callable[..., Any], of: str) -> Removal:
        return registered(self._state_hooks.setdefault(when, {}), hook, of)

    def _state_hooked(self, when: str, *given: Any) -> None:
        """Call the hooks of a time with the module and what else they are given."""
        for hook in tuple(self._state_hooks.get(when, {}).values()):
            hook(self, *given)

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
        return registered(self._hooks, hook, "(module, args, output)")

    def register_full_backward_pre_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, grad_output)` before gradients go back through the module, with a
        tuple of those by its outputs: what it gives, if it is not None, is passed on instead.

        Example:
            >>> import cubepy as cb
            >>> from cubepy import nn
            >>> layer, x = nn.ReLU(), cb.tensor([1.0, -2.0], requires_grad=True)
            >>> _ = layer.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 2,))
            >>> layer(x).sum().backward()
            >>> x.grad
            tensor([2., 0.])
        """
        return registered(self._backward_pre_hooks, hook, "(module, grad_output)")

    def register_full_backward_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(module, grad_input, grad_output)` each time that gradients went back through
        the module: tuples of the gradients by its positional arguments (None for what has none)
        and by its outputs (zeros for one that nobody used). What it gives, if it is not None, is
        passed on instead of `grad_input`. The result removes it again. Programs (`cb.jit`) call
        hooks when they are traced.

        Outputs are a tensor, or a tuple or list of them.

        Example:
            >>> import cubepy as cb
            >>> from cubepy import nn
            >>> layer, x = nn.ReLU(), cb.tensor([1.0, -2.0], requires_grad=True)
            >>> handle = layer.register_full_backward_hook(lambda m, given, out: print(given, out))
            >>> layer(x).sum().backward()
            (tensor([1., 0.]),) (tensor([1., 1.]),)
        """
        return registered(self._backward_hooks, hook, "(module, grad_input, grad_output)")

    def _watched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`forward` between two functions that gradients go through, which call the hooks."""
        outer: list[tuple[Any, ...]] = [()]
        at = [n for n, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
        if not mode.enabled:
            return self.forward(*args, **kwargs)
        if at:

            def inputs_back(grads: list[Any]) -> list[Any]:
                by_argument: list[Any] = [None] * len(args)
                for n, g in zip(at, grads, strict=True):
                    by_argument[n] = g
                given = self._with_hooks(tuple(by_argument), outer[0])
                return [given[n] for n in at]

            given = list(args)
            for n, x in zip(at, _passed([args[n] for n in at], inputs_back), strict=True):
                given[n] = x
            args = tuple(given)
        output = self.forward(*args, **kwargs)
        several = isinstance(output, (tuple, list))
        parts = list(output) if several else [output]
        wanted = [n for n, x in enumerate(parts) if isinstance(x, Tensor) and x.requires_grad]

        def outputs_back(grads: list[Any]) -> list[Any]:
            by_output: list[Any] = [None] * len(parts)
            for n, g in zip(wanted, grads, strict=True):
                by_output[n] = g
            for hook in tuple(self._backward_pre_hooks.values()):
                found = hook(self, tuple(by_output))
                if found is not None:
                    by_output = list(found if isinstance(found, (tuple, list)) else (found,))
            outer[0] = tuple(by_output)
            if not at:
                self._with_hooks((None,) * len(args), outer[0])
            return [by_output[n] for n in wanted]

        if wanted:
            for n, x in zip(wanted, _passed([parts[n] for n in wanted], outputs_back), strict=True):
                parts[n] = x
        if not several:
            return parts[0]
        named = getattr(type(output), "_make", None)
        return type(output)(parts) if named is None else named(parts)

    def _with_hooks(self, by_argument: tuple[Any, ...], by_output: tuple[Any, ...]) -> Any:
        """The gradients by arguments as hooks want them."""
        for hook in tuple(self._backward_hooks.values()):
            found = hook(self, by_argument, by_output)
            if found is not None:
                found = found if isinstance(found, (tuple, list)) else (found,)
                if len(found) != len(by_argument):
                    raise GradientError(
                        f"a backward hook of {type(self).__name__} gives {len(found)} gradients by "
                        f"{len(by_argument)} arguments"
                    )
                by_argument = tuple(found)
        return by_argument

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


def _passed(tensors: list[Any], back: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """The same tensors, whose gradients go through a function together."""

    @custom_vjp
    def passed(*xs: Any) -> tuple[Any, ...]:
        return xs

    def forward(*xs: Any) -> tuple[Any, Any]:
        return xs, ()

    def backward(saved: Any, grads: Any) -> tuple[Any, ...]:
        return tuple(back(list(grads)))

    passed.defvjp(forward, backward)
    return list(passed(*tensors))


class HookedSteps:
    """What `Optimizer` inherits: hooks around steps, and around its state when it is saved and
    loaded.
    """

    def __init__(self) -> None:
        self._before: dict[Any, Callable[..., Any]] = {}
        self._behind: dict[Any, Callable[..., Any]] = {}
        self._state_hooks: dict[str, dict[Any, Callable[..., Any]]] = {}

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(optimizer, args, kwargs)` before every step: a pair that it gives are the
        arguments of the step instead. The result removes the hook again. Programs (`cb.jit`) call
        hooks when they are traced.
        """
        return registered(self._before, hook, "(optimizer, args, kwargs)")

    def register_step_post_hook(self, hook: Callable[..., Any]) -> Removal:
        """Call `hook(optimizer, args, kwargs)` after every step.

        Example:
            >>> from cubepy import nn
            >>> layer, steps = nn.Linear(2, 1), []
            >>> optimizer = nn.optim.SGD(layer.parameters())
            >>> handle = optimizer.register_step_post_hook(lambda *given: steps.append(1))
            >>> optimizer.step()
            >>> handle.remove()
            >>> optimizer.step()
            >>> steps
            [1]
        """
        return registered(self._behind, hook, "(optimizer, args, kwargs)")

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Removal:
        """Call `hook(optimizer)` before `state_dict` looks at the states; the result removes it
        again. With `prepend` it comes before the hooks that are there.
        """
        return self._of_states("before saving", hook, "(optimizer)", prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Removal:
        """Call `hook(optimizer, state_dict)` with what `state_dict` gives: it may change it, and
        what it gives, if it is not None, is given instead.

        Example:
            >>> from cubepy import nn
            >>> optimizer = nn.optim.SGD(nn.Linear(2, 1).parameters())
            >>> _ = optimizer.register_state_dict_post_hook(lambda o, state: {**state, "epoch": 3})
            >>> optimizer.state_dict()["epoch"]
            3
        """
        return self._of_states("saved", hook, "(optimizer, state_dict)", prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Removal:
        """Call `hook(optimizer, state_dict)` before a state is loaded: the dict is a shallow copy,
        which it may change, and what it gives, if it is not None, is loaded instead.
        """
        return self._of_states("before loading", hook, "(optimizer, state_dict)", prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> Removal:
        """Call `hook(optimizer)` when a state was loaded."""
        return self._of_states("loaded", hook, "(optimizer)", prepend)

    def _of_states(self, when: str, hook: Callable[..., Any], of: str, first: bool) -> Removal:
        return registered(self._state_hooks.setdefault(when, {}), hook, of, first)

    def _state_hooked(self, when: str, *state: Any) -> Any:
        """Call the hooks of a time with the optimizer and the state, where there is one: the state
        that they leave.
        """
        for hook in tuple(self._state_hooks.get(when, {}).values()):
            found = hook(self, *state)
            if state and found is not None:
                state = (found,)
        return state[0] if state else None


def hooked(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step of an optimizer between its hooks."""

    @wraps(step)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        for hook in tuple(self._before.values()):
            found = hook(self, args, kwargs)
            if found is not None:
                if type(found) is not tuple or len(found) != 2:
                    raise ArgumentError(
                        f"a hook before a step gives None or (args, kwargs), not {shown(found)}"
                    )
                args, kwargs = found
        result = step(self, *args, **kwargs)
        for hook in tuple(self._behind.values()):
            hook(self, args, kwargs)
        return result

    return run
