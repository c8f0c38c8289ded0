"""The examples that the docstrings of the language's names end with; a test runs each one.

Most names need a whole kernel to be shown. What differs from kernel to kernel is in the tables
here: the lines of the kernel, its arguments, and what it prints. Names that only a GPU has are in
`hardware_examples`.
"""

from __future__ import annotations


def with_example(doc: str, example: str) -> str:
    """A docstring of these words, with the lines of an example, if there are some, below them."""
    return (
        "\n".join([doc, "", "Example:", *(f"    {row}" for row in example.splitlines()), ""])
        if example
        else doc
    )


def kernel_example(
    body: str, *, grid: str = "[1, 1]", out: str, shown: str = "out", shows: str, **inputs: str
) -> str:
    """The lines of an example: a kernel of `inputs` and `out` with this body, launched on `grid`,
    and what it prints.

    Example:
        >>> kernel_example("out[0] = 2 * x[0]", x="np.ones(1)", out="np.zeros(1)",
        ...     shows="[2.]").splitlines()[3:]
        ['...     out[0] = 2 * x[0]', '>>> x = np.ones(1)', '>>> out = np.zeros(1)', '>>> run[1, 1](x, out)',
         '>>> print(out)', '[2.]']
    """
    arguments = {**inputs, "out": out}
    lines = [
        ">>> import numpy as np, cubepy as cb",
        ">>> @cb.kernel",
        f"... def run({', '.join(f'{name}: cb.Array' for name in arguments)}):",
        *(f"...     {row}" for row in body.splitlines()),
        *(f">>> {name} = {value}" for name, value in arguments.items()),
        f">>> run{grid}({', '.join(arguments)})",
        f">>> print({shown})",
        shows,
    ]
    return "\n".join(lines)


def each(
    expression: str,
    values: str,
    shows: str,
    dtype: str = "np.float32",
    to: str = "",
    shown: str = "out",
) -> str:
    """The lines of an example of an expression of `x[i]`, with its value for each of a list of
    numbers.
    """
    array = f"np.array({values}, {dtype})"
    empty = f"np.zeros({values.count(',') + 1}, {to or dtype})"
    grid = f"[1, {values.count(',') + 1}]"
    body = f"i = cb.ABSOLUTE_POS\nout[i] = {expression}"
    return kernel_example(body, grid=grid, x=array, out=empty, shown=shown, shows=shows)


def line(expression: str, values: str, lanes: int, shows: str) -> str:
    """The lines of an example of an expression of a line `v` of four floats, whose value has so
    many lanes.
    """
    body = f"v = x.load(0, 4)\nout.store(0, {expression})"
    array = f"np.array({values}, np.float32)"
    return kernel_example(body, x=array, out=f"np.zeros({lanes}, np.float32)", shows=shows)


def atomic(call: str, start: str, values: str, shows: str) -> str:
    """The lines of an example in which four units change one place of `out`."""
    array = f"np.array({values}, np.int32)"
    body = f"i = cb.ABSOLUTE_POS\n{call}"
    return kernel_example(
        body, grid="[2, 2]", x=array, out=f"np.array({start}, np.int32)", shows=shows
    )


FLOATS = {
    "exp": each("cb.exp(x[i])", "[0, 1]", "[1.        2.7182817]"),
    "exp2": each("cb.exp2(x[i])", "[3, -1]", "[8.  0.5]"),
    "log": each("cb.log(x[i])", "[1, 10]", "[0.        2.3025851]"),
    "log2": each("cb.log2(x[i])", "[8, 0.5]", "[ 3. -1.]"),
    "log1p": each("cb.log1p(x[i])", "[0, 1e-10]", "[0.e+00 1.e-10]"),
    "expm1": each("cb.expm1(x[i])", "[0, 1e-10]", "[0.e+00 1.e-10]"),
    "sqrt": each("cb.sqrt(x[i])", "[9, 2]", "[3.        1.4142135]"),
    "rsqrt": each("cb.rsqrt(x[i])", "[4, 0.25]", "[0.5 2. ]"),
    "sin": each("cb.sin(x[i])", "[0, np.pi / 6]", "[0.  0.5]"),
    "cos": each("cb.cos(x[i])", "[0, np.pi]", "[ 1. -1.]"),
    "tanh": each("cb.tanh(x[i])", "[0, 1, 100]", "[0.    0.762 1.   ]", shown="out.round(3)"),
    "erf": each("cb.erf(x[i])", "[0, 1, 100]", "[0.    0.843 1.   ]", shown="out.round(3)"),
    "floor": each("cb.floor(x[i])", "[1.5, -1.5]", "[ 1. -2.]"),
    "ceil": each("cb.ceil(x[i])", "[1.5, -1.5]", "[ 2. -1.]"),
    "trunc": each("cb.trunc(x[i])", "[1.5, -1.5]", "[ 1. -1.]"),
    "isnan": each("cb.isnan(x[i])", "[1, np.nan, np.inf]", "[False  True False]", to="bool"),
    "isinf": each("cb.isinf(x[i])", "[1, np.nan, np.inf]", "[False False  True]", to="bool"),
    "pow": each("cb.pow(x[i], 3)", "[2, 0.5]", "[8.    0.125]"),
    "round": each("cb.round(x[i])", "[0.5, 1.5, 2.5]", "[0. 2. 2.]"),
}
"""Of functions of floats."""

