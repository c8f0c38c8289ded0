"""The process that does the work of a check: a GPU that meets a wrong address may end it, so that
another one goes on behind the case.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

from cubepy.check import families, language
from cubepy.check.case import REFERENCE, Case, difference, results
from cubepy.check.speed import measured
from cubepy.checkout import HERE
from cubepy.errors import ConfigError, DeviceError
from cubepy.runtime.device import as_device, device_properties, gpu_of

GROUPS: dict[str, tuple[Case, ...]] = {"language": language.CASES, "library": families.CASES}
SPEED = "speed"
LARGE, SMALL = 1 << 26, 1 << 10
"""Bytes of arrays whose copies are timed, on a GPU and on an emulated one."""
LOST = 70
"""The exit status after an error behind which nothing works on the device."""


def all_names() -> list[tuple[str, str]]:
    """Group and name of all that is checked, in order."""
    return [*((g, c.name) for g, cases in GROUPS.items() for c in cases), (SPEED, SPEED)]


@contextlib.contextmanager
def emulated(processor: str) -> Iterator[str]:
    """Let the emulator of the tests be the GPU; gives the device.

    Raises:
        ConfigError: this is no checkout.
    """
    root = HERE.rpartition("/")[0]
    sys.path.insert(0, root)
    try:
        emulator: Any = importlib.import_module("tests.backends.hip.emulator.driver")
        pytest: Any = importlib.import_module("pytest")
    except ImportError as error:
        raise ConfigError(
            f"the emulator is not here: {error}",
            hint="it is part of a checkout's tests, and needs pytest",
        ) from error
    finally:
        sys.path.remove(root)
    if processor not in emulator.PROCESSORS:
        raise ConfigError(
            f"there is no emulator of {processor!r}",
            hint=f"there is one of {', '.join(emulator.PROCESSORS)}",
        )
    with emulator.emulated_hip(pytest.MonkeyPatch(), processor):
        yield f"hip:{emulator.PROCESSORS.index(processor)}"


def work(device: str, emulate: str | None, numbers: list[int]) -> int:
    """Do the cases of these numbers, and print a line of JSON for each; the exit status."""
    with emulated(emulate) if emulate else contextlib.nullcontext(device) as where:
        print(json.dumps({"device": described(where)}), flush=True)
        names = all_names()
        for n in numbers:
            print(json.dumps({"begins": n}), flush=True)
            found = {"group": names[n][0], "name": names[n][1], **done(n, where, bool(emulate))}
            print(json.dumps({"number": n, "found": found}), flush=True)
            if found.pop("lost", False):
                return LOST
    return 0


def done(number: int, device: str, small: bool) -> dict[str, Any]:
    """What came of a case."""
    start = time.perf_counter()
    found: dict[str, Any] = {"status": "passed"}
    try:
        cases = [case for group in GROUPS.values() for case in group]
        if number < len(cases):
            case = cases[number]
            wanted = results(case, REFERENCE)
            off = difference(case, results(case, device), wanted)
            if off:
                found |= {"status": "differs", "detail": off}
        else:
            found["measured"] = measured(device, SMALL if small else LARGE)
    except Exception as error:  # whatever it is stands in the report
        text = "".join(traceback.format_exception(error))[-4000:]
        found |= {"status": "failed", "detail": f"{type(error).__name__}: {error}", "text": text}
        found["lost"] = isinstance(error, DeviceError) and "start a new process" in str(error)
    return found | {"seconds": round(time.perf_counter() - start, 3)}


def described(device: str) -> dict[str, Any]:
    """What a report says of a device."""
    where = as_device(device)
    p = device_properties(device)
    out: dict[str, Any] = {"device": str(where), "name": p.name, "architecture": p.architecture}
    out |= {"cores": p.cores, "plane": p.plane_size, "shared memory": p.max_shared_memory}
    driver = getattr(gpu_of(where), "driver", None)
    if driver is not None:
        context = driver.context(where.ordinal)
        out |= {"memory": context.memory_bytes, "driver": list(driver.version())}
        processor = getattr(driver, "processor", None)
        out["processor"] = processor(where.ordinal) if processor else p.architecture
    return out
