"""Bad input gives a cubepy error before any backend sees it: rule, value, file and line, caret,
hint.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors

X = np.arange(8, dtype=np.float32)
I = np.arange(8, dtype=np.int32)


def fails(error: type[Exception], *texts: str, run: Any) -> str:
    """Run something that must fail; the message holds all texts. Gives the message."""
    with pytest.raises(error) as info:
        run()
    message = str(info.value)
    for text in texts:
        assert text in message, message
    return message


def shows_source(message: str, line: str) -> None:
    """The message points into this file, at a line with this text, with a caret below it."""
    assert str(Path(__file__)) in message
    rows = message.splitlines()
    at = next(i for i, row in enumerate(rows) if line in row)
    assert rows[at + 1].strip() == "^"
    assert rows[at + 1].index("^") >= len(rows[at]) - len(rows[at].lstrip()), (
        "the caret is under the code"
    )


@cb.kernel
def misspelt(x: cb.Array, out: cb.Array):
    value = x[0]
    out[0] = valve + 1  # noqa: F821


def test_an_unknown_name_is_named_with_a_suggestion() -> None:
    message = fails(
        errors.KernelNameError,
        "'valve' is not defined",
        "did you mean 'value'",
        run=lambda: misspelt[1, 1](X, X.copy()),
    )
    shows_source(message, "out[0] = valve + 1")


@cb.kernel
def tries(x: cb.Array):
    try:
        x[0] = 1
    except ValueError:
        x[0] = 2


@cb.kernel
def withs(x: cb.Array):
    with open("f"):
        x[0] = 1


@cb.kernel
def yields(x: cb.Array):
    yield x[0]


@cb.kernel
def lambdas(x: cb.Array):
    f = lambda v: v
    x[0] = f(1)


@cb.kernel
def comprehends(x: cb.Array):
    x[0] = sum([x[i] for i in range(3)])


@cb.func
def endless(n):
    return endless(n) + 1


@cb.kernel
def recursive(x: cb.Array):
    x[0] = endless(x[0])


@pytest.mark.parametrize(
    ("kernel", "what"),
    [
        (tries, "try cannot be used"), (withs, "with cannot be used"), (yields, "yield cannot be used"),
        (lambdas, "lambda cannot be used"), (comprehends, "a comprehension cannot be used"),
        (recursive, "recursion cannot be used"),
    ],
)  # fmt: skip
def test_syntax_that_kernels_lack_is_refused(kernel: Any, what: str) -> None:
    message = fails(errors.KernelSyntaxError, what, run=lambda: kernel[1, 1](X.copy()))
    assert str(Path(__file__)) in message and "^" in message


def test_a_file_that_changed_since_its_import_is_refused(tmp_path: Path) -> None:
    """Lines that moved would give one function the body of another."""
    text = """import cubepy as cb

@cb.kernel
def ones(out: cb.Array):
    out[cb.ABSOLUTE_POS] = 1

@cb.kernel
def twos(out: cb.Array):
    out[cb.ABSOLUTE_POS] = 2