CHOICES = {
    "select": each("cb.select(x[i] > 0, x[i], 0.1 * x[i])", "[-2, 3]", "[-0.2  3. ]"),
    "abs": each("cb.abs(x[i])", "[-2, 127, -128]", "[   2  127 -128]", "np.int8"),
    "min": each("cb.min(x[i], 2)", "[1, 3, np.nan]", "[1. 2. 2.]"),
    "max": each("cb.max(x[i], 2)", "[1, 3, np.nan]", "[2. 3. 2.]"),
    "nan_min": each("cb.nan_min(x[i], 2)", "[1, 3, np.nan]", "[ 1.  2. nan]"),
    "nan_max": each("cb.nan_max(x[i], 2)", "[1, 3, np.nan]", "[ 2.  3. nan]"),
    "clamp": each("cb.clamp(x[i], 0, 6)", "[-1, 3, 9]", "[0. 3. 6.]"),
    "fma": each(
        "cb.fma(x[i], x[i], -(x[i] * x[i]))  # what rounding x * x took",
        "[1.5, 1.1]",
        "[0.0000000e+00 1.4305115e-08]",
    ),
}
"""Of functions that choose, and of the one that rounds once."""

BITS = {
    "cast": each(
        "cb.cast(x[i], cb.i8)", "[2.9, -2.9, 300, np.nan]", "[  2  -2 127   0]", to="np.int8"
    ),
    "bitcast": each(
        "cb.bitcast(x[i], cb.u32) >> 23 & 255  # the exponent",
        "[1, 2, 0.5]",
        "[127 128 126]",
        to="np.uint32",
    ),
    "popcount": each("cb.popcount(x[i])", "[0, 7, -1]", "[ 0  3 32]", "np.int32"),
    "clz": each("cb.clz(x[i])", "[0, 1, 255]", "[32 31 24]", "np.int32"),
    "ctz": each("cb.ctz(x[i])", "[0, 1, 8]", "[32  0  3]", "np.int32"),
}
"""Of functions that look at bits."""

LINES = {
    "splat": line("v * cb.splat(x[1], 4)", "[0, 10, 20, 30]", 4, "[  0. 100. 200. 300.]"),
    "concat": line("cb.concat(v, -v)", "[1, 2, 3, 4]", 8, "[ 1.  2.  3.  4. -1. -2. -3. -4.]"),
    "slice_line": line("cb.slice_line(v, 1, 2)", "[1, 2, 3, 4]", 2, "[2. 3.]"),
    "interleave": line(
        "cb.interleave(v, -v)", "[1, 2, 3, 4]", 8, "[ 1. -1.  2. -2.  3. -3.  4. -4.]"
    ),
    "partition": line("cb.partition(v, v > 0)", "[-1, 2, -3, 4]", 4, "[ 2.  4. -1. -3.]"),
    "shuffle": line("cb.shuffle(v, -v, (3, 2, 1, 4))", "[1, 2, 3, 4]", 4, "[ 4.  3.  2. -1.]"),
    "dot_i8": kernel_example(
        "sums = cb.splat(cb.i32(0), 2)\nout.store(0, cb.dot_i8(sums, a.load(0, 8), b.load(0, 8)))",
        a="np.array([1, 2, 3, 4, 250, 250, 250, 250], np.uint8)",
        b="np.array([1, 1, 1, -1, 100, 100, 100, 100], np.int8)",
        out="np.zeros(2, np.int32)",
        shows="[     2 100000]",
    ),
    "dot_bf16": kernel_example(
        "sums = cb.splat(cb.f32(0), 2)\nout.store(0, cb.dot_bf16(sums, a.load(0, 2), "
        "b.load(0, 2)))",
        a="np.array([1, 2, 3, 4], cb.bf16.numpy).view(np.uint32)",
        b="np.array([10, 100, 10, 100], cb.bf16.numpy).view(np.uint32)",
        out="np.zeros(2, np.float32)",
        shows="[210. 430.]",
    ),
}
"""Of functions of lines."""

