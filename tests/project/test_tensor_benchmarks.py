"""The benchmarks of tensors and of training run: each class once at its smallest size."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "asv_benchmarks"


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What imports a module of the suite."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("network", ["gpt", "perceptron", "convolutions"])
@pytest.mark.parametrize("library", ["cubepy", "cubepy eager"])
def test_networks_train_and_infer(suite: Any, library: str, network: str) -> None:
    bench = suite("bench_training")
    run = bench.trained(network, library, 8)
    first = np.mean([run().item() for _ in range(4)])
    assert np.isfinite(first) and 3.5 < first < 5
    case = bench.Inference()
    case.setup(library, network, 1)
    case.time_inference(library, network, 1)


def test_programs_and_eager_steps_have_the_same_losses(suite: Any) -> None:
    bench = suite("bench_training")
    runs = [bench.trained("gpt", name, 1) for name in ("cubepy", "cubepy eager")]
    for _ in range(4):
        ours, theirs = (run().item() for run in runs)
        assert ours == pytest.approx(theirs, abs=1e-5)


def test_training_keeps_little(suite: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = suite("bench_training").Memory
    monkeypatch.setattr(memory, "steps", 300)
    assert memory().track_growth_in_10000_steps() < 20


@pytest.mark.day(0, 3)  # tests/runtime/ahead/test_walked.py has a smaller one, daily
def test_a_second_process_compiles_nothing(suite: Any, tmp_path: Path) -> None:
    """The program of B6 in another process with the same cache: all code is loaded, without
    numba.
    """
    script = textwrap.dedent(suite("bench_training").timeraw_second_process())
    script += "import sys, cubepy\n"
    script += "print(cubepy.stats().compiled, 'numba' in sys.modules, step.traces != {})\n"
    paths = os.pathsep.join([str(FOLDER), *sys.path])
    env = os.environ | {"PYTHONPATH": paths, "CUBEPY_CACHE_DIR": str(tmp_path)}

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", script], check=True, env=env, capture_output=True, text=True
        )
        return done.stdout.strip()

    assert run().split()[0] != "0"
    assert run() == "0 False True"


@pytest.mark.parametrize("library", ["cubepy", "kernel"])
@pytest.mark.parametrize("group", ["softmax", "layer_norm", "rms_norm", "gelu", "gated"])
def test_groups_run(suite: Any, library: str, group: str) -> None:
    case = suite("bench_tensors").Groups()
    try:
        case.setup(library, group, "64")
    except NotImplementedError:
        assert library == "kernel"
    else:
        case.time_group(library, group, "64")


def test_groups_are_those_of_the_kernels(suite: Any) -> None:
    import cubepy as cb

    bench = suite("bench_tensors")
    x = bench.rows("4096")
    for group in bench.groups().values():
        if group.kernel is not None:
            ours = group.ops(cb.tensor(x)).numpy()
            np.testing.assert_allclose(ours, group.kernel(x), atol=1e-5)


def test_small_costs_run(suite: Any) -> None:
    bench = suite("bench_tensors")
    for what in bench.One.params[1]:
        case = bench.One()
        case.setup("cubepy", what)
        case.time_op_on_one_element("cubepy", what)
    case = bench.Program()
    case.setup()
    case.time_program_of_four_tensors()
    case.time_program_of_65_launches()
