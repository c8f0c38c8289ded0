"""Complex numbers of a graph: pairs of tensors, which live inside of a program only."""

from __future__ import annotations

import cmath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.lang.dtypes import DType, f32, f64
from cubepy.models.exported.records import run_of, target
from cubepy.tensor import Tensor

PARTS = {"complex32": f32, "complex64": f32, "complex128": f64}
"""What parts are of, by torch's name of a complex dtype, which stands for it in a graph."""


@dataclass(frozen=True)
class Complex:
    """Complex numbers by their parts.

    Attributes:
        real, imaginary: of one shape and dtype.
    """

    real: Any
    imaginary: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return tuple(self.real.shape)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.real.shape)


def is_complex(value: Any) -> bool:
    """Whether an argument has complex numbers in it, or is a dtype of them.

    Example:
        >>> is_complex([1, 2j]), is_complex("complex64"), is_complex([1.0])
        (True, True, False)
    """
    if isinstance(value, (list, tuple)):
        return any(map(is_complex, value))
    return isinstance(value, (Complex, complex)) or (isinstance(value, str) and value in PARTS)


def complex_of(value: Any) -> Complex:
    """Numbers as complex ones."""
    if isinstance(value, Complex):
        return value
    if isinstance(value, Tensor):
        value = value if value.dtype.is_float else value.astype("f32")
        return Complex(value, T.zeros_like(value))
    return Complex(complex(value).real, complex(value).imag)


Operator = Callable[..., Any]
COMPLEX: dict[str, Operator] = {}
"""What computes an operator whose arguments are complex, by its name without the overload."""


def of_complex(names: str) -> Callable[[Operator], Operator]:
    """Record what computes operators of complex numbers."""

    def keep(run: Operator) -> Operator:
        COMPLEX.update(dict.fromkeys(names.split(), run))
        return run

    return keep


def run_of_complex(name: str) -> Operator:
    """What computes an operator of complex numbers.

    Raises:
        ModelError: nothing does.
    """
    base = name.removeprefix("aten.").partition(".")[0]
    base = base.removesuffix("_copy")
    found = COMPLEX.get(base)
    if found is not None:
        return found
    if base in MOVED:
        run = run_of(name)
        assert run is not None  # a model with operators that are missing is not made
        return lambda *args, **said: both(run, args, said)
    raise ModelError("the operator has no form for complex numbers")


MOVED = set(
    "view reshape _unsafe_view permute transpose t mT numpy_T unsqueeze squeeze expand expand_as "
    "view_as slice select index index_select flatten unflatten contiguous clone repeat movedim "
    "moveaxis swapaxes narrow chunk split split_with_sizes unbind flip roll gather take_along_dim "
    "detach detach_ alias lift_fresh sum mean cumsum neg negative diagonal tril triu "
    "repeat_interleave broadcast_to diff constant_pad_nd pad masked_select".split()
)
"""Operators that do the same to both parts."""


def part_of(value: Any, imaginary: bool) -> Any:
    """One part of complex numbers; other arguments are what they are."""
    if isinstance(value, (list, tuple)):
        return [part_of(v, imaginary) for v in value]
    if isinstance(value, Complex):
        return value.imaginary if imaginary else value.real
    return value


def both(run: Operator, args: Sequence[Any], said: dict[str, Any]) -> Any:
    """What an operator makes of both parts."""
    parts = []
    for imaginary in (False, True):
        given = [part_of(a, imaginary) for a in args]
        parts.append(run(*given, **{k: part_of(v, imaginary) for k, v in said.items()}))
    if isinstance(parts[0], (list, tuple)):
        return [Complex(a, b) for a, b in zip(*parts, strict=True)]
    return Complex(*parts)


# Made of numbers, and numbers of them


@target("view_as_complex")
def view_as_complex(x: Tensor) -> Complex:
    return Complex(x[..., 0], x[..., 1])


@target("complex")
def made_complex(real: Tensor, imaginary: Tensor) -> Complex:
    real, imaginary = T.broadcast_arrays(real, imaginary)
    return Complex(real, imaginary)


@target("polar")
def polar(size: Tensor, angle: Tensor) -> Complex:
    return made_complex(size * angle.cos(), size * angle.sin())


@target("view_as_real")
def view_as_real(x: Any) -> Tensor:
    x = complex_of(x)
    return T.stack([x.real, x.imaginary], axis=-1)


@target("real")
def real(x: Any) -> Any:
    return x


@target("imag")
def imag(x: Tensor) -> Tensor:
    return T.zeros_like(x)


@target("conj _conj _conj_physical conj_physical resolve_conj resolve_neg")
def same(x: Any) -> Any:
    return x


@target("is_complex")
def said_complex(x: Any) -> bool:
    return isinstance(x, Complex)


of_complex("view_as_real")(view_as_real)
of_complex("real")(lambda x: x.real)
of_complex("imag")(lambda x: x.imaginary)
of_complex("is_complex")(said_complex)
of_complex("resolve_conj resolve_neg")(same)
of_complex("abs absolute")(lambda x: x.real.hypot(x.imaginary))
of_complex("angle")(lambda x: x.imaginary.atan2(x.real))


@of_complex("adjoint mH")
def adjoint(x: Complex) -> Complex:
    return both(lambda p: p.transpose(-1, -2), [conjugate(x)], {})  # type: ignore[no-any-return]


@of_complex("conj _conj _conj_physical conj_physical")
def conjugate(x: Complex) -> Complex:
    return Complex(x.real, -x.imaginary)


