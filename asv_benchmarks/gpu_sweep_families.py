"""Families of work with random shapes for `gpu_sweep`: what is called, ours and the peers'.

A case is a label, our call, and the peers' calls by their names. Calls take no arguments; each goes
through several sets of inputs in turn, together larger than the second-level cache. Lengths are
uniform in their logarithm; about half are rounded up to a multiple of 8, as many sizes of networks
are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle
from typing import Any

Case = tuple[str, Callable[[], Any], dict[str, Callable[[], Any]]]
CACHE = 120e6
LARGEST = 1 << 28
"""Bytes of an input, at most."""
KINDS = ("float32", "bfloat16", "float16")


def length(rng: random.Random, most: int, least: int = 1) -> int:
    """A length from `least` to `most`, uniform in its logarithm."""
    n = round(math.exp(rng.uniform(math.log(least), math.log(most))))
    return min(most, -(-n // 8) * 8) if rng.random() < 0.5 and n > 4 else n


def shape(rng: random.Random, itemsize: int) -> tuple[int, int]:
    """Rows and columns of 64 KB to 256 MB."""
    size = math.exp(rng.uniform(math.log(1 << 16), math.log(LARGEST))) / itemsize
    columns = length(rng, 65536, 2)
    return max(1, int(size / columns)), columns


def turns(size: float, draw: Callable[[], Any]) -> list[Any]:
    """As many sets of inputs of so many bytes as go beyond the cache."""
    return [draw() for _ in range(max(2, min(10, int(CACHE / max(size, 1)) + 1)))]


def over(sets: list[Any], call: Callable[..., Any]) -> Callable[[], Any]:
    """A call of the next set."""
    following = cycle(sets)
    return lambda: call(*next(following))


def _drawn(kind: str, *sizes: int) -> Any:
    import torch

    return torch.randn(*sizes, device="cuda", dtype=getattr(torch, kind))


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.compile(function, dynamic=True)  # type: ignore[no-any-return]


def products(kind: str, tf32: bool = False) -> Callable[[random.Random, int], Iterator[Case]]:
    """Matrix products of one dtype: M, N and K from 1 to 8192, the right matrix (N, K) or (K, N)."""

    def cases(rng: random.Random, count: int) -> Iterator[Case]:
        import torch

        from cubepy import kernels as K

        for _ in range(count):
            m, n, k = (length(rng, 8192) for _ in range(3))
            weight = rng.random() < 0.5
            size = (m * k + n * k + m * n) * getattr(torch, kind).itemsize

            def draw(m: int = m, n: int = n, k: int = k, weight: bool = weight) -> Any:
                return _drawn(kind, m, k), _drawn(kind, n, k).T if weight else _drawn(kind, k, n)

            torch.backends.cuda.matmul.allow_tf32 = tf32
            sets = turns(size, draw)
            ours = (lambda a, b: K.matmul(a, b, precision="tf32")) if tf32 else K.matmul
            yield (
                f"{m} x {n} x {k}, {'(N, K)' if weight else '(K, N)'}",
                over(sets, ours),
                {"torch": over(sets, torch.matmul)},
            )

    return cases


def _rms(x: Any, w: Any) -> Any:
    import torch

    return torch.nn.functional.rms_norm(x, (x.shape[1],), w)


def norms(rng: random.Random, count: int) -> Iterator[Case]:
    """layer_norm and rms_norm of rows, group_norm of images."""
    import torch

    from cubepy import kernels as K

    F = torch.nn.functional
    for _ in range(count):
        kind, what = rng.choice(KINDS), rng.choice(("layer_norm", "rms_norm", "group_norm"))
        itemsize = getattr(torch, kind).itemsize
        if what == "group_norm":
            groups, per, side = length(rng, 32), length(rng, 32), length(rng, 64, 2)
            one = groups * per * side**2 * itemsize
            n = max(1, int(min(rng.choice((2, 8, 32)), LARGEST / one)))
            channels = groups * per
            w, b = _drawn(kind, channels), _drawn(kind, channels)
            sets = turns(n * one, lambda n=n, c=channels, s=side, k=kind: (_drawn(k, n, c, s, s),))
            yield (
                f"group_norm {n} x {channels} x {side} x {side} in {groups}, {kind}",
                over(sets, lambda x, g=groups, w=w, b=b: K.group_norm(x, g, w, b)),
                {"torch": over(sets, lambda x, g=groups, w=w, b=b: F.group_norm(x, g, w, b))},
            )
            continue
        m, n = shape(rng, itemsize)
        w, b = _drawn(kind, n), _drawn(kind, n)
        sets = turns(m * n * itemsize, lambda m=m, n=n, k=kind: (_drawn(k, m, n),))
        label = f"{what} {m} x {n}, {kind}"
        if what == "rms_norm":
            peers = {
                "torch": over(sets, lambda x, w=w: _rms(x, w)),
                "torch.compile": over(sets, lambda x, w=w: _compiled(_rms)(x, w)),
            }
            yield label, over(sets, lambda x, n=n, w=w: K.rms_norm(x, n, w)), peers
        else:
            ours = over(sets, lambda x, n=n, w=w, b=b: K.layer_norm(x, n, w, b))
            yield (
                label,
                ours,
                {"torch": over(sets, lambda x, n=n, w=w, b=b: F.layer_norm(x, (n,), w, b))},
            )


def softmaxes(rng: random.Random, count: int) -> Iterator[Case]:
    """softmax and log_softmax of rows."""
    import torch

    from cubepy import kernels as K

    for _ in range(count):
        kind, what = rng.choice(KINDS), rng.choice(("softmax", "log_softmax"))
        itemsize = getattr(torch, kind).itemsize
        m, n = shape(rng, itemsize)
        sets = turns(m * n * itemsize, lambda m=m, n=n, k=kind: (_drawn(k, m, n),))
        ours, theirs = getattr(K, what), getattr(torch, what)
        peers = {"torch": over(sets, lambda x, f=theirs: f(x, 1))}
        yield f"{what} {m} x {n}, {kind}", over(sets, lambda x, f=ours: f(x, 1)), peers


def reductions(rng: random.Random, count: int) -> Iterator[Case]:
    """sum, max, mean and argmax of rows, of columns, and of all."""
    import torch

    from cubepy import kernels as K

    for _ in range(count):
        kind, what, axis = (
            rng.choice(KINDS),
            rng.choice(("sum", "max", "mean", "argmax")),
            rng.choice((0, 1, None)),
        )
        itemsize = getattr(torch, kind).itemsize
        m, n = shape(rng, itemsize)
        sets = turns(m * n * itemsize, lambda m=m, n=n, k=kind: (_drawn(k, m, n),))
        theirs = getattr(torch, "amax" if what == "max" and axis is not None else what)
        ours, place = getattr(K, what), () if axis is None else (axis,)
        yield (
            f"{what} {m} x {n} over {'all' if axis is None else axis}, {kind}",
            over(sets, lambda x, f=ours, a=axis: f(x, a)),
            {"torch": over(sets, lambda x, f=theirs, a=place: f(x, *a))},
        )


def _chain(x: Any, y: Any) -> Any:
    import torch

    return torch.nn.functional.gelu(x) * 2.0 + y


def elementwise(rng: random.Random, count: int) -> Iterator[Case]:
    """Maps of one and two arrays, a row added to a matrix, a chain in one pass."""
    import torch

    import cubepy as cb
    from cubepy import kernels as K

    @cb.func
    def chain(v, w):  # type: ignore[no-untyped-def]
        return K.functions.gelu_erf(v) * 2.0 + w

    F, f = torch.nn.functional, K.functions
    for _ in range(count):
        kind, what = rng.choice(KINDS), rng.choice(("gelu", "add", "row", "chain"))
        itemsize = getattr(torch, kind).itemsize
        m, n = shape(rng, itemsize)
        sets = turns(
            2 * m * n * itemsize, lambda m=m, n=n, k=kind: (_drawn(k, m, n), _drawn(k, m, n))
        )
        row = _drawn(kind, n)
        ours = {
            "gelu": lambda x, y: K.gelu(x), "add": lambda x, y: K.map(f.add, x, y),
            "row": lambda x, y, r=row: K.map(f.add, x, r), "chain": lambda x, y: K.map(chain, x, y),
        }[what]  # fmt: skip
        theirs = {
            "gelu": lambda x, y: F.gelu(x), "add": lambda x, y: x + y, "row": lambda x, y, r=row: x + r,
            "chain": lambda x, y: _chain(x, y),
        }[what]  # fmt: skip
        peers = {"torch": over(sets, theirs)}
        if what == "chain":
            peers["torch.compile"] = over(sets, lambda x, y: _compiled(_chain)(x, y))
        yield f"{what} {m} x {n}, {kind}", over(sets, ours), peers


def convolutions(rng: random.Random, count: int) -> Iterator[Case]:
    """conv2d of windows 1, 3, 5 and 7, channels last, f16, bf16, tf32 and f32."""
    import torch

    from cubepy import kernels as K

    torch.backends.cudnn.benchmark = True
    for _ in range(count):
        kind, window, stride = (
            rng.choice((*KINDS, "tf32")),
            rng.choice((1, 3, 3, 5, 7)),
            rng.choice((1, 1, 2)),
        )
        channels, filters = length(rng, 512, 3), length(rng, 512, 8)
        side, images = length(rng, 112, window), rng.choice((1, 4, 16, 64))
        dtype = "float32" if kind == "tf32" else kind
        place = images * side**2 * max(channels, filters)
        if place * 4 > LARGEST or place * min(channels, filters) * window**2 > 2e11:
            images = 1
        torch.backends.cudnn.allow_tf32 = kind == "tf32"
        precision = "tf32" if kind == "tf32" else None
        last = torch.channels_last
        w = (_drawn(dtype, filters, channels, window, window) * 0.1).to(memory_format=last)
        form = (images, channels, side, side)
        size = images * side**2 * (channels + filters) * w.itemsize
        sets = turns(size, lambda s=form, d=dtype, f=last: (_drawn(d, *s).to(memory_format=f),))
        settings = (stride, window // 2)
        yield (
            f"{window}x{window} {channels}-{filters} of ({images}, {side}, {side}), stride {stride}, {kind}",
            over(
                sets, lambda x, w=w, s=settings, p=precision: K.conv2d(x, w, None, *s, precision=p)
            ),
            {
                "torch": over(
                    sets, lambda x, w=w, s=settings: torch.nn.functional.conv2d(x, w, None, *s)
                )
            },
        )


FAMILIES: dict[str, Callable[[random.Random, int], Iterator[Case]]] = {
    "matmul, bf16": products("bfloat16"), "matmul, f16": products("float16"), "matmul, tf32": products("float32", True),
    "norms": norms, "softmax": softmaxes, "reductions": reductions, "elementwise": elementwise,
    "convolution": convolutions,
}  # fmt: skip
