"""Random kernels give the same results on compiled backends as on the python backend."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest

from cubepy.compiler import specialise
from cubepy.compiler.checks.uniform import check_barriers
from cubepy.compiler.program import Program
from cubepy.compiler.webs import split_variables
from tests.backends.hip.emulator.device import emulated
from tests.conformance.random_kernels.compare import check, load, random_case
from tests.conformance.random_kernels.typed_compare import check as check_typed
from tests.conformance.random_kernels.typed_compare import typed_case
from tests.staging import gpu_missing, staged

NUMBER = itertools.count()
FOLDER = Path(tempfile.mkdtemp(prefix="cubepy-random-"))
SEEDS = range(
    1, 16
)  # `scripts/fuzz_kernels.py` draws as many as one likes; --seed 7 --size 3 --count 1 --show prints 7


def compare(seed: int, device: str) -> None:
    """A compiled backend gives what the python backend gives, to the bit."""
    source, shape = random_case(seed, size=3)
    found = check(load(source, FOLDER, f"random_kernel_{next(NUMBER)}"), device, shape)
    assert not found, f"{found}, {shape}\n{source}"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cpu_agrees_on_random_kernels(seed: int) -> None:
    compare(seed, "cpu")


@pytest.mark.parametrize("seed", range(101, 109))
def test_variables_that_are_split_mean_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not a barrier asks for it."""

    def split(program: Program) -> Program:
        program = split_variables(program)
        check_barriers(program)
        return program

    monkeypatch.setattr(specialise, "with_uniform_barriers", split)
    compare(seed, "cpu")


@pytest.mark.skipif(bool(gpu_missing()), reason=gpu_missing())
@pytest.mark.parametrize("seed", SEEDS)
def test_the_gpu_agrees_on_random_kernels(seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch, staged(patch):
        compare(seed, "cuda")


@pytest.mark.turns(3)
@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("seed", [1, 3, 15])
def test_emulated_processors_agree_on_random_kernels(seed: int, processor: str) -> None:
    with emulated(processor), pytest.MonkeyPatch.context() as patch, staged(patch):
        compare(seed, processor)


def compare_typed(seed: int, device: str) -> None:
    """The same of kernels over every dtype; `--typed --size 3` shows them."""
    case = typed_case(seed, size=3)
    found = check_typed(load(case.source, FOLDER, f"typed_kernel_{next(NUMBER)}"), device, case)
    assert not found, f"{found}, {case.shape}\n{case.source}"


@pytest.mark.parametrize("seed", range(1, 13))
def test_the_cpu_agrees_on_random_kernels_over_every_dtype(seed: int) -> None:
    compare_typed(seed, "cpu")


@pytest.mark.turns(3)
@pytest.mark.parametrize("processor", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_emulated_processors_agree_on_random_kernels_over_every_dtype(
    seed: int, processor: str
) -> None:
    with emulated(processor), pytest.MonkeyPatch.context() as patch, staged(patch):
        compare_typed(seed, processor)