@of_complex("to _to_copy type")
def converted(x: Any, *args: Any, dtype: Any = None, **said: Any) -> Any:
    wanted = [a for a in (*args, dtype) if isinstance(a, DType) or is_complex(a)]
    if not wanted:
        return x
    if isinstance(wanted[0], DType):  # torch warns, and takes the real part
        return x.real.astype(wanted[0])
    x, dtype = complex_of(x), PARTS[wanted[0]]
    return Complex(x.real.astype(dtype), x.imaginary.astype(dtype))


def _filled(base: str) -> Operator:
    def run(*args: Any, dtype: Any = None, **said: Any) -> Complex:
        found = run_of(f"aten.{base}.default")
        assert found is not None
        given = [a.real if isinstance(a, Complex) else a for a in args]
        number = 0.0
        if base.startswith("full") and isinstance(given[1], complex):
            given[1], number = given[1].real, given[1].imag
        said = said if dtype is None else {**said, "dtype": PARTS.get(dtype, dtype)}
        made = found(*given, **said)
        return Complex(made, T.zeros_like(made) + number)

    return run


for _base in "zeros ones full empty zeros_like ones_like empty_like full_like".split():
    of_complex(_base)(_filled(_base))


# Arithmetic


@of_complex("add __add__ __radd__")
def add(a: Any, b: Any, *, alpha: Any = 1) -> Complex:
    a, b = complex_of(a), complex_of(b)
    b = b if alpha == 1 else multiply(b, alpha)
    return Complex(a.real + b.real, a.imaginary + b.imaginary)


@of_complex("sub subtract __sub__")
def sub(a: Any, b: Any, *, alpha: Any = 1) -> Complex:
    return add(a, multiply(b, -alpha))


@of_complex("rsub")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Complex:
    return sub(b, a, alpha=alpha)


@of_complex("mul multiply __mul__ __rmul__")
def multiply(a: Any, b: Any) -> Complex:
    if not is_complex(a) or not is_complex(b):
        x, by = (a, b) if is_complex(a) else (b, a)
        x = complex_of(x)
        return Complex(x.real * by, x.imaginary * by)
    a, b = complex_of(a), complex_of(b)
    return Complex(
        a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real
    )


@of_complex("reciprocal")
def reciprocal(x: Complex) -> Complex:
    size = x.real * x.real + x.imaginary * x.imaginary
    return Complex(x.real / size, -(x.imaginary / size))


@of_complex("div divide true_divide")
def divide(a: Any, b: Any) -> Complex:
    if is_complex(b):
        return multiply(a, reciprocal(complex_of(b)))
    return Complex(a.real / b, a.imaginary / b)


@of_complex("square")
def square(x: Complex) -> Complex:
    return multiply(x, x)


@of_complex("pow")
def power(x: Any, exponent: Any) -> Complex:
    if not isinstance(exponent, int) or not 1 <= exponent <= 8 or not isinstance(x, Complex):
        raise ModelError(f"powers of complex numbers are from 1 to 8, not {exponent!r}")
    found = x
    for _ in range(exponent - 1):
        found = multiply(found, x)
    return found


@of_complex("exp")
def exponential(x: Any) -> Complex:
    if isinstance(x, complex):
        return complex_of(cmath.exp(x))
    size = x.real.exp()
    return Complex(size * x.imaginary.cos(), size * x.imaginary.sin())


@of_complex("matmul mm bmm mv dot __matmul__")
def product(a: Any, b: Any) -> Complex:
    a, b = complex_of(a), complex_of(b)
    return Complex(
        a.real @ b.real - a.imaginary @ b.imaginary, a.real @ b.imaginary + a.imaginary @ b.real
    )


@of_complex("einsum")
def einsum(equation: str, tensors: Sequence[Any], **said: Any) -> Complex:
    found = complex_of(tensors[0])
    if len(tensors) == 1:
        return both(T.einsum, [equation, found], {})  # type: ignore[no-any-return]
    if len(tensors) > 2:
        raise ModelError("products of sums of more than two tensors of complex numbers")
    other = complex_of(tensors[1])

    def of(x: Any, y: Any) -> Any:
        return T.einsum(equation, x, y)

    a, b = found, other
    return Complex(
        of(a.real, b.real) - of(a.imaginary, b.imaginary),
        of(a.real, b.imaginary) + of(a.imaginary, b.real),
    )


def _several(name: str) -> Operator:
    def run(tensors: Sequence[Any], *args: Any, **said: Any) -> Any:
        found = run_of(f"aten.{name}.default")
        assert found is not None
        return both(found, [[complex_of(t) for t in tensors], *args], said)

    return run


for _base in "cat concat concatenate stack hstack vstack".split():
    of_complex(_base)(_several(_base))


def _written(name: str, values: int) -> Operator:
    def run(x: Any, *args: Any, **said: Any) -> Any:
        given = [complex_of(x), *args]
        given[values] = complex_of(given[values])
        found = run_of(f"aten.{name}.default")
        assert found is not None
        return both(found, given, said)

    return run


for _base, _at in {"copy": 1, "slice_scatter": 1, "select_scatter": 1, "index_put": 2}.items():
    of_complex(_base)(_written(_base, _at))


@of_complex("where")
def where(condition: Tensor, a: Any, b: Any) -> Complex:
    a, b = complex_of(a), complex_of(b)
    return Complex(T.where(condition, a.real, b.real), T.where(condition, a.imaginary, b.imaginary))


@of_complex("masked_fill")
def masked_fill(x: Complex, mask: Tensor, value: Any) -> Complex:
    return where(mask, value, x)


@of_complex("linear")
def linear(x: Any, weight: Any, bias: Any = None) -> Complex:
    found = product(x, both(lambda w: w.transpose(-1, -2), [complex_of(weight)], {}))
    return found if bias is None else add(found, bias)
