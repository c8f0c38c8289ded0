"""`@cb.kernel`, `@cb.func` and the annotations of their parameters.

Declaring records a function and nothing else: no source is parsed and no compiler is imported
before the first launch. The runtime installs itself through `set_launcher`, so that this floor
depends on none above.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from cubepy.errors import KernelTypeError, LaunchError, Location
from cubepy.lang.annotations import Aggregate, Array, Comptime, TensorMap, View
from cubepy.lang.builtins import interpreter
from cubepy.lang.decorated import written
from cubepy.lang.dtypes import DType

P = ParamSpec("P")
R = TypeVar("R")
FAST_MATH = frozenset({"nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"})


@dataclass(frozen=True)
class Param:
    """One parameter of a kernel: how it is annotated and its default."""

    name: str
    # "comptime", "array", "view", "map", "scalar" (with dtype), "struct" (with its class), "any"
    kind: str
    default: Any = inspect.Parameter.empty
    dtype: DType | None = None
    struct: Any = None
    keyword_only: bool = False


def _resolve(annotation: Any, fn: Callable, parameter: str) -> Any:
    """The object behind an annotation; `from __future__ import annotations` makes them text."""
    if not isinstance(annotation, str):
        return annotation
    scope = dict(fn.__globals__)
    scope.update({n: c.cell_contents for n, c in _cells(fn)})
    try:
        return eval(annotation, scope)  # the author's own annotation, in the author's own scope
    except Exception as error:
        raise KernelTypeError(
            f"the annotation {annotation!r} in {fn.__qualname__} cannot be evaluated: {error}",
            location=_location_of(fn, parameter),
            hint="use cb.Array, cb.View, cb.Comptime[...], a dtype, a @cb.struct, or nothing",
        ) from error


def _cells(fn: Callable) -> list[tuple[str, Any]]:
    names = fn.__code__.co_freevars
    cells = fn.__closure__ or ()
    return [(n, c) for n, c in zip(names, cells, strict=True) if _filled(c)]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (raises ValueError when the name is not bound yet)
    except ValueError:
        return False
    return True


def is_comptime(annotation: Any) -> bool:
    """Whether an annotation asks for a comptime value."""
    return annotation is Comptime or getattr(annotation, "__origin__", None) is Comptime


def _location_of(fn: Callable, parameter: str) -> Location:
    """Where a parameter is declared."""
    code = inspect.unwrap(fn).__code__
    for line in range(code.co_firstlineno, code.co_firstlineno + 20):
        found = re.search(
            rf"(?<![\w*]){re.escape(parameter)}\b", linecache.getline(code.co_filename, line)
        )
        if found:
            return Location(code.co_filename, line, found.start(), fn.__qualname__)
    return Location(code.co_filename, code.co_firstlineno, 0, fn.__qualname__)


def read_parameters(fn: Callable) -> tuple[Param, ...]:
    """The parameters of a kernel or func, in order.

    Raises:
        KernelTypeError: for `*args`, `**kwargs`, or an annotation that means nothing here.
    """
    out = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            stars = "*" if p.kind is p.VAR_POSITIONAL else "**"
            raise KernelTypeError(
                f"{fn.__qualname__} takes {stars}{p.name}; parameters are fixed in kernels "
                "and funcs",
                location=_location_of(fn, stars + p.name),
                hint="pass a tuple as a cb.Comptime parameter, or several arrays by name",
            )
        annotation = _resolve(p.annotation, fn, p.name)
        only = p.kind is p.KEYWORD_ONLY
        if annotation is p.empty or annotation is Any:
            out.append(Param(p.name, "any", p.default, keyword_only=only))
        elif is_comptime(annotation):
            out.append(Param(p.name, "comptime", p.default, keyword_only=only))
        elif annotation is Array:
            out.append(Param(p.name, "array", p.default, keyword_only=only))
        elif annotation is View:
            out.append(Param(p.name, "view", p.default, keyword_only=only))
        elif annotation is TensorMap:
            out.append(Param(p.name, "map", p.default, keyword_only=only))
        elif isinstance(annotation, DType):
            out.append(Param(p.name, "scalar", p.default, dtype=annotation, keyword_only=only))
        elif isinstance(annotation, Aggregate):
            out.append(Param(p.name, "struct", p.default, struct=annotation, keyword_only=only))
        else:
            raise KernelTypeError(
                f"parameter {p.name!r} of {fn.__qualname__} is annotated {annotation!r}",
                location=_location_of(fn, p.name),
                hint="use cb.Array, cb.View, cb.Comptime[...], a dtype such as cb.f32, a "
                "@cb.struct, or nothing",
            )
    return tuple(out)


class Func(Generic[P, R]):
    """A function that kernels call; it is inlined where it is called.

    Outside a kernel it is an ordinary Python function.

    Attributes:
        text: of what cubepy has written itself, all that it is.
    """

    def __init__(self, fn: Callable[P, R]) -> None:
        self.fn = fn = written(fn, "func")
        self.__name__, self.__qualname__, self.__doc__ = fn.__name__, fn.__qualname__, fn.__doc__
        self.__module__, self.__wrapped__ = fn.__module__, fn
        self.text: tuple[Any, ...] | None = None
        self._parameters: tuple[Param, ...] | None = None

    @property
    def parameters(self) -> tuple[Param, ...]:
        """The parameters, read at first use."""
        if self._parameters is None:
            self._parameters = read_parameters(self.fn)
        return self._parameters

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        active = interpreter.get()
        if active is not None:
            return active.call("@func", (self, *args), kwargs)  # type: ignore[no-any-return]
        return self.fn(*args, **kwargs)

    def __reduce__(self) -> str:
        return self.__qualname__  # by its name, as functions are

    def __repr__(self) -> str:
        return f"<cb.func {self.__qualname__}>"


class Generated(Protocol):
    """The generated code of a launch."""

    @property
    def python(self) -> str:
        """The specialised source."""

    @property
    def llvm(self) -> str:
        """Optimised LLVM IR."""

    @property
    def asm(self) -> str:
        """Assembly; SASS on an NVIDIA GPU."""

    @property
    def ptx(self) -> str:
        """PTX on an NVIDIA GPU; empty elsewhere."""


launcher: Callable[[Kernel], Any] | None = None


def set_launcher(factory: Callable[[Kernel], Any]) -> None:
    """Install what turns a kernel into launches: `factory(kernel)` has `launch`, `bind` and
    `inspect`.
    """
    global launcher
    launcher = factory


class Kernel:
    """A kernel: `kernel[grid](*args)` launches it.

    The grid is `cb.over(...)`, or `cubes, units` with an int or a tuple of 1 to 3 ints each. The
    keywords `mode=` ("checked", "validate" or "unchecked"), `device=` and `stream=` belong to the
    launch.
    """

    def __init__(self, fn: Callable, fast_math: frozenset[str] = frozenset()) -> None:
        unknown = fast_math - FAST_MATH
        if unknown:
            raise KernelTypeError(
                f"unknown fast_math liberties {sorted(unknown)}",
                hint=f"choose from {sorted(FAST_MATH)}",
            )
        self.fn, self.fast_math = written(fn, "kernel"), fast_math
        self.__name__, self.__qualname__, self.__doc__ = fn.__name__, fn.__qualname__, fn.__doc__
        self.__module__, self.__wrapped__ = fn.__module__, fn
        self._parameters: tuple[Param, ...] | None = None
        self._launcher: Any = None

    @property
    def parameters(self) -> tuple[Param, ...]:
        """The parameters, read at first use."""
        if self._parameters is None:
            self._parameters = read_parameters(self.fn)
        return self._parameters

    @property
    def launches(self) -> Any:
        """This kernel's launcher: binder, specialisations, statistics."""
        if self._launcher is None:
            if launcher is None:
                raise LaunchError(
                    "no runtime is installed", hint="import cubepy, not cubepy.lang alone"
                )
            self._launcher = launcher(self)
        return self._launcher

    def __getitem__(self, grid: Any) -> Launch:
        return Launch(self, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LaunchError(
            f"{self.__name__} is a kernel and needs a grid",
            hint=f"write {self.__name__}[cb.over(out)](...) or {self.__name__}[cubes, units](...); "
            "a function to call from kernels is declared with @cb.func",
        )

    def inspect(self, *args: Any, grid: Any = (1, 1), **kwargs: Any) -> Generated:
        """The generated code for these arguments: `.python`, `.llvm`, `.asm`."""
        return self.launches.inspect(grid, args, kwargs)

    def __reduce__(self) -> str:
        return self.__qualname__  # by its name, as functions are; what it holds is not copied

    def __repr__(self) -> str:
        return f"<cb.kernel {self.__qualname__}>"


class Launch:
    """A kernel with its grid, ready to be called or bound."""

    __slots__ = ("grid", "kernel")

    def __init__(self, kernel: Kernel, grid: Any) -> None:
        self.kernel, self.grid = kernel, grid

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Run the kernel; on the CPU the results are there when this returns."""
        self.kernel.launches.launch(self.grid, args, kwargs)

    def bind(self, *args: Any, **kwargs: Any) -> Callable[..., None]:
        """A reusable launch: call it with nothing, or with new values of the scalars by name."""
        return self.kernel.launches.bind(self.grid, args, kwargs)

    def inspect(self, *args: Any, **kwargs: Any) -> Generated:
        """The generated code that this launch would run: `.python`, `.llvm`, `.asm`."""
        return self.kernel.launches.inspect(self.grid, args, kwargs)


@overload
def kernel(fn: Callable) -> Kernel: ...
@overload
def kernel(*, fast_math: Any = ()) -> Callable[[Callable], Kernel]: ...
def kernel(fn: Callable | None = None, *, fast_math: Any = ()) -> Any:
    """Declare a kernel.

    Args:
        fn: the function, when used without arguments.
        fast_math: liberties that float arithmetic may take, any of "nnan", "ninf", "nsz", "arcp",
            "contract", "afn", "reassoc" (LLVM's names). None by default: floats are IEEE.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.kernel
        ... def double(x: cb.Array, out: cb.Array):
        ...     i = cb.ABSOLUTE_POS
        ...     if i < out.size:
        ...         out[i] = x[i] * 2
        >>> x = np.arange(4, dtype=np.float32); out = np.empty_like(x)
        >>> double[cb.over(out)](x, out)
        >>> out
        array([0., 2., 4., 6.], dtype=float32)
    """
    if fn is not None:
        return Kernel(fn)
    flags = (fast_math,) if isinstance(fast_math, str) else fast_math
    if not isinstance(flags, (tuple, list, set, frozenset)) or not all(
        isinstance(flag, str) for flag in flags
    ):
        raise KernelTypeError(
            f"fast_math takes names of liberties, not {flags!r}",
            hint=f"choose from {sorted(FAST_MATH)}",
        )
    return lambda f: Kernel(f, frozenset(flags))


def func(fn: Callable[P, R]) -> Func[P, R]:
    """Declare a function that kernels can call. It is inlined; recursion is refused.

    Example:
        >>> import cubepy as cb
        >>> @cb.func
        ... def lerp(a, b, t):
        ...     return a + (b - a) * t
        >>> lerp(0.0, 4.0, 0.25)
        1.0
    """
    return Func(fn)
