"""Memory-bound work on a GPU beside torch's: `python asv_benchmarks/gpu.py --only memory_bound`.

Inputs are 1 GiB of normal random numbers, twenty times the second-level cache, so every call reads
memory. Each pair is timed by events on one stream, interleaved, medians. Bytes are counted once for
each input and output; the share is that of torch's copy of 1 GiB in the same run. The error is the
norm of the difference to float64 over the norm, on the first rows, or the share of wrong elements
where results are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpu_timing import Case, Row, milliseconds, own_stream

ROUNDS, CALLS = 9, 3
GIB = 1 << 30
SIDE = 16384
LENGTHS = (1024, 4096, 16384)
SAMPLE = 1 << 22


@dataclass
class Work:
    """One line of the table: what runs, the bytes it must move, and how to tell the error."""

    name: str
    nbytes: int
    ours: Callable[[], Any]
    torch: Callable[[], Any]
    error: Callable[[Any], float]
    peer: str = "torch"


def in_turns(runs: tuple[Callable[[], Any], ...], stream: Any) -> list[float]:
    """The median time of one call, for each run."""
    import torch

    for run in runs:
        run()
        run()
    torch.cuda.synchronize()
    return milliseconds(runs, stream, ROUNDS, [CALLS] * len(runs))


def tensor(x: Any) -> Any:
    """A result of ours as a tensor of torch, without a copy."""
    import torch

    return x if isinstance(x, torch.Tensor) else torch.from_dlpack(x)


def near(right: Any, pick: Callable[[Any], Any] = lambda x: x) -> Callable[[Any], float]:
    """The distance of what `pick` takes of a result to float64."""
    return lambda got: float((pick(tensor(got)).double() - right).norm() / right.norm())


def equal(right: Callable[[], Any]) -> Callable[[Any], float]:
    """The share of elements that differ."""
    return lambda got: float((tensor(got) != right()).double().mean())


def flat() -> Iterator[Work]:
    """Elementwise functions, reductions and transposes."""
    import torch

    import cubepy as cb
    from cubepy import kernels as K

    @cb.func
    def chain(v):  # type: ignore[no-untyped-def]
        return K.functions.gelu_erf(v) * 2.0 + v

    F = torch.nn.functional
    x = torch.randn(GIB // 4, device="cuda")
    out = torch.empty_like(x)
    few = x[:SAMPLE].double()
    yield Work("copy", 2 * GIB, lambda: K.copy(x, out=out), lambda: out.copy_(x), equal(lambda: x))
    first = lambda r: r[:SAMPLE]
    yield Work(
        "gelu", 2 * GIB, lambda: K.gelu(x, out=out), lambda: F.gelu(x), near(F.gelu(few), first)
    )
    compiled = torch.compile(lambda v: F.gelu(v) * 2.0 + v)
    yield Work("gelu(x) * 2 + x in one pass", 2 * GIB, lambda: K.map(chain, x, out=out), lambda: compiled(x),
               near(F.gelu(few) * 2.0 + few, first), "torch.compile")  # fmt: skip
    yield Work("x + x", 2 * GIB, lambda: K.map(K.functions.add, x, x, out=out), lambda: torch.add(x, x, out=out),
               equal(lambda: x + x))  # fmt: skip
    square, target = x.view(SIDE, SIDE), out.view(SIDE, SIDE)
    line = torch.randn(SIDE, device="cuda")
    yield Work("x + row vector", 2 * GIB, lambda: K.map(K.functions.add, square, line, out=target),
               lambda: torch.add(square, line, out=target), equal(lambda: square + line))  # fmt: skip
    size = float(x.double().norm())
    for name, right in (("sum", x.double().sum()), ("mean", x.double().mean())):
        scale = size if name == "sum" else size / x.numel()
        yield Work(f"{name} of all", GIB, lambda n=name: getattr(K, n)(x), lambda n=name: getattr(x, n)(),
                   lambda got, r=right, s=scale: float((tensor(got).double() - r).abs()) / s)  # fmt: skip
    yield Work("max of all", GIB, lambda: K.max(x), lambda: x.max(), equal(lambda: x.max()))
    yield Work(
        "argmax of all", GIB, lambda: K.argmax(x), lambda: x.argmax(), equal(lambda: x.argmax())
    )
    for n in LENGTHS:
        rows = x.view(-1, n)
        yield Work(f"sum of rows of {n}", GIB, lambda a=rows: K.sum(a, 1), lambda a=rows: a.sum(1),
                   near(rows.double().sum(1)))  # fmt: skip
    yield Work(f"max of rows of {SIDE}", GIB, lambda: K.max(square, 1), lambda: square.amax(1),
               equal(lambda: square.amax(1)))  # fmt: skip
    yield Work(f"argmax of rows of {SIDE}", GIB, lambda: K.argmax(square, 1), lambda: square.argmax(1),
               equal(lambda: square.argmax(1)))  # fmt: skip
    for n in (1024, SIDE):
        rows = x.view(-1, n)
        yield Work(f"sum of {n} columns", GIB, lambda a=rows: K.sum(a, 0), lambda a=rows: a.sum(0),
                   near(rows.double().sum(0)))  # fmt: skip
    yield Work(f"argmax of {SIDE} columns", GIB, lambda: K.argmax(square, 0), lambda: square.argmax(0),
               equal(lambda: square.argmax(0)))  # fmt: skip
    yield Work("transpose", 2 * GIB, lambda: K.transpose(square, out=target), lambda: target.copy_(square.t()),
               equal(lambda: square.t()))  # fmt: skip
    stack, turned = x.view(64, 4096, 1024), out.view(64, 1024, 4096)
    yield Work("transpose of 64 matrices", 2 * GIB, lambda: K.transpose(stack, (0, 2, 1), out=turned),
               lambda: turned.copy_(stack.transpose(1, 2)), equal(lambda: stack.transpose(1, 2)))  # fmt: skip


def of_rows() -> Iterator[Work]:
    """Softmax and layer norm."""
    import torch

    from cubepy import kernels as K

    x = torch.randn(GIB // 4, device="cuda")
    out = torch.empty_like(x)
    F = torch.nn.functional
    for n in LENGTHS:
        rows, target = x.view(-1, n), out.view(-1, n)
        w, b = (torch.randn(n, device="cuda") for _ in range(2))
        few = rows[:512].double()
        part = lambda r: r[:512]
        yield Work(f"softmax of rows of {n}", 2 * GIB, lambda a=rows, t=target: K.softmax(a, out=t),
                   lambda a=rows: torch.softmax(a, 1), near(torch.softmax(few, 1), part))  # fmt: skip
        right = F.layer_norm(few, (n,), w.double(), b.double())
        yield Work(f"layer_norm of rows of {n}", 2 * GIB,
                   lambda a=rows, t=target, w=w, b=b, n=n: K.layer_norm(a, n, w, b, out=t),
                   lambda a=rows, w=w, b=b, n=n: F.layer_norm(a, (n,), w, b), near(right, part))  # fmt: skip


def narrow() -> Iterator[Work]:
    """The same in bf16."""
    import torch

    from cubepy import kernels as K

    F = torch.nn.functional
    h = torch.randn(GIB // 2, device="cuda", dtype=torch.bfloat16)
    result = torch.empty_like(h)
    few = h[:SAMPLE].double()
    yield Work("gelu, bf16", 2 * GIB, lambda: K.gelu(h, out=result), lambda: F.gelu(h),
               near(F.gelu(few), lambda r: r[:SAMPLE]))  # fmt: skip
    yield Work("sum of all, bf16", GIB, lambda: K.sum(h), lambda: h.sum(),
               lambda got: float((tensor(got).double() - h.double().sum()).abs() / h.float().norm()))  # fmt: skip
    rows, target = h.view(-1, 4096), result.view(-1, 4096)
    part = lambda r: r[:512]
    yield Work("softmax of rows of 4096, bf16", 2 * GIB, lambda: K.softmax(rows, out=target),
               lambda: torch.softmax(rows, 1), near(torch.softmax(rows[:512].double(), 1), part))  # fmt: skip
    w, b = (torch.randn(4096, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    right = F.layer_norm(rows[:512].double(), (4096,), w.double(), b.double())
    yield Work("layer_norm of rows of 4096, bf16", 2 * GIB, lambda: K.layer_norm(rows, 4096, w, b, out=target),
               lambda: F.layer_norm(rows, (4096,), w, b), near(right, part))  # fmt: skip
    wide, turned = h.view(SIDE, 2 * SIDE), result.view(2 * SIDE, SIDE)
    yield Work("transpose, bf16", 2 * GIB, lambda: K.transpose(wide, out=turned), lambda: turned.copy_(wide.t()),
               equal(lambda: wide.t()))  # fmt: skip


def measured(work: Work, best: float, stream: Any) -> Row:
    """A row of the table, which says so if the work fails; `best` is a copy's speed in bytes per
    millisecond.
    """
    import cubepy as cb

    try:
        error = work.error(work.ours())
    except (cb.CubeError, RuntimeError, TypeError, ValueError) as failed:
        return {"work": work.name, "ours": f"failed: {str(failed).splitlines()[0][:160]}"}
    mine, theirs = in_turns((work.ours, work.torch), stream)
    speed = work.nbytes / mine
    return {
        "work": work.name, "ms": (mine, theirs),
        "ours": f"{mine:.3f} ms, {speed / 1e9:.2f} TB/s ({speed / best:.0%} of copy)",
        "peer": f"{work.peer} {theirs:.3f} ms, {work.nbytes / theirs / 1e9:.2f} TB/s",
        "ratio": f"{theirs / mine:.2f}x", "error": f"{error:.1e}",
    }  # fmt: skip


def copy_speed(stream: Any) -> float:
    """Bytes that torch's copy reads and writes in a millisecond."""
    import torch

    a = torch.randn(GIB // 4, device="cuda")
    b = torch.empty_like(a)
    return 2 * GIB / in_turns((lambda: b.copy_(a),), stream)[0]


def family(works: Callable[[], Iterator[Work]], suffix: str = "") -> Case:
    """The case of several works, with the share of what torch's copy reaches; what they allocate is
    freed then.
    """

    def case(device: str) -> Iterator[Row]:
        import torch

        with own_stream(device) as own:
            best = copy_speed(own)
            for work in works():
                yield measured(replace(work, name=work.name + suffix), best, own)
        torch.cuda.empty_cache()

    return case


CASES = {"maps, reductions, transposes": family(flat, ", 1 GiB"), "rows": family(of_rows, ", 1 GiB"),
         "bf16": family(narrow, ", 1 GiB")}  # fmt: skip
