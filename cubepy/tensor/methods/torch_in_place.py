"""PyTorch's methods that change a tensor in place: the handle has what the method without `_`
gives, in its dtype; what was computed before keeps its elements. And those that draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.tensor.methods.applied import Applied

T = TypeVar("T")


def _in_place(name: str) -> Callable[..., Any]:
    """A method that gives the handle what another method computes."""

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._changed(getattr(self, name)(*args, **kwargs))

    run.__name__ = run.__qualname__ = f"{name}_"
    run.__doc__ = f"`{name}` in place: the tensor gets the result, and is given back."
    return run


class TorchInPlace(Applied[T]):
    """What `Tensor` inherits: methods in place, and draws.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    abs_ = _in_place("abs")
    neg_ = _in_place("neg")
    negative_ = _in_place("negative")
    exp_ = _in_place("exp")
    exp2_ = _in_place("exp2")
    expm1_ = _in_place("expm1")
    log_ = _in_place("log")
    log1p_ = _in_place("log1p")
    log2_ = _in_place("log2")
    log10_ = _in_place("log10")
    sqrt_ = _in_place("sqrt")
    rsqrt_ = _in_place("rsqrt")
    square_ = _in_place("square")
    reciprocal_ = _in_place("reciprocal")
    sin_ = _in_place("sin")
    cos_ = _in_place("cos")
    tan_ = _in_place("tan")
    asin_ = _in_place("asin")
    acos_ = _in_place("acos")
    atan_ = _in_place("atan")
    sinh_ = _in_place("sinh")
    cosh_ = _in_place("cosh")
    tanh_ = _in_place("tanh")
    asinh_ = _in_place("asinh")
    acosh_ = _in_place("acosh")
    atanh_ = _in_place("atanh")
    erf_ = _in_place("erf")
    erfc_ = _in_place("erfc")
    erfinv_ = _in_place("erfinv")
    lgamma_ = _in_place("lgamma")
    digamma_ = _in_place("digamma")
    sigmoid_ = _in_place("sigmoid")
    logit_ = _in_place("logit")
    sinc_ = _in_place("sinc")
    relu_ = _in_place("relu")
    sign_ = _in_place("sign")
    sgn_ = _in_place("sgn")
    floor_ = _in_place("floor")
    ceil_ = _in_place("ceil")
    round_ = _in_place("round")
    trunc_ = _in_place("trunc")
    frac_ = _in_place("frac")
    fix_ = _in_place("fix")
    deg2rad_ = _in_place("deg2rad")
    rad2deg_ = _in_place("rad2deg")
    pow_ = _in_place("pow")
    remainder_ = _in_place("remainder")
    fmod_ = _in_place("fmod")
    floor_divide_ = _in_place("floor_divide")
    true_divide_ = _in_place("true_divide")
    multiply_ = _in_place("multiply")
    divide_ = _in_place("divide")
    subtract_ = _in_place("subtract")
    clip_ = _in_place("clip")
    clamp_min_ = _in_place("clamp_min")
    clamp_max_ = _in_place("clamp_max")
    nan_to_num_ = _in_place("nan_to_num")
    atan2_ = _in_place("atan2")
    hypot_ = _in_place("hypot")
    copysign_ = _in_place("copysign")
    heaviside_ = _in_place("heaviside")
    xlogy_ = _in_place("xlogy")
    addcmul_ = _in_place("addcmul")
    addcdiv_ = _in_place("addcdiv")
    addmm_ = _in_place("addmm")
    baddbmm_ = _in_place("baddbmm")
    gcd_ = _in_place("gcd")
    lcm_ = _in_place("lcm")
    bitwise_and_ = _in_place("bitwise_and")
    bitwise_or_ = _in_place("bitwise_or")
    bitwise_xor_ = _in_place("bitwise_xor")
    bitwise_not_ = _in_place("bitwise_not")
    bitwise_left_shift_ = _in_place("bitwise_left_shift")
    bitwise_right_shift_ = _in_place("bitwise_right_shift")
    logical_and_ = _in_place("logical_and")
    logical_or_ = _in_place("logical_or")
    logical_xor_ = _in_place("logical_xor")
    logical_not_ = _in_place("logical_not")
    eq_ = _in_place("eq")
    ne_ = _in_place("ne")
    lt_ = _in_place("lt")
    le_ = _in_place("le")
    gt_ = _in_place("gt")
    ge_ = _in_place("ge")
    greater_ = _in_place("greater")
    greater_equal_ = _in_place("greater_equal")
    less_ = _in_place("less")
    less_equal_ = _in_place("less_equal")
    not_equal_ = _in_place("not_equal")
    tril_ = _in_place("tril")
    triu_ = _in_place("triu")
    renorm_ = _in_place("renorm")
    masked_fill_ = _in_place("masked_fill")
    masked_scatter_ = _in_place("masked_scatter")
    index_add_ = _in_place("index_add")
    index_copy_ = _in_place("index_copy")
    index_fill_ = _in_place("index_fill")
    index_put_ = _in_place("index_put")
    scatter_ = _in_place("scatter")
    scatter_add_ = _in_place("scatter_add")
    scatter_reduce_ = _in_place("scatter_reduce")
    cumsum_ = _in_place("cumsum")
    cumprod_ = _in_place("cumprod")
    absolute_ = _in_place("absolute")
    addbmm_ = _in_place("addbmm")
    addmv_ = _in_place("addmv")
    addr_ = _in_place("addr")
    arccos_ = _in_place("arccos")
    arccosh_ = _in_place("arccosh")
    arcsin_ = _in_place("arcsin")
    arcsinh_ = _in_place("arcsinh")
    arctan_ = _in_place("arctan")
    arctan2_ = _in_place("arctan2")
    arctanh_ = _in_place("arctanh")
    float_power_ = _in_place("float_power")
    index_reduce_ = _in_place("index_reduce")
    ldexp_ = _in_place("ldexp")
    nextafter_ = _in_place("nextafter")
    put_ = _in_place("put")

    def fill_diagonal_(self, fill_value: Any) -> T:
        """A number on the diagonal of a matrix."""
        x: Any = self
        if x.ndim != 2:
            raise ShapeError(f"fill_diagonal_ takes a matrix, not the shape {x.shape}")
        n = min(x.shape)
        rows = x.__array_namespace__().eye(*x.shape, dtype="bool_", device=x.device)
        return x._changed(x.masked_fill(rows, fill_value) if n else x)  # type: ignore[no-any-return]

    # Draws, of a generator that is named

    def bernoulli(self, p: float | None = None, *, generator: Any = None) -> T:
        """Ones with the probabilities that the elements are (or p), zeros otherwise; in the
        tensor's dtype.

        Example:
            >>> import cubepy as cb
            >>> cb.tensor([0.0, 1.0]).bernoulli(generator=cb.Generator(0))
            tensor([0., 1.])
        """
        x: Any = self
        source = _named(generator, "bernoulli")
        return source.bernoulli(x if p is None else p, x.shape, x.dtype)  # type: ignore[no-any-return]

    def multinomial(
        self, num_samples: int, replacement: bool = False, *, generator: Any = None
    ) -> T:
        """Indices (i64) of as many samples of the last axis, whose elements are weights; see
        `Generator.multinomial`.

        Example:
            >>> import cubepy as cb
            >>> cb.tensor([0.0, 3.0, 0.0]).multinomial(1, generator=cb.Generator(0))
            tensor([1])
        """
        return _named(generator, "multinomial").multinomial(self, num_samples, replacement)  # type: ignore[no-any-return]

    def uniform_(self, from_: float = 0, to: float = 1, *, generator: Any = None) -> T:
        """Floats spread evenly over [from_, to)."""
        x: Any = self
        drawn = _named(generator, "uniform_").uniform(x.shape, from_, to, _float(x, "uniform_"))
        return x._changed(drawn)  # type: ignore[no-any-return]

    def normal_(self, mean: float = 0, std: float = 1, *, generator: Any = None) -> T:
        """Floats of the normal distribution."""
        x: Any = self
        drawn = _named(generator, "normal_").normal(x.shape, mean, std, _float(x, "normal_"))
        return x._changed(drawn)  # type: ignore[no-any-return]

    def exponential_(self, lambd: float = 1, *, generator: Any = None) -> T:
        """Floats of the exponential distribution of a rate."""
        x: Any = self
        dtype = _float(x, "exponential_")
        drawn = _named(generator, "exponential_").uniform(x.shape, dtype=dtype)
        return x._changed(-(-drawn).log1p() / lambd)  # type: ignore[no-any-return]

    def bernoulli_(self, p: Any = 0.5, *, generator: Any = None) -> T:
        """Ones with a probability, or those of a tensor, zeros otherwise."""
        x: Any = self
        return x._changed(_named(generator, "bernoulli_").bernoulli(p, x.shape, x.dtype))  # type: ignore[no-any-return]


def _named(generator: Any, what: str) -> Any:
    """A generator that was given."""
    if not hasattr(generator, "bernoulli"):
        raise ArgumentError(
            f"{what} draws from a generator, and there is none that nobody named",
            hint="give generator=cb.Generator(seed), the same one in every call",
        )
    return generator


def _float(x: Any, what: str) -> Any:
    if not x.dtype.is_float:
        raise DTypeError(f"{what} draws floats, not {x.dtype.name}")
    return x.dtype
