"""What is compiled ahead for an architecture is what a GPU of it asks the cache for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.__main__ import main
from cubepy.backends.cuda import backend as gpus
from cubepy.backends.cuda.ahead import AheadBackend
from cubepy.backends.cuda.codegen.job import Job
from cubepy.backends.llvm.processes import jobs
from cubepy.config import config
from cubepy.kernels import typical
from cubepy.runtime import device as devices
from cubepy.runtime.memory.device_array import upload
from cubepy.runtime.stats import counters
from tests.backends.gpu.fake_driver import FakeDriver, fake_driver, forget_launches, kernel
from tests.runtime.ahead.test_warm import python

H100 = {1: 1024, 16: 132, 38: 50 << 20, 75: 9, 76: 0, 81: 233472, 97: 232448}
"""What the driver of one answers when it is asked for its attributes."""

PROGRAM = """
import numpy as np
import cubepy as cb

@cb.kernel
def double(x: cb.Array, out: cb.Array):
    if cb.ABSOLUTE_POS < x.size:
        out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 2

x = cb.tensor(np.ones(10, np.float32), device="cuda")
out = cb.tensor(np.zeros(10, np.float32), device="cuda")
double[cb.over(10)](x, out)
print(cb.device_properties_of("cuda").architecture, {rest})
"""


class AnyKernel(dict[str, Callable[..., None]]):
    """Every name is a kernel that does nothing."""

    def __missing__(self, name: str) -> Callable[..., None]:
        return kernel(0)(lambda words: None)


def attribute_of_an_h100(out: Any, number: int, device: int) -> int:
    """The driver's answer."""
    out._obj.value = H100.get(number, 1)
    return 0


@pytest.fixture
def h100(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver that says that there is one, and runs nothing."""
    with fake_driver(monkeypatch) as fake:
        fake.kernels = AnyKernel()
        monkeypatch.setattr(FakeDriver, "device_attribute", staticmethod(attribute_of_an_h100))
        gpus._properties.cache_clear()
        forget_launches()  # of other drivers, by tests before
        yield fake
        forget_launches()
        gpus._properties.cache_clear()


def test_the_gpu_in_mind_is_the_one_that_comes(h100: FakeDriver) -> None:
    there, here = gpus.offline("sm_90a"), gpus._properties(0)
    for name in ("cores", "max_shared_memory", "l1_bytes", "l2_bytes", "features", "architecture"):
        assert getattr(there, name) == getattr(here, name)


def test_a_gpu_compiles_nothing_that_was_compiled_for_it_elsewhere(
    tmp_path: Path, h100: FakeDriver
) -> None:
    pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")
    done = python(tmp_path, "-m", "cubepy", "warm", "K.softmax", "--target", "sm_90a")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("softmax: ") and done.stderr == ""
    compiled, loaded = counters.compiled, counters.loaded
    with config.override(cache_dir=str(tmp_path), cache=True), cb.use("cuda"):
        for call in typical.calls()["softmax"]:
            call()
        x = upload(np.zeros((7, 1000), np.float32), cb.current_device())
        cb.kernels.softmax(x, -1)
    assert (counters.compiled, counters.loaded > loaded) == (compiled, True)


def test_a_program_goes_to_the_gpu_that_is_not_here(tmp_path: Path) -> None:
    pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(rest="cb.current_device()"))
    target = ("--target", "sm_80")
    done = python(tmp_path / "cache", "-m", "cubepy", "warm", str(program), *target)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "8.0 cuda" and "1 kernels compiled" in second
    program.write_text(PROGRAM.format(rest="1 // int(out.numpy().sum())"))
    done = python(tmp_path / "cache", "-m", "cubepy", "warm", str(program), *target)
    assert done.returncode == 2 and "ZeroDivisionError" in done.stderr


def test_launches_are_noted_once_for_each_alignment(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, known = AheadBackend(gpus.offline("sm_86")), devices.backend_named
    monkeypatch.setattr(
        devices, "backend_named", lambda name: backend if name == "cuda" else known(name)
    )
    device = devices.Device("cuda")
    with jobs.rehearsal() as found, cb.use(device):
        x = upload(np.zeros(65, np.float32), device)
        for part in (x, x[:64], x[1:]):
            cb.kernels.gelu(part)
            cb.kernels.gelu(part)
        assert {type(j) for j in found.values()} == {Job}
        assert [j.architecture for j in found.values()] == [(8, 6, "")] * len(found)
        assert sorted(j.aligned for j in found.values()) == [False, True]
    for job in found.values():
        assert Job.of_line(job.as_line()) == job


@pytest.mark.parametrize("target", ["sm_90b", "sm_6", "hopper"])
def test_an_architecture_that_does_not_exist_is_refused(
    capsys: pytest.CaptureFixture[str], target: str
) -> None:
    with config.override(cache=True):
        assert main(["warm", "K.softmax", "--target", target]) == 2
    assert target in capsys.readouterr().err
