"""Training steps and inference of small networks as programs, beside torch and JAX; what 10,000
steps keep in memory; how far losses are from torch's.

Run with one thread (CUBEPY_NUM_THREADS=1, OMP_NUM_THREADS=1, taskset) for the figures of one core.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from benchmarks import networks
from benchmarks.cases import warmed
from benchmarks.peers import compiler, jax_module, threads, torch_module

LIBRARIES = ("cubepy", "cubepy eager", "torch", "torch.compile", "jax")
MANY = 64  # batches that take turns
STEPS = 300


def library(name: str) -> networks.Library:
    """A library by its name in the table.

    Raises:
        NotImplementedError: it is not installed, or has no compiler: asv skips the cell.
    """
    if name.startswith("cubepy"):
        return networks.ours(name == "cubepy")
    torch = torch_module()
    torch.set_num_threads(threads())
    if name == "torch.compile" and compiler() is None:
        raise NotImplementedError("torch.compile needs a C++ compiler")
    return networks.theirs(torch, name == "torch.compile")


def batches(network: str, size: int, tensor: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """Inputs and classes in turn."""
    draw = networks.NETWORKS[network][1]
    return [tuple(map(tensor, draw(size, seed))) for seed in range(MANY)]


def in_turn(step: Callable[[Any, Any], Any], given: list[tuple[Any, Any]]) -> Callable[[], Any]:
    """A step with the next batch at each call."""
    at = [0]

    def run() -> Any:
        at[0] = (at[0] + 1) % len(given)
        return step(*given[at[0]])

    return run


def trained(network: str, name: str, size: int) -> Callable[[], Any]:
    """A training step of a library, warmed."""
    if name == "jax":
        jax = jax_module()
        if network != "gpt":
            raise NotImplementedError("written for JAX is B6 alone")
        step, state = networks.jax_training(jax)
        held = [state]

        def go(x: Any, y: Any) -> Any:
            held[0], loss = step(held[0], x, y)
            return jax.block_until_ready(loss)

        return warmed(in_turn(go, batches(network, size, jax.numpy.asarray)))
    lib = library(name)
    return warmed(in_turn(networks.training(network, lib), batches(network, size, lib.tensor)))


class Training:
    """A step of SGD: forward, gradients, update. "gpt" is B6."""

    params = (LIBRARIES, tuple(networks.NETWORKS), (1, 8, 64))
    param_names = ("library", "network", "batch")
    timeout = 600

    def setup(self, name: str, network: str, size: int) -> None:
        """Trace, compile, warm."""
        if network == "convolutions" and size == 1 and name != "cubepy":
            raise NotImplementedError("one image at a time is not what is trained with")
        self.run = trained(network, name, size)

    def time_training_step(self, name: str, network: str, size: int) -> None:
        """One step."""
        self.run()


class Inference:
    """The same networks without gradients."""

    params = (LIBRARIES[:-1], tuple(networks.NETWORKS), (1, 8))
    param_names = ("library", "network", "batch")
    timeout = 600

    def setup(self, name: str, network: str, size: int) -> None:
        """Trace, compile, warm."""
        lib = library(name)
        run = networks.inference(network, lib)
        self.run = warmed(in_turn(run, batches(network, size, lib.tensor)))

    def time_inference(self, name: str, network: str, size: int) -> None:
        """One batch."""
        self.run()


class Losses:
    """How far the losses of B6 are from torch's with the same first values and batches."""

    params = ((1, 8, 64),)
    param_names = ("batch",)
    timeout = 900
    steps = STEPS

    def track_difference_to_torch(self, size: int) -> float:
        """The greatest difference in 300 steps of B6."""
        greatest = 0.0
        runs = []
        for name in ("cubepy", "torch"):
            lib = library(name)
            runs.append(
                in_turn(networks.training("gpt", lib), batches("gpt", size, lib.tensor))
            )
        for _ in range(self.steps):
            ours, theirs = (run().item() for run in runs)
            greatest = max(greatest, abs(ours - theirs))
        return greatest

    track_difference_to_torch.unit = "nats"  # type: ignore[attr-defined]


class Memory:
    """What steps keep."""

    timeout = 900
    steps = 10_000

    def track_growth_in_10000_steps(self) -> float:
        """How much the greatest resident size of the process grows in 10,000 steps of B6."""
        run = trained("gpt", "cubepy", 1)
        for _ in range(100):
            run()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(self.steps):
            run()
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    track_growth_in_10000_steps.unit = "MiB"  # type: ignore[attr-defined]


def timeraw_second_process() -> str:
    """Three steps of B6 in a process whose code is in the cache, imports and all."""
    return """
    from benchmarks import networks
    lib = networks.ours()
    step = networks.training("gpt", lib)
    x, y = map(lib.tensor, networks.letters(8, 0))
    for _ in range(3):
        step(x, y).item()
    """
