"""Order, pools, scans, interpolation, movement and random numbers on a GPU beside torch's:
`python asv_benchmarks/gpu.py --only library`.

Timed like `gpu_memory_bound`. Bytes are counted once for each input and output, so a sort, which
goes over its data several times, cannot reach the speed of a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpu_memory_bound import GIB, SIDE, Work, equal, family, near, tensor


def _order() -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    for n in (1 << 20, 1 << 24, 1 << 27):
        x = torch.randn(n, device="cuda")
        size = f"{n >> 20} Mi numbers"
        yield Work(f"sort of {size}", 8 * n, lambda x=x: K.sort(x), lambda x=x: torch.sort(x)[0],
                   equal(lambda x=x: torch.sort(x)[0]))  # fmt: skip
        if n < 1 << 27:
            order = lambda x=x: torch.argsort(x, stable=True)
            yield Work(f"argsort of {size}", 12 * n, lambda x=x: K.argsort(x), order, equal(order))
        yield Work(f"largest 100 of {size}", 4 * n, lambda x=x: K.topk(x, 100)[0], lambda x=x: torch.topk(x, 100)[0],
                   equal(lambda x=x: torch.topk(x, 100)[0]))  # fmt: skip
    for shape in ((16384, 1024), (4096, 16384)):
        rows = torch.randn(shape, device="cuda")
        size = f"rows of {shape[1]}, {shape[0]} of them"
        yield Work(f"sort of {size}", 8 * rows.numel(), lambda x=rows: K.sort(x), lambda x=rows: torch.sort(x)[0],
                   equal(lambda x=rows: torch.sort(x)[0]))  # fmt: skip
        yield Work(f"largest 32 of {size}", 4 * rows.numel(), lambda x=rows: K.topk(x, 32)[0],
                   lambda x=rows: torch.topk(x, 32)[0], equal(lambda x=rows: torch.topk(x, 32)[0]))  # fmt: skip


def _scans() -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    x = torch.randn(GIB // 4, device="cuda")
    out = torch.empty_like(x)
    square, target = x.view(SIDE, SIDE), out.view(SIDE, SIDE)
    size = float(x[: 1 << 22].double().norm())
    right = x[: 1 << 22].double().cumsum(0)
    yield Work("cumsum of all, 1 GiB", 2 * GIB, lambda: K.cumsum(x, 0, out=out), lambda: torch.cumsum(x, 0, out=out),
               lambda got: float((tensor(got)[: 1 << 22].double() - right).abs().max()) / size)  # fmt: skip
    yield Work("cumsum of rows of 16384, 1 GiB", 2 * GIB, lambda: K.cumsum(square, 1, out=target),
               lambda: torch.cumsum(square, 1, out=target),
               near(square[:256].double().cumsum(1), lambda r: r[:256]))  # fmt: skip
    rows, short = x.view(-1, 1024), out.view(-1, 1024)
    yield Work("cumsum of rows of 1024, 1 GiB", 2 * GIB, lambda: K.cumsum(rows, 1, out=short),
               lambda: torch.cumsum(rows, 1, out=short),
               near(rows[:4096].double().cumsum(1), lambda r: r[:4096]))  # fmt: skip
    yield Work("cumsum of 16384 columns, 1 GiB", 2 * GIB, lambda: K.cumsum(square, 0, out=target),
               lambda: torch.cumsum(square, 0, out=target),
               near(square[:, :256].double().cumsum(0), lambda r: r[:, :256]))  # fmt: skip


def _largest(first: Any, label: str, windows: tuple[tuple[int, int, int], ...]) -> Iterator[Work]:
    """Max pools of 1 GiB in both layouts; windows are a length, a stride and a padding."""
    import torch

    from cubepy import kernels as K

    n, c, side, _ = first.shape
    last = first.to(memory_format=torch.channels_last)
    view = last.permute(0, 2, 3, 1)
    for kernel, stride, pad in windows:
        name = f"{kernel}x{kernel}, stride {stride}{label}"
        moved = GIB + first.itemsize * n * c * ((side + 2 * pad - kernel) // stride + 1) ** 2
        theirs = lambda x, k=kernel, s=stride, p=pad: torch.nn.functional.max_pool2d(x, k, s, p)
        yield Work(f"max_pool2d {name}, channels first", moved,
                   lambda k=kernel, s=stride, p=pad: K.max_pool2d(first, k, s, p), lambda f=theirs: f(first),
                   equal(lambda f=theirs: f(first)))  # fmt: skip
        yield Work(f"max_pool2d {name}, channels last", moved,
                   lambda k=kernel, s=stride, p=pad: K.max_pool2d(view, k, s, p, layout="NHWC"),
                   lambda f=theirs: f(last), equal(lambda f=theirs: f(last).permute(0, 2, 3, 1)))  # fmt: skip


def _pools() -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    F = torch.nn.functional
    n, c, side = 64, 64, 256
    first = torch.randn(n, c, side, side, device="cuda")
    last = first.to(memory_format=torch.channels_last)
    view = last.permute(0, 2, 3, 1)
    yield from _largest(
        first, "", ((2, 2, 0), (3, 2, 1), (5, 1, 2), (7, 1, 3), (13, 1, 6), (13, 2, 6), (20, 1, 0))
    )
    narrow = torch.cat((first, first)).bfloat16()
    yield from _largest(narrow, " bf16", ((5, 1, 2), (7, 1, 3), (13, 1, 6)))
    del narrow
    few = F.avg_pool2d(first[:4].double(), 3, 2, 1)
    moved = GIB + GIB // 4
    yield Work("avg_pool2d 3x3, stride 2, channels first", moved, lambda: K.avg_pool2d(first, 3, 2, 1),
               lambda: F.avg_pool2d(first, 3, 2, 1), near(few, lambda r: r[:4]))  # fmt: skip
    yield Work("avg_pool2d 3x3, stride 2, channels last", moved, lambda: K.avg_pool2d(view, 3, 2, 1, layout="NHWC"),
               lambda: F.avg_pool2d(last, 3, 2, 1), near(few.permute(0, 2, 3, 1), lambda r: r[:4]))  # fmt: skip
    whole = first[:4].double().mean((2, 3), keepdim=True)
    yield Work("adaptive_avg_pool2d to 1x1, channels first", GIB, lambda: K.adaptive_avg_pool2d(first, 1),
               lambda: F.adaptive_avg_pool2d(first, 1), near(whole, lambda r: r[:4]))  # fmt: skip
    yield from _parts(first, last)
    volume = first.view(n, 1, c, side, side)
    yield Work("max_pool3d 3x3x3, stride 1, channels first", 2 * GIB, lambda: K.max_pool3d(volume, 3, 1, 1),
               lambda: F.max_pool3d(volume, 3, 1, 1), equal(lambda: F.max_pool3d(volume, 3, 1, 1)))  # fmt: skip
    yield from _pool_gradients(first)


def _parts(first: Any, last: Any) -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    view = last.permute(0, 2, 3, 1)
    for parts, kind in ((16, "even"), (25, "uneven")):
        moved = GIB + 4 * first.shape[0] * first.shape[1] * parts * parts
        for function in ("adaptive_max_pool2d", "adaptive_avg_pool2d"):
            mine, theirs = getattr(K, function), getattr(torch.nn.functional, function)
            name, right = (
                f"{function}, {parts}x{parts} {kind} parts",
                theirs(first[:4].double(), parts),
            )
            yield Work(f"{name}, channels first", moved, lambda f=mine, m=parts: f(first, m),
                       lambda f=theirs, m=parts: f(first, m), near(right, lambda r: r[:4]))  # fmt: skip
            yield Work(f"{name}, channels last", moved, lambda f=mine, m=parts: f(view, m, layout="NHWC"),
                       lambda f=theirs, m=parts: f(last, m),
                       near(right.permute(0, 2, 3, 1), lambda r: r[:4]))  # fmt: skip


def _pool_gradients(x: Any) -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    F = torch.nn.functional
    shape = tuple(x.shape)
    _, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    grad = torch.randn(places.shape, device="cuda")
    back = torch.ops.aten.max_pool2d_with_indices_backward
    theirs = lambda: back(grad, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places)
    yield Work("max_pool2d 3x3, stride 2, with places", GIB + 3 * GIB // 4,
               lambda: K.max_pool2d(x, 3, 2, 1, return_indices=True)[1],
               lambda: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1], equal(lambda: places))  # fmt: skip
    yield Work("gradient of max_pool2d 3x3, stride 2", GIB + 3 * GIB // 4,
               lambda: K.max_pool2d_input(shape, grad, places, 3, 2, 1), theirs,
               near(theirs()[:4].double(), lambda r: r[:4]))  # fmt: skip
    mean = torch.ops.aten.avg_pool2d_backward
    their_mean = lambda: mean(grad, x, [3, 3], [2, 2], [1, 1], False, True, None)
    yield Work("gradient of avg_pool2d 3x3, stride 2", GIB + GIB // 4,
               lambda: K.avg_pool2d_input(shape, grad, 3, 2, 1), their_mean,
               near(their_mean()[:4].double(), lambda r: r[:4]))  # fmt: skip


def _resampled() -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    F = torch.nn.functional
    x = torch.randn(16, 64, 256, 256, device="cuda")
    last = x.to(memory_format=torch.channels_last)
    view = last.permute(0, 2, 3, 1)
    moved = GIB // 4 + GIB
    aten = torch.ops.aten
    for mode in ("nearest", "bilinear", "bicubic"):
        theirs = lambda a, m=mode: F.interpolate(a, size=(512, 512), mode=m)
        right = theirs(x[:1].double())
        yield Work(f"{mode} to twice the size, channels first", moved,
                   lambda m=mode: K.interpolate(x, (512, 512), mode=m), lambda f=theirs: f(x),
                   near(right, lambda r: r[:1]))  # fmt: skip
        if mode != "bicubic":
            yield Work(f"{mode} to twice the size, channels last", moved,
                       lambda m=mode: K.interpolate(view, (512, 512), mode=m, layout="NHWC"),
                       lambda f=theirs: f(last), near(right.permute(0, 2, 3, 1), lambda r: r[:1]))  # fmt: skip
        grad = torch.randn(16, 64, 512, 512, device="cuda")
        size = list(x.shape)
        if mode == "nearest":
            back = lambda g=grad, s=size: aten.upsample_nearest2d_backward(
                g, [512, 512], s, None, None
            )
        else:
            call = getattr(aten, f"upsample_{mode}2d_backward")
            back = lambda g=grad, s=size, f=call: f(g, [512, 512], s, False, None, None)
        yield Work(f"gradient of {mode} to twice the size", moved,
                   lambda g=grad, m=mode: K.interpolate_input(tuple(x.shape), g, mode=m), back,
                   near(back()[:1].double(), lambda r: r[:1]))  # fmt: skip


def _movement() -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    F = torch.nn.functional
    x = torch.randn(SIDE, SIDE, device="cuda")
    half = x[: SIDE // 2]
    yield Work("flip of both axes, 1 GiB", 2 * GIB, lambda: K.flip(x), lambda: torch.flip(x, (0, 1)),
               equal(lambda: torch.flip(x, (0, 1))))  # fmt: skip
    yield Work("concat of rows, 1 GiB", 2 * GIB, lambda: K.concat((half, half), 1),
               lambda: torch.cat((half, half), 1), equal(lambda: torch.cat((half, half), 1)))  # fmt: skip
    yield Work("pad by one on all sides, 1 GiB", 2 * GIB, lambda: K.pad(x, (1, 1, 1, 1)),
               lambda: F.pad(x, (1, 1, 1, 1)), equal(lambda: F.pad(x, (1, 1, 1, 1))))  # fmt: skip
    four = x.view(16, 64, 512, 512)
    yield Work("permute (0, 2, 3, 1), 1 GiB", 2 * GIB, lambda: K.transpose(four, (0, 2, 3, 1)),
               lambda: four.permute(0, 2, 3, 1).contiguous(), equal(lambda: four.permute(0, 2, 3, 1)))  # fmt: skip
    rows = torch.randint(0, SIDE, (SIDE,), device="cuda")
    yield Work("embedding, rows of 16384, 1 GiB", 2 * GIB, lambda: K.embedding(rows, x), lambda: F.embedding(rows, x),
               equal(lambda: F.embedding(rows, x)))  # fmt: skip
    table = x.view(-1, 128)
    picks = torch.randint(0, len(table), (len(table),), device="cuda")
    yield Work("embedding, rows of 128, 1 GiB", 2 * GIB, lambda: K.embedding(picks, table),
               lambda: F.embedding(picks, table), equal(lambda: F.embedding(picks, table)))  # fmt: skip
    index = torch.randint(0, SIDE, (SIDE, SIDE // 4), device="cuda")
    touched = torch.zeros(SIDE, SIDE // 8, dtype=torch.bool, device="cuda").scatter_(
        1, index // 8, True
    )
    moved = index.numel() * (8 + 4) + 32 * int(
        touched.sum()
    )  # memory is read by pieces of 32 bytes
    yield Work("gather along rows", moved, lambda: K.gather(x, 1, index), lambda: torch.gather(x, 1, index),
               equal(lambda: torch.gather(x, 1, index)))  # fmt: skip
    added = torch.randn(SIDE, SIDE // 4, device="cuda")
    right = lambda: x.scatter_add(1, index, added)
    yield Work("scatter_add along rows", 2 * GIB + index.numel() * 12, lambda: K.scatter(x, 1, index, added, "add"),
               right, near(right()[:64].double(), lambda r: r[:64]))  # fmt: skip


def _random() -> Iterator[Work]:
    import torch

    from cubepy import kernels as K

    out = torch.empty(GIB // 4, device="cuda")
    mean = lambda right: lambda got: float((tensor(got).double().mean() - right).abs())
    yield Work("uniform, 1 GiB", GIB, lambda: K.uniform(out=out), lambda: out.uniform_(), mean(0.5))
    yield Work("normal, 1 GiB", GIB, lambda: K.normal(out=out), lambda: out.normal_(), mean(0.0))


CASES = {
    "sorts": family(_order),
    "scans": family(_scans),
    "pools": family(_pools),
    "interpolation": family(_resampled),
    "movement": family(_movement),
    "random numbers": family(_random),
}
