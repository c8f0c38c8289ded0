"""A driver for AMD GPUs whose kernels the emulator runs: the whole backend works on it, as a program
sees it.

There is one for the process, since launches that were prepared know its handles; it has a GPU of
every processor, of which a test sees those up to its own.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest

import cubepy as cb
from cubepy.backends.hip.backend import offline
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.codegen.compile import Code
from tests.backends.gpu.fake_driver import FakeDriver, fake_driver
from tests.backends.hip.emulator.assembly import assembly_of
from tests.backends.hip.emulator.gpu import Gpu

WANTED = os.environ.get("CUBEPY_TEST_HIP", "")
"""The processor of the first GPU, if the language's tests are to run on it."""
FIRST = WANTED or "gfx942"
PROCESSORS = (FIRST, *(name for name in KNOWN if name != FIRST))
LAUNCH_FAILED = 719


class EmulatedDriver(FakeDriver):
    """The driver.

    Attributes:
        codes: what was compiled, by the names of kernels: the emulator reads its text.
        failures: what kernels did wrong.
        launched: how many kernels ran.
        named: the device that a test means.
    """

    def __init__(self) -> None:
        super().__init__(vendor="hip")
        self.chips = [Gpu(name) for name in PROCESSORS]
        self.codes: dict[str, Code] = {}
        self.images: dict[int, bytes] = {}
        self.failures: list[Exception] = []
        self.launched, self.named = 0, "hip"

    def processor(self, device: int) -> str:
        return f"{PROCESSORS[device]}:sramecc+:xnack-"

    def device_attribute(self, out: Any, number: int, device: int) -> int:
        p = offline(PROCESSORS[device])
        known = {56: p.max_units, 63: p.cores, 74: p.max_shared_memory, 19: p.l2_bytes}
        out._obj.value = known.get(number, 1)
        return 0

    def allocate(self, out: Any, size: int) -> int:
        code = super().allocate(out, size)
        if code == 0:
            address = out._obj.value
            self.chips[self.contexts[-1]].memory.add(address, -(-size // 4) * 4)
        return code

    def free(self, address: int) -> int:
        self.chips[self.homes[address]].memory.remove(address)
        return super().free(address)

    def load_module(self, out: Any, *rest: Any) -> int:
        out._obj.value = handle = next(self.numbers)
        self.images[handle] = rest[0]
        return 0

    def function(self, out: Any, module: int, name: bytes) -> int:
        assert self.images[module][:4] == b"\x7fELF" and name in self.images[module]
        out._obj.value = handle = next(self.numbers)
        self.functions[handle] = EmulatedKernel(self.codes[name.decode()], self.contexts[-1])
        return 0

    def run(self, kernel: Any, words: list[int], sizes: list[int]) -> None:
        code: Code = kernel.code
        self.launched += 1
        assert tuple(sizes[3:6]) == code.units
        try:
            chip = self.chips[kernel.device]
            chip.launch(assembly_of(code), words, tuple(sizes[:3]), code.units, sizes[6])
        except Exception as error:  # who waits is told
            self.failures.append(error)

    def synchronize_stream(self, handle: int) -> int:
        code = super().synchronize_stream(handle)
        return LAUNCH_FAILED if self.failures else code


class EmulatedKernel:
    """A kernel of a module."""

    def __init__(self, code: Code, device: int) -> None:
        self.code, self.device = code, device
        self.words = len(code.text.parameters)

    def __call__(self, words: list[int]) -> None:
        """The driver runs it."""


_driver: list[EmulatedDriver] = []


@contextlib.contextmanager
def emulated_hip(
    monkeypatch: pytest.MonkeyPatch, processor: str, current: str = ""
) -> Iterator[EmulatedDriver]:
    """Make AMD's driver one whose kernels are emulated, and a GPU with this processor (`device`) the
    current device, unless another one is meant by `current`.

    Raises what a kernel did wrong at the end, if nobody has waited for it.
    """
    fake = _driver[0] if _driver else EmulatedDriver()
    _driver[:] = [fake]
    ordinal, made = PROCESSORS.index(processor), Code.__init__

    def noting(code: Code, *given: Any) -> None:
        made(code, *given)
        fake.codes[code.symbol] = code

    with monkeypatch.context() as m:
        m.setattr(Code, "__init__", noting)
        with fake_driver(m, devices=ordinal + 1, vendor="hip", fake=fake):
            fake.named = str(cb.Device("hip", ordinal))
            with cb.use(current or fake.named):
                yield fake
        failures, fake.failures = fake.failures, []
    if failures:
        raise failures[0]