_MIRRORED = kernel_example(
    "board = cb.shared(4, x.dtype)\ni = cb.UNIT_POS\nboard[i] = x[i]\ncb.sync_cube()  # now "
    "all four are there\nout[i] = board[3 - i]",
    grid="[1, 4]",
    x="np.array([1, 2, 3, 4], np.float32)",
    out="np.zeros(4, np.float32)",
    shows="[4. 3. 2. 1.]",
)

MEMORY = {
    "shared": _MIRRORED,
    "sync_cube": _MIRRORED,
    "local": kernel_example(
        "sums = cb.local(2, cb.f32)  # of the even places and of the odd ones\nsums[0], "
        "sums[1] = 0, 0\nfor k in range(x.size):\n    sums[k % 2] += x[k]\nout[0], "
        "out[1] = sums[0], sums[1]",
        x="np.array([1, 10, 2, 20], np.float32)",
        out="np.zeros(2, np.float32)",
        shows="[ 3. 30.]",
    ),
    "comptime": kernel_example(
        "lanes = cb.comptime(16 // x.dtype.itemsize)  # known before the kernel runs\n"
        "out.store(0, 2 * x.load(0, lanes))",
        x="np.array([1, 2, 3, 4], np.float32)",
        out="np.zeros(4, np.float32)",
        shows="[2. 4. 6. 8.]",
    ),
    "unroll": kernel_example(
        "v = x.load(0, 4)\nfor k in cb.unroll(range(4)):\n    out[3 - k] = v[k]  # a lane's "
        "number is comptime",
        x="np.array([1, 2, 3, 4], np.float32)",
        out="np.zeros(4, np.float32)",
        shows="[4. 3. 2. 1.]",
    ),
    "device_properties": kernel_example(
        "lanes = cb.comptime(cb.device_properties().register_bytes // "
        "x.dtype.itemsize)\nout[0] = lanes >= 4",
        x="np.zeros(1, np.float32)",
        out="np.zeros(1, bool)",
        shows="[ True]",
    ),
    "debug_print": """\
>>> import numpy as np, cubepy as cb
>>> @cb.kernel
... def run(x: cb.Array):
...     cb.debug_print("first", x[0], "of", x.size)
>>> with cb.config.override(debug=1):
...     run[1, 1](np.array([7], np.int32))
first 7 of 1""",
    "debug_assert": """\
>>> import numpy as np, cubepy as cb
>>> @cb.kernel
... def run(x: cb.Array):
...     cb.debug_assert(x[0] >= 0, "x must not be negative")
>>> run[1, 1](np.array([-1], np.int32), mode="validate")
Traceback (most recent call last):
    ...
cubepy.errors.KernelAssertionError: in run: x must not be negative...""",
}
"""Of memory, comptime values and debugging."""

ATOMICS = {
    "atomic_add": atomic("cb.atomic_add(out, 0, x[i])", "[100]", "[1, 2, 3, 4]", "[110]"),
    "atomic_sub": atomic("cb.atomic_sub(out, 0, x[i])", "[100]", "[1, 2, 3, 4]", "[90]"),
    "atomic_max": atomic("cb.atomic_max(out, 0, x[i])", "[0]", "[1, 9, 3, 4]", "[9]"),
    "atomic_min": atomic("cb.atomic_min(out, 0, x[i])", "[5]", "[8, 9, 3, 4]", "[3]"),
    "atomic_and": atomic("cb.atomic_and(out, 0, x[i])", "[0b1111]", "[15, 14, 15, 11]", "[10]"),
    "atomic_or": atomic("cb.atomic_or(out, 0, x[i])", "[0b0001]", "[0, 8, 0, 2]", "[11]"),
    "atomic_xor": atomic("cb.atomic_xor(out, 0, x[i])", "[0b1111]", "[1, 1, 1, 2]", "[12]"),
    "atomic_exchange": atomic(
        "x[i] = cb.atomic_exchange(out, 0, x[i])  # out has one of the five, x the "
        "others\ncb.atomic_add(out, 1, x[i])",
        "[9, 0]",
        "[7, 7, 7, 7]",
        "[ 7 30]",
    ),
    "atomic_compare_exchange": atomic(
        "if cb.atomic_compare_exchange(out, 0, 0, 7) == 0:  # 0 is still there: this unit "
        "came first\n    cb.atomic_add(out, 1, 1)",
        "[0, 0]",
        "[1, 2, 3, 4]",
        "[7 1]",
    ),
}
"""Of atomic functions."""


