"""A program in so much memory: what does not fit until it is read again is computed a second time.

The steps run in their order. Where what they keep would take more than the bound, a value goes: the
one that costs the least work to have back, for its bytes and for how long nobody reads it (the rule
of dynamic tensor rematerialization, Kirisame et al. 2021, with the next use known). Before the step
that reads it, the steps that lead to it run again, from what is there. They are the same steps on
the same values, so results are the same bits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable

from cubepy.tensor.ir import ABSENT, Graph, Node, renumbered
from cubepy.tensor.ops import OPS, Spec

FREE = frozenset({"input", "constant"})
"""What is there anyway."""
VIEWS = frozenset({"permute", "slice", "expand", "detach", "after"})
"""The same memory with other strides."""
ONCE = frozenset({"launch", "cond", "scan"})
"""What does not run again: it may take long, or give other bits."""
LAUNCH, BYTES, FLOPS = 1e-6, 2e10, 1e11  # seconds; a second on a core
MOST = 2  # times that a step runs, on average: with more a bound is too small
WIDER = 1.2  # times a bound that is too small
SEARCHED = 64  # steps that a search for the price of a value looks at


def work_of(node: Node, inputs: list[Spec]) -> float:
    """About how many seconds a step takes."""
    moved = sum(bytes_of(s) for s in (*inputs, *node.results))
    size, flops = math.prod(node.shape), 0.0
    if node.op in ("matmul", "linear") and inputs[0].shape:
        flops = 2.0 * size * inputs[0].shape[-1]
    elif node.op.startswith("conv") and len(inputs) > 1:
        flops = 2.0 * max(math.prod(s.shape) for s in (inputs[0], *node.results))
        flops *= math.prod(inputs[1].shape[1:])
    elif node.op.startswith("attention") and len(inputs) > 2:
        flops = 4.0 * math.prod(inputs[0].shape) * inputs[1].shape[-2] * len(node.results)
    return LAUNCH + moved / BYTES + flops / FLOPS


def bytes_of(spec: Spec) -> int:
    """Of the elements of a value."""
    return math.prod(spec.shape) * spec.dtype.numpy.itemsize


class Bounded:
    """The steps of a graph in so much memory.

    Args:
        graph: optimised.
        memory: bytes for what lies between inputs and results.

    Attributes:
        peak: the most bytes that were there at a time.
        again: how many steps run again.
        fits: whether that is possible.
    """

    def __init__(self, graph: Graph, memory: int) -> None:
        self.graph, self.memory = graph, memory
        self.peak = self.again = self.live = 0
        self.made_by: list[int] = []
        self.root: list[int] = []
        plain: list[bool] = []
        for at, node in enumerate(graph.nodes):
            for _ in node.results:
                n, first = len(self.root), node.inputs[0] if node.inputs else ABSENT
                same = node.op in VIEWS or node.op in ("reshape", "contiguous") and plain[first]
                self.made_by.append(at)
                self.root.append(self.root[first] if same else n)
                plain.append(plain[first] and node.op == "reshape" if same else True)
        specs = graph.values
        kept = {self.root[i] for i in graph.outputs}
        free = {n for n in self.root if graph.nodes[self.made_by[n]].op in FREE}
        self.bytes = [
            bytes_of(specs[n]) if n == r and n not in kept | free else 0
            for n, r in enumerate(self.root)
        ]
        self.fixed = kept | free
        self.fixed |= {n for n in self.root if not self.repeatable(graph.nodes[self.made_by[n]])}
        self.family: dict[int, list[int]] = {}
        for n, r in enumerate(self.root):
            self.family.setdefault(r, []).append(n)
        self.inputs = [[i for i in node.inputs if i != ABSENT] for node in graph.nodes]
        self.uses: dict[int, list[int]] = {}
        for at, given in enumerate(self.inputs):
            for i in given:
                self.uses.setdefault(self.root[i], []).append(at)
        self.work = [
            work_of(node, [specs[i] for i in given])
            for node, given in zip(graph.nodes, self.inputs, strict=True)
        ]
        self.keys: dict[int, int] = {}
        self.count = 0
        self.steps: list[tuple[tuple[int, ...], Node]] = []
        self.ran: set[int] = set()
        self.now = 0
        self.fits = True
        for self.now in range(len(graph.nodes)):
            self.arrive(self.now)
            if self.peak > memory or len(self.steps) > MOST * len(graph.nodes):
                self.fits = False
                break

    @staticmethod
    def repeatable(node: Node) -> bool:
        """Whether a step may run again."""
        return node.op not in ONCE and OPS[node.op].kind != "effect" if node.op in OPS else False

    def result(self) -> Graph:
        """The graph of these steps."""
        keys, names = self.keys, self.graph
        return renumbered(
            self.steps, [keys[i] for i in names.inputs], [keys[i] for i in names.outputs]
        )

    def next_use(self, root: int) -> int | None:
        """The step that reads a value next, behind the one that runs now."""
        uses = self.uses.get(root, [])
        at = bisect_right(uses, self.now)
        return uses[at] if at < len(uses) else None

    def arrive(self, target: int) -> None:
        """Run a step, and before it what its inputs need."""
        stack = [target]
        while stack:
            at = stack[-1]
            missing = next((i for i in self.inputs[at] if i not in self.keys), None)
            if missing is not None:
                stack.append(self.made_by[missing])
                continue
            stack.pop()
            waiting = {self.root[i] for n in (*stack, at) for i in self.inputs[n]}
            self.run(at, waiting)
            behind = {self.root[i] for n in stack for i in self.inputs[n]}
            first = self.graph.firsts[at]
            results = range(first, first + len(self.graph.nodes[at].results))
            self.release({self.root[i] for i in (*self.inputs[at], *results)} - behind)

    def run(self, at: int, waiting: set[int]) -> None:
        """Run a step whose inputs are there."""
        node, first = self.graph.nodes[at], self.graph.firsts[at]
        new = [n for n in range(first, first + len(node.results)) if n not in self.keys]
        size = sum(self.bytes[n] for n in new)
        while self.live + size > self.memory:
            found = self.cheapest(waiting)
            if found is None:
                break
            self.drop(found)
        keys = tuple(range(self.count, self.count + len(node.results)))
        self.count += len(keys)
        given = tuple([i if i == ABSENT else self.keys[i] for i in node.inputs])
        self.steps.append((keys, Node(node.op, given, node.attrs, node.results)))
        self.again += at in self.ran
        self.ran.add(at)
        for n in new:
            self.keys[n] = keys[n - first]
        self.live += size
        self.peak = max(self.peak, self.live)

    def drop(self, root: int) -> None:
        """Let a value go, and what shares its memory."""
        self.live -= self.bytes[root]
        for n in self.family[root]:
            self.keys.pop(n, None)

    def release(self, roots: Iterable[int]) -> None:
        """Let go of what nobody reads any more."""
        for root in roots:
            if root in self.keys and not self.is_kept(root) and self.next_use(root) is None:
                self.drop(root)

    def is_kept(self, root: int) -> bool:
        """Whether a value is there to the end."""
        return self.bytes[root] == 0 and root in self.fixed

    def cheapest(self, waiting: set[int]) -> int | None:
        """The value that is missed the least."""
        best, least = None, math.inf
        for root, size in enumerate(self.bytes):
            if not size or root not in self.keys or root in waiting or root in self.fixed:
                continue
            use = self.next_use(root)
            if use is None:  # only what runs again reads it
                continue
            price = self.price(root) / (size * (use - self.now))
            if price < least:
                best, least = root, price
        return best

    def price(self, root: int) -> float:
        """The work to have a value back."""
        stack, seen, total = [self.made_by[root]], set[int](), 0.0
        while stack and len(seen) < SEARCHED:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            total += self.work[at]
            stack += [self.made_by[i] for i in self.inputs[at] if i not in self.keys]
        return total


def in_memory(graph: Graph, memory: int | None) -> tuple[Graph, int]:
    """A graph that keeps at most so many bytes between its inputs and results, or not many more
    than the least that is possible, and how many of its steps run again.

    Args:
        graph: optimised.
        memory: bytes; None for no bound.
    """
    if memory is None:
        return graph, 0
    made = Bounded(graph, memory)
    while not made.fits:
        made = Bounded(graph, int(made.memory * WIDER) + 1)
    return (made.result(), made.again) if made.again else (graph, 0)
