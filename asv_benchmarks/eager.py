"""Ops of tensors forward and backward, one after the other without `cb.jit`, beside torch's.

    python asv_benchmarks/eager.py                        # every row, torch in this environment
    python asv_benchmarks/eager.py --torch /other/python  # torch of another one
    python asv_benchmarks/eager.py --only softmax --below 0.5

Each library runs in a process of its own; rows are timed in turns, and the least time counts. The
threads are those of OMP_NUM_THREADS and CUBEPY_NUM_THREADS. Above 1 we are faster.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

SIZES = {"tiny": 256, "64 KB": 1 << 14, "8 MB": 1 << 21}
"""Elements of the first argument, about."""
ROUNDS = 4

UNARY = "relu gelu silu elu leaky_relu softplus mish hardswish logsigmoid tanh sigmoid exp log sqrt"
UNARY += " rsqrt sin cos abs square erf neg"
BINARY = "add sub mul div maximum minimum pow"
REDUCED = "sum mean amax var std logsumexp prod norm cumsum sort topk median"
LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits kl_div"
LOSSES += " cosine_similarity pairwise_distance"


class Sweep:
    """Rows of one library.

    Args:
        name: "cubepy" or "torch".
    """

    def __init__(self, name: str) -> None:
        if name == "torch":
            import torch
            from torch.nn import functional

            self.lib, self.leaf = (
                torch,
                lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"),
            )
        else:
            import cubepy as cb
            from cubepy.nn import functional

            self.lib, self.leaf = cb, lambda a: cb.tensor(a, requires_grad=a.dtype.kind == "f")
        self.name, self.F = name, functional
        self.rng = np.random.default_rng(0)

    def some(self, *shape: int) -> Any:
        """A leaf of positive floats."""
        return self.leaf(self.rng.uniform(0.1, 1, shape).astype(np.float32))

    def whole(self, most: int, *shape: int) -> Any:
        """Integers below a bound."""
        return self.leaf(self.rng.integers(0, most, shape))

    def rows(self, count: int) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Functions and what they are given, by name."""
        F, some, whole = self.F, self.some, self.whole
        n = int(math.sqrt(count))
        side = max(4, int(math.sqrt(count / 8)) // 2)
        image = (2, 16, side, side)
        made: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}
        x = some(n, n)
        for op in UNARY.split():
            f = getattr(F, op, None) or (lambda t, op=op: getattr(t, op)())
            made[op] = f, (x,)
        for op in BINARY.split():
            made[op] = lambda a, b, op=op: getattr(a, op)(b), (x, some(n, n))
            made[f"{op}, a row"] = lambda a, b, op=op: getattr(a, op)(b), (x, some(n))
        made["mul by a number"] = lambda a: a * 0.5, (x,)
        made["where"] = lambda a, b: self._where(a > 0.5, a, b), (x, some(n, n))
        made["clamp"] = lambda a: a.clamp(0.2, 0.8), (x,)
        for op in REDUCED.split():
            made[op] = self._reduced(op), (x,)
        for name, f in {
            "sum, axis 0": lambda a: a.sum(0),
            "reshape": lambda a: a.reshape(-1),
            "transpose": lambda a: a.transpose(0, 1) * 1.0,
            "slice": lambda a: a[1:, ::2],
            "chunk": lambda a: a.chunk(2, -1)[1],
            "expand": lambda a: a.unsqueeze(0).expand(2, n, n),
            "softmax": lambda a: F.softmax(a, -1),
            "log_softmax": lambda a: F.log_softmax(a, -1),
            "normalize": lambda a: F.normalize(a, dim=-1),
            "matmul": lambda a: a @ a,
            "pad": lambda a: F.pad(a, (1, 1)),
            "dropout": lambda a: F.dropout(a, 0.5, True),
        }.items():
            made[name] = f, (x,)
        made["concat"] = lambda a, b: self._concat([a, b]), (x, some(n, n))
        made["stack"] = (
            lambda a, b: self.lib.stack([a, b]) if self.name == "torch" else self._stack([a, b]),
            (x, some(n, n)),
        )
        made["layer_norm"] = lambda a, w, b: F.layer_norm(a, (n,), w, b), (x, some(n), some(n))
        made["rms_norm"] = lambda a, w: F.rms_norm(a, (n,), w), (x, some(n))
        made["linear"] = F.linear, (x, some(n, n), some(n))
        made["linear, 10 of a row"] = F.linear, (x, some(10, n), some(10))
        made["bmm"] = lambda a, b: a @ b, (some(8, side, side), some(8, side, side))
        made["embedding"] = F.embedding, (whole(1000, count // 32), some(1000, 32))
        made["gather"] = lambda a, i: a.gather(1, i), (x, whole(n, n, n))
        made["gather, one of a row"] = lambda a, i: a.gather(1, i), (x, whole(n, n, 1))
        made["index rows"] = lambda a, i: a[i], (x, whole(n, n))
        made["index pairs"] = lambda a, i, j: a[i, j], (x, whole(n, n), whole(n, n))
        made["index by a mask"] = lambda a: a[a > 0.5], (x,)
        made["median of all"] = lambda a: a.median(), (x,)
        made["tril"] = lambda a: a.tril(), (x,)
        for loss in LOSSES.split():
            made[loss] = getattr(F, loss), (x, some(n, n))
        made["cross_entropy"] = F.cross_entropy, (x, whole(n, n))
        made["nll_loss"] = F.nll_loss, (x, whole(n, n))
        for name, k in (("conv2d 3x3", 3), ("conv2d 1x1", 1)):
            made[name] = (
                lambda a, w, b, k=k: F.conv2d(a, w, b, padding=k // 2),
                (some(*image), some(16, 16, k, k), some(16)),
            )
        line = (2, 16, side * side)
        made["conv1d 5"] = lambda a, w: F.conv1d(a, w, padding=2), (some(*line), some(16, 16, 5))
        made["conv_transpose2d"] = (
            lambda a, w: F.conv_transpose2d(a, w, stride=2),
            (some(*image), some(16, 8, 2, 2)),
        )
        made["max_pool2d"] = lambda a: F.max_pool2d(a, 2), (some(*image),)
        made["avg_pool2d"] = lambda a: F.avg_pool2d(a, 2), (some(*image),)
        made["adaptive_avg_pool2d"] = lambda a: F.adaptive_avg_pool2d(a, 1), (some(*image),)
        made["batch_norm"] = (
            lambda a, w, b: F.batch_norm(a, None, None, w, b, training=True),
            (some(*image), some(16), some(16)),
        )
        made["group_norm"] = (
            lambda a, w, b: F.group_norm(a, 4, w, b),
            (some(*image), some(16), some(16)),
        )
        made["interpolate"] = lambda a: F.interpolate(a, scale_factor=2), (some(*image),)
        made["grid_sample"] = (
            lambda a, g: F.grid_sample(a, g, align_corners=False),
            (some(*image), some(2, side, side, 2)),
        )
        heads = (2, 4, max(4, count // 256), 32)
        if count <= 1 << 14:
            made["attention"] = F.scaled_dot_product_attention, (some(*heads),) * 3
        return made

    def _where(self, mask: Any, a: Any, b: Any) -> Any:
        if self.name == "torch":
            return self.lib.where(mask, a, b)
        from cubepy.tensor.namespace import where

        return where(mask, a, b)

    def _concat(self, parts: list[Any]) -> Any:
        if self.name == "torch":
            return self.lib.cat(parts, 1)
        from cubepy.tensor.namespace import concat

        return concat(parts, axis=1)

    def _stack(self, parts: list[Any]) -> Any:
        from cubepy.tensor.namespace import stack

        return stack(parts)

    def _reduced(self, op: str) -> Callable[[Any], Any]:
        if op == "topk":
            return lambda a: a.topk(4, -1)[0]
        if op == "sort" or op == "median":
            return lambda a: getattr(a, op)(-1)[0]
        if op == "norm":
            return lambda a: (a * a).sum(-1).sqrt()
        return lambda a: getattr(a, op)(-1)

    def prepare(self, size: str) -> list[str]:
        """Get rows of a size ready; gives their names."""
        self.ready = self.rows(SIZES[size])
        self.runs: dict[str, Callable[[], Any]] = {}
        return [*self.ready]

    def least(self, name: str, seconds: float) -> float:
        """The least time of a forward and a backward pass of a row, in microseconds."""
        function, given = self.ready[name]
        leaves = [t for t in given if t.requires_grad]
        seed = self.runs.get(name)
        result = function(*given)
        if seed is None:
            seed = self.leaf(self.rng.uniform(0.1, 1, tuple(result.shape)).astype(np.float32))
            seed = self.runs[name] = seed.detach()
            for _ in range(30 if result.shape and math.prod(result.shape) < 1 << 16 else 4):
                self._once(function, given, leaves, seed)
        times, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 3:
            begin = time.perf_counter()
            self._once(function, given, leaves, seed)
            times.append(time.perf_counter() - begin)
        return min(times) * 1e6

    def _once(self, function: Any, given: Any, leaves: Any, seed: Any) -> None:
        function(*given).backward(seed)
        for leaf in leaves:
            leaf.grad = None


def serve(name: str) -> None:
    """Answer questions of the other process, a line each."""
    if name == "torch":
        import os

        import torch

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sweep = Sweep(name)
    for line in sys.stdin:
        what, *rest = json.loads(line)
        try:
            answer: Any = getattr(sweep, what)(*rest)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:90]
        print(json.dumps(answer), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--torch", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--only", default="", help="rows whose name begins so")
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--below", type=float, default=math.inf, help="show ratios below this")
    parser.add_argument(
        "--seconds", type=float, default=0.03, help="of a row, a library and a turn"
    )
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    pythons = {"cubepy": sys.executable, "torch": options.torch}
    pipes = {
        name: subprocess.Popen(
            [python, __file__, "--serve", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, python in pythons.items()
    }

    def ask(name: str, *question: Any) -> Any:
        process = pipes[name]
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    print("| op | elements | cubepy us | torch us | ratio |\n|---|---|---|---|---|")
    for size in options.size or SIZES:
        rows = [ask(library, "prepare", size) for library in pipes]
        for name in rows[0]:
            if not name.startswith(options.only):
                continue
            found: dict[str, Any] = {}
            for _ in range(ROUNDS):
                for library in pipes:
                    now = ask(library, "least", name, options.seconds)
                    before = found.get(library, now)
                    found[library] = now if isinstance(now, str) else min(now, before)
            ours, theirs = found["cubepy"], found["torch"]
            if isinstance(ours, str) or isinstance(theirs, str):
                print(f"| {name} | {size} | {ours} | {theirs} | |", flush=True)
            elif theirs / ours < options.below:
                print(
                    f"| {name} | {size} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.2f} |",
                    flush=True,
                )
    for process in pipes.values():
        assert process.stdin
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    main()
