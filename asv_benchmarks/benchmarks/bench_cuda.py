"""What a GPU does, beside torch: host time and the GPU's together, waited for after each call.

Cells are skipped where there is no GPU or no torch. The table of docs/benchmarks/h200.md (`gpu.py`)
times by events and has many more rows; these follow the main ones over commits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from benchmarks.cases import warmed
from benchmarks.peers import torch_module
from benchmarks.suites import suites

LIBRARIES = ("cubepy", "torch")


@dataclass(frozen=True)
class CudaWork:
    """One operation.

    Attributes:
        shapes: the shapes that are timed, numbers joined by "x".
        data: takes torch and the numbers, gives tensors on the GPU.
        ours, torch: take the library (`cubepy.kernels`, torch) and the tensors; what is timed.
    """

    shapes: tuple[str, ...]
    data: Callable[..., tuple[Any, ...]]
    ours: Callable[..., Any]
    torch: Callable[..., Any]


def _draw(dtype: str, *layouts: Callable[..., tuple[int, ...]]) -> Callable[..., tuple[Any, ...]]:
    def data(torch: Any, *numbers: int) -> tuple[Any, ...]:
        return tuple(
            torch.randn(layout(*numbers), device="cuda", dtype=torch.float32).to(
                getattr(torch, dtype)
            )
            for layout in layouts
        )

    return data


_ALL = (lambda *numbers: numbers,)
_HEADS = (lambda b, h, n, d: (b, h, n, d),) * 3
_PRODUCT = (lambda m, n, k: (m, k), lambda m, n, k: (k, n))

WORKS: dict[str, CudaWork] = {
    "cuda_matmul_bf16": CudaWork(
        ("1024x1024x1024", "4096x4096x4096", "4096x4097x4095", "16x4096x4096"), _draw("bfloat16", *_PRODUCT),
        lambda K, a, b: K.matmul(a, b), lambda torch, a, b: torch.matmul(a, b),
    ),
    "cuda_matmul_f32": CudaWork(
        ("1024x1024x1024",), _draw("float32", *_PRODUCT), lambda K, a, b: K.matmul(a, b),
        lambda torch, a, b: torch.matmul(a, b),
    ),
    "cuda_attention_bf16": CudaWork(
        ("4x16x2048x64", "4x16x4096x128"), _draw("bfloat16", *_HEADS), lambda K, q, k, v: K.attention(q, k, v),
        lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v),
    ),
    "cuda_softmax": CudaWork(
        ("8192x4096", "8192x1000", "512x50257"), _draw("float32", *_ALL), lambda K, x: K.softmax(x),
        lambda torch, x: torch.softmax(x, -1),
    ),
    "cuda_add": CudaWork(
        ("16x16", "8192x8192"), _draw("float32", *_ALL), lambda K, x: K.add(x, x), lambda torch, x: torch.add(x, x),
    ),
    "cuda_sum": CudaWork(
        ("8192x8192",), _draw("float32", *_ALL), lambda K, x: K.sum(x), lambda torch, x: torch.sum(x),
    ),
    "cuda_sort": CudaWork(
        ("4194304",), _draw("float32", *_ALL), lambda K, x: K.sort(x), lambda torch, x: torch.sort(x)[0],
    ),
}  # fmt: skip


@cache
def _torch() -> Any:
    torch = torch_module()
    if not torch.cuda.is_available():
        raise NotImplementedError("there is no GPU that torch sees")
    return torch


def case(op: str, library: str, shape: str) -> Callable[[], Any]:
    """A function that does the work once and waits for it, warmed.

    Raises:
        NotImplementedError: no GPU, or no torch, which makes the data: asv skips the cell.
    """
    import cubepy as cb
    from cubepy import kernels as K

    torch, work = _torch(), WORKS[op]
    tensors = work.data(torch, *(int(n) for n in shape.split("x")))
    if library == "torch":

        def theirs() -> None:
            work.torch(torch, *tensors)
            torch.cuda.synchronize()

        return warmed(theirs)

    def ours() -> None:
        work.ours(K, *tensors)
        cb.sync()

    return warmed(ours)


globals().update(suites(WORKS, LIBRARIES, case))