def position(name: str, shows: str) -> str:
    """The lines of an example of a topology value: two cubes of three units along the axis that it
    names.
    """
    axes = {"X": "[2, 3]", "Y": "[(1, 2), (1, 3)]", "Z": "[(1, 1, 2), (1, 1, 3)]"}
    grid = axes.get(name[-1] if name[-2] == "_" else "X", "")
    return kernel_example(
        f"out[cb.ABSOLUTE_POS] = cb.{name}", grid=grid, out="np.zeros(6, np.int32)", shows=shows
    )


POSITIONS = {
    name + axis: position(name + axis, shows)
    for name, shows in {
        "ABSOLUTE_POS": "[0 1 2 3 4 5]",
        "CUBE_POS": "[0 0 0 1 1 1]",
        "CUBE_DIM": "[3 3 3 3 3 3]",
        "CUBE_COUNT": "[2 2 2 2 2 2]",
        "UNIT_POS": "[0 1 2 0 1 2]",
    }.items()
    for axis in ("", "_X", "_Y", "_Z")
}
"""Of the positions and sizes of a launch."""

PLAIN = FLOATS | CHOICES | BITS | LINES | MEMORY | ATOMICS | POSITIONS
"""Of every name that all devices have."""

DTYPES = {
    "bool_": ("True or False; one byte in memory.", ">>> cb.promote(cb.bool_, cb.i8)\ncb.i8"),
    "i8": ("Integers from -128 to 127.", ">>> cb.promote(cb.i8, cb.u8)  # both fit\ncb.i16"),
    "i16": ("Integers from -32768 to 32767.", ">>> cb.promote(cb.i16, cb.i8)\ncb.i16"),
    "i32": (
        "Integers from -2^31 to 2^31 - 1.",
        ">>> cb.promote(cb.i32, cb.u32)  # both fit\ncb.i64",
    ),
    "i64": (
        "Integers from -2^63 to 2^63 - 1.",
        ">>> cb.promote(cb.i64, cb.f32)  # never a wider float\ncb.f32",
    ),
    "u8": ("Integers from 0 to 255.", ">>> int(cb.u8(255)), cb.u8.itemsize\n(255, 1)"),
    "u16": ("Integers from 0 to 65535.", ">>> cb.promote(cb.u16, cb.i16)  # both fit\ncb.i32"),
    "u32": ("Integers from 0 to 2^32 - 1.", ">>> cb.promote(cb.u32, cb.u8)\ncb.u32"),
    "u64": (
        "Integers from 0 to 2^64 - 1.",
        ">>> cb.promote(cb.u64, cb.i8)  # there is no wider one\ncb.i64",
    ),
    "f16": (
        "IEEE's half: 11 bits of precision, up to 65504.",
        ">>> float(cb.f16(0.1))\n0.0999755859375",
    ),
    "bf16": (
        "The upper half of an f32: 8 bits of precision.",
        ">>> float(cb.bf16(0.1))\n0.10009765625",
    ),
    "f32": ("IEEE's single: 24 bits of precision.", ">>> float(cb.f32(0.1))\n0.10000000149011612"),
    "f64": ("IEEE's double: 53 bits of precision.", ">>> float(cb.f64(0.1))\n0.1"),
    "fp8_e4m3": (
        "A byte with 4 bits of precision, up to 448; read as f32.",
        ">>> float(cb.fp8_e4m3(0.1)), cb.fp8_e4m3.compute\n(0.1015625, cb.f32)",
    ),
    "fp8_e5m2": (
        "A byte with 3 bits of precision, up to 57344; read as f32.",
        ">>> float(cb.fp8_e5m2(0.1)), cb.fp8_e5m2.compute\n(0.09375, cb.f32)",
    ),
    "int4": (
        "Integers from -8 to 7; read as i8.",
        ">>> int(cb.int4(-8)), cb.int4.compute\n(-8, cb.i8)",
    ),
    "uint4": (
        "Integers from 0 to 15; read as u8.",
        ">>> int(cb.uint4(15)), cb.uint4.compute\n(15, cb.u8)",
    ),
}
"""What each dtype holds, and an example."""


def dtype_doc(name: str) -> str:
    """The docstring of a dtype."""
    words, example = DTYPES[name]
    return with_example(words, ">>> import cubepy as cb\n" + example)
