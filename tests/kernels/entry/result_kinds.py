"""Which kinds every public function gives back for arrays of another library, as JSON: launches do
nothing.

A program of its own (`python -m tests.kernels.entry.result_kinds`), because it stands in for
PyTorch and compiles nothing. With PyTorch itself, `python -m tests.kernels.entry.result_kinds
torch` runs all functions and compares their results.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

import numpy as np

from cubepy import kernels as K
from tests.kernels.entry.every_function import CALLS, DRAWS, PACKED, Call, takes_out, with_all


class Tensor:
    """What the library asks of a tensor of PyTorch in the memory of the host."""

    is_cuda, requires_grad, layout = False, False, "torch.strided"

    def __init__(self, held: np.ndarray) -> None:
        self.held, self.shape, self.dtype = held, held.shape, f"torch.{held.dtype.name}"

    def get_device(self) -> int:
        return -1

    def stride(self) -> tuple[int, ...]:
        return tuple(s // self.held.itemsize for s in self.held.strides)

    def __dlpack__(self, **options: Any) -> Any:
        return self.held.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.held.__dlpack_device__()

    def numpy(self) -> np.ndarray:
        return self.held


def stand_in() -> Any:
    """A module that is PyTorch to the library."""
    torch = types.ModuleType("torch")
    torch.Tensor, torch.from_numpy = Tensor, Tensor  # type: ignore[attr-defined]
    sys.modules["torch"] = torch
    return torch


def parts(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def wrong(name: str, call: Call, torch: Any, exactly: bool) -> list[str]:
    """What is not of the kind that came in."""
    function = getattr(K, name)
    plain_args, options = with_all(call, np.copy)
    args, kwargs = with_all(call, lambda a: torch.from_numpy(a.copy()))
    found = []
    expected, results = parts(function(*plain_args, **options)), parts(function(*args, **kwargs))
    for want, got in zip(expected, results, strict=True):
        if not isinstance(got, torch.Tensor):
            found.append(f"a result is {type(got).__name__}")
        elif exactly and name != "bernoulli" and not np.allclose(got.numpy(), want):
            found.append("a result differs")
    if takes_out(name) and not found:
        out = torch.from_numpy(np.array(expected[0]))
        if function(*args, **kwargs, out=out) is not out:
            found.append("out is not what comes back")
    return found


def main(real: bool) -> None:
    if real:
        import torch
    else:
        import tests.kernels.specialisations  # noqa: F401 - from here on nothing is compiled

        torch = stand_in()
    found = {n: wrong(n, call, torch, real) for n, call in CALLS.items() if n not in PACKED}
    for name, (args, kwargs) in DRAWS.items():
        out = torch.from_numpy(np.zeros(args[2], np.int64 if name == "randint" else np.float32))
        found[name] = [] if getattr(K, name)(*args, **kwargs, out=out) is out else ["out"]
    a, b = np.ones((2, 3), np.float32), torch.from_numpy(np.ones((3, 2), np.float32))
    found["mixed"] = [] if isinstance(K.matmul(a, b), torch.Tensor) else ["a result is NumPy's"]
    found["NumPy"] = [] if type(K.cumsum(a)) is np.ndarray else ["a result is not NumPy's"]
    print(json.dumps({name: problems for name, problems in found.items() if problems}))


if __name__ == "__main__":
    main("torch" in sys.argv[1:])
