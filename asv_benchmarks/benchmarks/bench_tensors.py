"""What tensors cost beside torch's: an op on one element, a view, a call of a program, a step inside
one; and groups of ops as programs, beside our own kernels of the same and torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import warmed
from benchmarks.peers import compiler, threads, torch_module

WIDTH = 64  # of a row of the smallest group
SIZES = ("64", "4096", "262144", "16777216")
STEPS = 65  # ops of the longer program, of which the time of a step is taken


class Group(NamedTuple):
    """Ops of one group.

    Attributes:
        ops: a function of a tensor of rows; written for both libraries.
        kernel: ours of the same, of an array; None where there is none.
    """

    ops: Callable[[Any], Any]
    kernel: Callable[[Any], Any] | None = None


@cache
def groups() -> dict[str, Group]:
    """The groups by name."""
    from cubepy import kernels as K

    def softmax(x: Any) -> Any:
        top = (x.amax if hasattr(x, "amax") else x.max)(-1, keepdims=True)
        e = (x - top).exp()
        return e / e.sum(-1, keepdims=True)

    def layer_norm(x: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred * ((centred * centred).mean(-1, keepdims=True) + 1e-5).rsqrt()

    def rms_norm(x: Any) -> Any:
        return x * ((x * x).mean(-1, keepdims=True) + 1e-5).rsqrt()

    def gelu(x: Any) -> Any:
        return x * 0.5 * ((x * 0.7978845608 * (1 + 0.044715 * x * x)).tanh() + 1)

    def gated(x: Any) -> Any:
        return x.sigmoid() * x * (x + 1)

    return {
        "softmax": Group(softmax, K.softmax),
        "layer_norm": Group(layer_norm, lambda x: K.layer_norm(x, x.shape[-1])),
        "rms_norm": Group(rms_norm),
        "gelu": Group(gelu),
        "gated": Group(gated),
    }


def rows(size: str) -> np.ndarray:
    """So many numbers as rows."""
    n = int(size)
    width = WIDTH if n <= 4096 else 1024
    return np.random.default_rng(0).standard_normal((n // width, width), np.float32)


class Groups:
    """A group of ops in one call."""

    params = (
        ("cubepy", "kernel", "torch", "torch.compile"),
        ("softmax", "layer_norm", "rms_norm", "gelu", "gated"),
        SIZES,
    )
    param_names = ("library", "group", "elements")
    timeout = 300

    def setup(self, library: str, name: str, size: str) -> None:
        """Trace, compile, warm."""
        import cubepy as cb

        group, x = groups()[name], rows(size)
        if library == "cubepy":
            program, tensor = cb.jit(group.ops), cb.tensor(x)
            self.run = warmed(lambda: program(tensor))
        elif library == "kernel":
            kernel = group.kernel
            if kernel is None:
                raise NotImplementedError(f"there is no kernel of {name}")
            self.run = warmed(lambda: kernel(x))
        else:
            torch = torch_module()
            torch.set_num_threads(threads())
            if library == "torch.compile" and compiler() is None:
                raise NotImplementedError("torch.compile needs a C++ compiler")
            run = torch.compile(group.ops) if library == "torch.compile" else group.ops
            given = torch.from_numpy(x)
            self.run = warmed(lambda: run(given))

    def time_group(self, library: str, name: str, size: str) -> None:
        """One call."""
        self.run()


def one(library: str, what: str) -> Callable[[], Any]:
    """An op on little, which is all overhead."""
    if library == "torch":
        x: Any = torch_module().ones(1)
        wide: Any = torch_module().ones(4, 4)
    else:
        import cubepy as cb

        x, wide = cb.tensor(np.ones(1, np.float32)), cb.tensor(np.ones((4, 4), np.float32))
    if what == "add":
        return warmed(lambda: x + x)
    if what == "view":
        return warmed(lambda: wide.reshape(16))
    return warmed(lambda: wide.transpose(0, 1))


class One:
    """What an op costs where nothing is to be done."""

    params = (("cubepy", "torch"), ("add", "view", "transpose"))
    param_names = ("library", "op")

    def setup(self, library: str, what: str) -> None:
        """Let it come a few times."""
        self.run = one(library, what)

    def time_op_on_one_element(self, library: str, what: str) -> None:
        """One op."""
        self.run()


@cache
def chain(steps: int) -> Callable[[], Any]:
    """A program of four tensors with so many launches: products, which do not fuse."""
    import cubepy as cb

    x = [cb.tensor(np.ones((16, 16), np.float32)) for _ in range(4)]

    @cb.jit
    def program(a: Any, b: Any, c: Any, d: Any) -> Any:
        total = a @ b
        for n in range(steps - 1):
            total = total @ (c, d)[n % 2]
        return total

    return warmed(lambda: program(*x))


class Program:
    """Calls of programs."""

    def setup(self) -> None:
        """Trace and warm."""
        self.short, self.long = chain(1), chain(STEPS)

    def time_program_of_four_tensors(self) -> None:
        """A call with one launch."""
        self.short()

    def time_program_of_65_launches(self) -> None:
        """Products of 16 x 16; less the call with one, a 64th of it is a step."""
        self.long()