"""
    file = tmp_path / "edited_kernels.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    out = np.zeros(2, np.float32)
    module.ones[1, 2](out, device="python")
    file.write_text(text.replace("cb\n\n", "cb\n\n" + "# more\n" * 4).replace("ones", "many"))
    with pytest.raises(
        cb.errors.KernelSyntaxError, match="has changed since it was imported: line 7 .* twos"
    ):
        module.twos[1, 2](out, device="python")
    np.testing.assert_array_equal(out, 1)


def test_star_arguments_are_refused() -> None:
    @cb.kernel
    def star(*arrays):
        pass

    fails(
        errors.KernelTypeError, "takes *arrays", "parameters are fixed", run=lambda: star[1, 1](X)
    )


@cb.kernel
def needs_lanes(x: cb.Array, *, lanes: cb.Comptime[int]):
    x[0] = lanes


def test_a_missing_comptime_parameter_is_named() -> None:
    fails(
        errors.ComptimeError, "comptime parameter 'lanes'", run=lambda: needs_lanes[1, 1](X.copy())
    )


def test_an_unhashable_comptime_value_is_refused() -> None:
    fails(
        errors.ComptimeError, "must be hashable", "list [1, 2]", "tuple instead of a list",
        run=lambda: needs_lanes[1, 1](X.copy(), lanes=[1, 2]),
    )  # fmt: skip


@cb.kernel
def runtime_lanes(x: cb.Array, n):
    x.store(0, cb.splat(1.0, n))


def test_a_runtime_value_where_comptime_is_needed_is_refused() -> None:
    message = fails(
        errors.ComptimeError,
        "the lane count must be comptime",
        "a runtime i32",
        run=lambda: runtime_lanes[1, 1](X.copy(), 4),
    )
    shows_source(message, "cb.splat(1.0, n)")


@cb.kernel
def two_axes(x: cb.Array):
    x[0, 0] = 1


def test_a_wrong_rank_is_refused() -> None:
    message = fails(
        errors.KernelTypeError,
        "x has rank 1 and is indexed with 2 indices",
        run=lambda: two_axes[1, 1](X.copy()),
    )
    shows_source(message, "x[0, 0] = 1")


@cb.kernel
def puts_float(x: cb.Array):
    x[0] = 1.5


def test_a_float_for_an_integer_array_is_refused() -> None:
    message = fails(
        errors.DTypeError,
        "a float cannot be put into the array 'x' of dtype i32",
        "cb.cast",
        run=lambda: puts_float[1, 1](I.copy()),
    )
    shows_source(message, "x[0] = 1.5")


@cb.kernel
def changes_dtype(x: cb.Array, i: cb.Array):
    v = i[0]
    v = x[0]
    x[1] = v


def test_a_variable_has_one_dtype_for_its_whole_life() -> None:
    message = fails(
        errors.DTypeError,
        "'v' is i32 and is given f32",
        "one dtype for its whole life",
        run=lambda: changes_dtype[1, 1](X.copy(), I),
    )
    shows_source(message, "v = x[0]")


def test_a_dtype_that_kernels_do_not_know_is_refused() -> None:
    fails(
        errors.DTypeError,
        "complex64",
        "cannot be used in a kernel",
        run=lambda: puts_float[1, 1](X.astype(np.complex64)),
    )


@cb.kernel
def uneven_barrier(x: cb.Array):
    if cb.UNIT_POS < 2:
        cb.sync_cube()
    x[cb.UNIT_POS] = 1


@cb.kernel
def early_return_then_barrier(x: cb.Array):
    if cb.ABSOLUTE_POS >= x.size:
        return
    cb.sync_cube()
    x[cb.ABSOLUTE_POS] = 1


@cb.kernel
def uneven_loop(x: cb.Array):
    for _ in range(cb.UNIT_POS):
        cb.sync_cube()
    x[cb.UNIT_POS] = 1


@pytest.mark.parametrize("kernel", [uneven_barrier, early_return_then_barrier, uneven_loop])
def test_a_barrier_that_some_units_miss_is_refused(kernel: Any) -> None:
    message = fails(
        errors.BarrierError,
        "reached by all units of a cube or by none",
        run=lambda: kernel[1, 4](X.copy()),
    )
    shows_source(message, "cb.sync_cube()")


@cb.kernel
def hoards(x: cb.Array):
    s = cb.shared((1024, 1024), cb.f32)
    s[0, 0] = x[0]
    x[0] = s[0, 0]


def test_too_much_shared_memory_is_refused_with_both_sizes() -> None:
    message = fails(
        errors.SharedMemoryError, "4194304 bytes", "262144", run=lambda: hoards[1, 1](X.copy())
    )
    shows_source(message, "cb.shared((1024, 1024), cb.f32)")


@cb.kernel
def shifts(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = x[i + 1]


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_validate_mode_names_kernel_array_index_length_and_line(device: str) -> None:
    message = fails(
        errors.OutOfBoundsError, "shifts accesses index 8 of 'x', whose length is 8",
        run=lambda: shifts[1, 8](X, np.zeros(8, np.float32), mode="validate", device=device),
    )  # fmt: skip
    assert "out[i] = x[i + 1]" in message and str(Path(__file__)) in message


@pytest.mark.parametrize(
    "grid", [(0, 1), (1, 0), (-1, 1), ((1, -2), 1), (1, (1, 1, 1, 1)), (1.5, 1), 5]
)
def test_a_grid_that_makes_no_sense_is_refused(grid: Any) -> None:
    fails(errors.LaunchError, run=lambda: shifts[grid](X, X.copy()))


def test_over_refuses_a_negative_count() -> None:
    fails(errors.LaunchError, "-3", run=lambda: cb.over(-3))


def test_a_read_only_output_is_refused() -> None:
    out = np.zeros(8, np.float32)
    out.flags.writeable = False
    fails(
        errors.ReadOnlyError, "writes 'out', which is read-only", run=lambda: shifts[1, 8](X, out)
    )


def test_an_output_that_overlaps_an_input_is_refused() -> None:
    both = np.zeros(16, np.float32)
    fails(
        errors.AliasError,
        "'out'",
        "overlaps",
        "'x'",
        run=lambda: shifts[1, 8](both[:8], both[4:12]),
    )


def test_working_in_place_is_allowed() -> None:
    x = np.arange(8, dtype=np.float32)
    scale_in_place[cb.over(x)](x, x)
    assert (x == np.arange(8) * 2).all()


@cb.kernel
def scale_in_place(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2


def test_an_unknown_mode_backend_and_argument_are_refused() -> None:
    fails(
        errors.LaunchError,
        "no mode 'fast'",
        "checked",
        run=lambda: shifts[1, 1](X, X.copy(), mode="fast"),
    )
    fails(
        errors.DeviceError, "no device 'gpu'", run=lambda: shifts[1, 1](X, X.copy(), device="gpu")
    )
    fails(errors.KernelTypeError, "no parameter 'z'", run=lambda: shifts[1, 1](X, X.copy(), z=1))
    fails(
        errors.KernelTypeError, "needs a value for its parameter 'out'", run=lambda: shifts[1, 1](X)
    )
    fails(errors.KernelTypeError, "its parameters are x, out", run=lambda: shifts[1, 1](X))
    fails(errors.KernelTypeError, "is an array but is given", run=lambda: shifts[1, 1](X, 3))
    fails(errors.LaunchError, "needs a grid", run=lambda: shifts(X, X.copy()))
    fails(errors.LaunchError, "outside a kernel", run=lambda: cb.exp(1.0))


def test_empty_arrays_and_nan_are_no_errors() -> None:
    empty = np.zeros(0, np.float32)
    scale_in_place[cb.over(empty)](empty, np.zeros(0, np.float32))
    out = np.zeros(2, np.float32)
    scale_in_place[cb.over(out)](np.array([np.nan, np.inf], np.float32), out)
    assert np.isnan(out[0]) and np.isinf(out[1])


def test_errors_survive_pickling() -> None:
    import pickle

    error = errors.DTypeError("rule", location=errors.Location("f.py", 3), hint="do this")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.location == error.location


def test_a_quantization_scheme_group_or_model_that_cannot_be_is_refused() -> None:
    from cubepy import nn, quant

    model = nn.Sequential(nn.Linear(40, 8))
    fails(errors.QuantizationError, "int3", run=lambda: quant.quantize(model, "int3"))
    fails(errors.QuantizationError, "40", run=lambda: quant.quantize(model, "int4", group=16))
    fails(errors.QuantizationError, run=lambda: quant.quantize(nn.Sequential(nn.GELU()), "int8"))
