"""Every error that cubepy raises, with one way to show rule, place and remedy.

An error states the rule and the offending value; where a kernel's source is to blame it shows the
user's file and line with a caret; and it says what to do (the hint). Each class also derives from
the builtin that a caller would expect, so that `except ValueError` keeps working.

Example:
    >>> import cubepy as cb
    >>> cb.use("gpu")
    Traceback (most recent call last):
        ...
    cubepy.errors.DeviceError: there is no device 'gpu'
      Hint: the devices are cpu, cuda, hip, python
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """A place in the user's source: file, 1-based line, 0-based column."""

    file: str
    line: int
    column: int = 0
    function: str = ""

    def excerpt(self) -> str:
        """The source line with a caret under the column, or an empty text if it cannot be read."""
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text:
            return ""
        column = self.column or len(text) - len(text.lstrip())
        before = "".join(c if c == "\t" else " " for c in text[:column].ljust(column))
        return f"    {text}\n    {before}^"


class CubeError(Exception):
    """Base of all cubepy errors.

    Args:
        message: the rule that was broken, with the value.
        location: where in the user's source, if known.
        hint: what to do about it.

    Example:
        >>> import cubepy as cb
        >>> try:
        ...     cb.over(-1)
        ... except cb.CubeError as error:
        ...     print(type(error).__name__, "is a ValueError:", isinstance(error, ValueError))
        LaunchError is a ValueError: True
    """

    def __init__(self, message: str, *, location: Location | None = None, hint: str = "") -> None:
        self.message, self.location, self.hint = message, location, hint
        super().__init__(message, location, hint)

    def __str__(self) -> str:
        parts = [self.message]
        if self.location is not None:
            where = f'  File "{self.location.file}", line {self.location.line}'
            if self.location.function:
                where += f", in {self.location.function}"
            parts.append(where)
            parts.append(self.location.excerpt())
        if self.hint:
            parts.append(f"  Hint: {self.hint}")
        return "\n".join(p for p in parts if p)

    def __reduce__(self) -> tuple:
        return (_rebuild, (type(self), self.message, self.location, self.hint))


def _rebuild(cls: type[CubeError], message: str, location: Location | None, hint: str) -> CubeError:
    return cls(message, location=location, hint=hint)


class CompileError(CubeError):
    """A kernel's source breaks a rule of the language; found before any backend sees it."""


class KernelSyntaxError(CompileError, SyntaxError):
    """A Python construct that kernels cannot use (try, with, yield, lambda, recursion, ...)."""

    def __str__(self) -> str:
        return CubeError.__str__(self)


class KernelNameError(CompileError, NameError):
    """A name in a kernel that is not defined."""


class ComptimeError(CompileError, TypeError):
    """A comptime value is missing, unhashable, or a runtime value stands where one is needed."""


class NestingError(CompileError, RecursionError):
    """A kernel nests deeper than Python's recursion limit lets the compiler follow."""


class DTypeError(CompileError, TypeError):
    """A dtype that cannot be used, or dtypes that do not go together."""


class KernelTypeError(CompileError, TypeError):
    """A wrong rank, a wrong number of arguments, or an operation that a value does not have."""


class BarrierError(CompileError):
    """A barrier that some units of a cube may not reach."""


class SharedMemoryError(CompileError, MemoryError):
    """A kernel asks for more shared memory than the device has for a cube, or for more local memory
    than a thread of a CPU has.
    """


class BackendCompileError(CompileError, RuntimeError):
    """The backend's compiler refused generated code; a defect of cubepy."""


class FeatureError(CompileError, NotImplementedError):
    """A kernel uses something that the device it is compiled for does not have."""


class LaunchError(CubeError, ValueError):
    """A launch with wrong sizes, arguments, mode or device."""


class AliasError(LaunchError):
    """An output overlaps another argument in memory without being exactly that argument."""


class ReadOnlyError(LaunchError):
    """An array that the kernel writes is read-only."""


class DeviceError(CubeError, RuntimeError):
    """A device or backend that is absent or cannot do what is asked."""


class OutOfMemoryError(CubeError, MemoryError):
    """A device cannot serve an allocation."""


class OutOfBoundsError(CubeError, IndexError):
    """An access outside an array in validate mode or on the python backend."""


class KernelAssertionError(CubeError, AssertionError):
    """A `cb.debug_assert` that failed."""


class RaceError(CubeError, RuntimeError):
    """Two units touched one place between barriers (python backend)."""


class ShapeError(CubeError, ValueError):
    """Shapes that do not go together: says what was expected and what came."""


class LinAlgError(CubeError, ValueError):
    """A matrix without the decomposition that is asked for: singular, or not positive definite."""


class IndexShapeError(ShapeError, IndexError):
    """An index that does not go with the shape of a tensor."""


class GradientError(CubeError, RuntimeError):
    """A gradient that does not exist, or whose graph is gone."""


class GradcheckError(GradientError):
    """A gradient that is not what differences of values say."""


class ArgumentError(CubeError, TypeError):
    """A function got an argument of a kind that it does not take."""


class ConfigError(CubeError, ValueError):
    """A configuration value that is not allowed."""


class FileFormatError(CubeError, ValueError):
    """A model file that is truncated, inconsistent, or lacks a tensor."""


class ModelError(CubeError, ValueError):
    """A model that cannot run as asked: operators that are missing, inputs of a wrong name, rank or
    dtype.
    """


class CacheFileError(CubeError, ValueError):
    """An archive of compiled kernels that is damaged, cut off, or is none."""


class QuantizationError(CubeError, ValueError):
    """A scheme, group or model that cannot be quantized as asked."""


class QuantizationWarning(UserWarning):
    """Layers that stay in float though nobody asked for it; the report names them."""


class TuneError(CubeError, ValueError):
    """An operation or routine that does not exist or does not fit, or a tuned table that cannot be
    used.
    """


class TuneWarning(UserWarning):
    """A measurement that could not be made, or a candidate whose results are wrong; work goes on
    without it.
    """


class TraceWarning(UserWarning):
    """A function of `cb.jit` that is traced for one value of a number, or one object, after another."""


class CacheWarning(UserWarning):
    """The cache on disk cannot be read or written; work goes on without it."""
