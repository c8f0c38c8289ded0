"""Configuration: one typed object, `cubepy.config`, whose values come from CUBEPY_* variables or
are set in code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cubepy.errors import ConfigError


@dataclass(frozen=True)
class Knob:
    """One setting: how its text is read and what it means."""

    name: str
    default: Any
    read: Callable[[str, Any], Any]
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"CUBEPY_{self.name.upper()}"


def _choice(*allowed: str) -> Callable[[str, Any], Any]:
    def read(where: str, value: Any) -> str:
        if value not in allowed:
            raise ConfigError(
                f"{where} cannot be {value!r}", hint=f"it is one of {', '.join(allowed)}"
            )
        return str(value)

    return read


def _integer(least: int, most: int = 1 << 62) -> Callable[[str, Any], Any]:
    def read(where: str, value: Any) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            raise ConfigError(f"{where} must be an integer, not {value!r}") from None
        if not least <= number <= most:
            raise ConfigError(f"{where} must be from {least} to {most}, not {number}")
        return number

    return read


def _switch(where: str, value: Any) -> bool:
    text = str(value).lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off"):
        return False
    raise ConfigError(f"{where} cannot be {value!r}", hint="it is 1 or 0")


def _progress(where: str, value: Any) -> bool | str:
    if value == "auto":
        return "auto"
    return _switch(where, value)


def _folder(where: str, value: Any) -> str:
    if not value or not isinstance(value, (str, os.PathLike)):
        raise ConfigError(f"{where} must name a folder, not {value!r}")
    return os.path.abspath(os.path.expanduser(os.fspath(value)))


def _default_folder() -> str:
    import platformdirs

    return platformdirs.user_cache_dir("cubepy", appauthor=False)


KNOBS = (
    Knob(
        "backend",
        "cpu",
        _choice("cpu", "cuda", "hip", "python"),
        "backend of launches that name none",
    ),
    Knob(
        "mode",
        "checked",
        _choice("checked", "validate", "unchecked"),
        "bounds mode of launches that name none",
    ),
    Knob(
        "cache_dir", None, _folder, "folder of compiled kernels (default: the user's cache folder)"
    ),
    Knob("cache", True, _switch, "whether compiled kernels are kept on disk"),
    Knob(
        "num_threads",
        0,
        _integer(0, 4096),
        "threads of a launch on the CPU; 0: as many as there are cores",
    ),
    Knob(
        "serial_elements",
        16384,
        _integer(0),
        "launches on fewer array elements start on one thread",
    ),
    Knob(
        "serial_us",
        20,
        _integer(0),
        "and go on all threads where more than these microseconds are left; 0: never",
    ),
    Knob("memory_limit", 0, _integer(0), "bytes that the pool may give out; 0: no limit"),
    Knob(
        "memory_pool",
        True,
        _switch,
        "on a GPU, released memory is given out again; 0 for compute-sanitizer",
    ),
    Knob(
        "deterministic",
        False,
        _switch,
        "the same bits in every run: sums in a fixed order on a GPU, whatever the number of cores "
        "on a CPU, where there are faster ones without",
    ),
    Knob(
        "exact_weights",
        False,
        _switch,
        "on a GPU, packed weights meet rows of floats without being rounded again",
    ),
    Knob(
        "tune",
        "none",
        _choice("none", "quick", "full"),
        "how long unknown problems may be measured at first use",
    ),
    Knob(
        "debug",
        0,
        _integer(0, 7),
        "1: debug_print, debug_assert; 2: tracebacks of numba; 4: print generated source",
    ),
    Knob(
        "compile_workers",
        0,
        _integer(0, 4096),
        "processes that compile, this one included: in the first run of a program, and for "
        "`python -m cubepy warm`; 0: as many as there are cores",
    ),
    Knob(
        "progress",
        "auto",
        _progress,
        "whether long work says what it waits for; auto: kernels that compile only on a terminal",
    ),
)


def is_command_line(argv: list[str], original: list[str]) -> bool:
    """Whether a process is `python -m cubepy` or the script `cubepy`, which imports the package
    before it can say what is wrong.

    Example:
        >>> is_command_line(["-m", "info"], ["python", "-m", "cubepy", "info"])
        True
        >>> is_command_line(["program.py"], ["python", "program.py", "-m", "cubepy"])
        False
    """
    if argv[:1] == ["-m"]:
        pairs = zip(original, [*original[1:], ""], strict=True)
        return any(
            a == "-mcubepy" or (a.startswith("-") and a.endswith("m") and b == "cubepy")
            for a, b in pairs
        )
    return bool(argv) and os.path.splitext(os.path.basename(argv[0]))[0] == "cubepy"


on_change: list[Callable[[], None]] = []
"""Called after a setting was given another value."""


def _tell() -> None:
    for listener in on_change:
        listener()


class Config:
    """The settings. Reading is plain attribute access; setting checks the value.

    Example:
        >>> from cubepy.config import config
        >>> with config.override(mode="validate"):
        ...     print(config.mode)
        validate
    """

    backend: str
    mode: str
    cache_dir: str
    cache: bool
    num_threads: int
    serial_elements: int
    serial_us: int
    memory_limit: int
    memory_pool: bool
    deterministic: bool
    exact_weights: bool
    tune: str
    debug: int
    compile_workers: int
    progress: bool | str

    def __init__(self) -> None:
        wrong: list[ConfigError] = []
        for knob in KNOBS:
            value, text = knob.default, os.environ.get(knob.variable)
            try:
                if text is not None:
                    value = knob.read(f"the variable {knob.variable}", text)
            except ConfigError as error:
                wrong.append(error)
            if value is None:
                value = _default_folder()
            object.__setattr__(self, knob.name, value)
        if wrong and (self.debug >= 2 or not is_command_line(sys.argv, sys.orig_argv)):
            raise wrong[0]
        if wrong:  # before there is a command that could say it
            print("\n".join(f"cubepy: {error}" for error in wrong), file=sys.stderr)
            sys.exit(2)

    def __setattr__(self, name: str, value: Any) -> None:
        knob = next((k for k in KNOBS if k.name == name), None)
        if knob is None:
            raise ConfigError(
                f"there is no setting {name!r}",
                hint=f"the settings: {', '.join(k.name for k in KNOBS)}",
            )
        object.__setattr__(self, name, knob.read(f"cubepy.config.{name}", value))
        _tell()

    @contextlib.contextmanager
    def override(self, **values: Any) -> Iterator[Config]:
        """Change settings for a block, in the whole process."""
        before = {name: getattr(self, name, None) for name in values}
        for name, value in values.items():
            setattr(self, name, value)
        try:
            yield self
        finally:
            for name, value in before.items():
                object.__setattr__(self, name, value)
            _tell()

    def as_dict(self) -> dict[str, Any]:
        """All settings by name."""
        return {k.name: getattr(self, k.name) for k in KNOBS}

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self.as_dict().items())})"


def table() -> str:
    """The settings as a Markdown table."""
    rows = ["| variable | default | meaning |", "| --- | --- | --- |"]
    for k in KNOBS:
        default = "user cache folder" if k.default is None else repr(k.default)
        rows.append(f"| `{k.variable}` | {default} | {k.meaning} |")
    return "\n".join(rows)


config = Config()
