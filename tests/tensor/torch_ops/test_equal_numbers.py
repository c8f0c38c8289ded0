"""Numbers that are equal and not alike (0.0 and -0.0; 1, 1.0 and True), and NaN, give ops results
of their own: whatever was called before with an equal one, op by op, in gradients, and in programs.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor as xp
from cubepy.errors import CubeError
from cubepy.nn import functional as F
from cubepy.runtime import recording
from cubepy.tensor import Tensor, enable_grad
from tests.tensor.torch_ops.calls import CALLS
from tests.tensor.torch_ops.fixture import calls
from tests.tensor.torch_ops.test_torch_ops import derivatives, is_random, tensors_in

NAN = float("nan")
EQUAL: tuple[tuple[Any, ...], ...] = ((0, 0.0, -0.0, False), (1, 1.0, True), (2, 2.0), (NAN, -1.0))
REPEATED = 26
"""Calls after which gradients are programs."""
X = cb.tensor([1.0, -2.0, 0.0, -0.0], requires_grad=True)
N = cb.tensor([3, -1, 0, 2])
MORE: dict[str, Callable[[Any], Any]] = {
    "tensor": lambda v: cb.tensor(v),
    "a list": lambda v: cb.tensor([v, v]),
    "asarray": lambda v: xp.asarray(v),
    "full": lambda v: xp.full((3,), v),
    "full of a dtype": lambda v: xp.full((3,), v, dtype="i32"),
    "where": lambda v: xp.where(X > 0, X, v),
    "where of two": lambda v: xp.where(N > 0, v, v),
    "pad": lambda v: F.pad(X[None], (1, 1), value=v),
    "threshold": lambda v: F.threshold(X, 0.5, v),
    "leaky": lambda v: F.leaky_relu(X, v),
    "operators": lambda v: (X + v, X * v, v - X, X / (N + v), N * v, X**v, X == v, N < v),
    "fill": lambda v: X.masked_fill(X > 0, v),
    "options in tuples": lambda v: F.pad(N[None].astype("f64"), (1, 1), value=v) * v,
}
"""What takes numbers and is not among torch's samples."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where numbers are in arguments."""
    if type(value) in (int, float, bool):
        yield path
    elif type(value) in (list, tuple):
        for n, part in enumerate(value):
            yield from places(part, (*path, n))
    elif type(value) is dict:
        for name, part in value.items():
            yield from places(part, (*path, name))


def with_number(value: Any, path: tuple[Any, ...], number: Any) -> Any:
    """Arguments with another number at a place."""
    if not path:
        return number
    first, *rest = path
    if type(value) is dict:
        return {k: with_number(v, (*rest,), number) if k == first else v for k, v in value.items()}
    parts = [with_number(v, (*rest,), number) if n == first else v for n, v in enumerate(value)]
    return type(value)(parts)


def told(tensor: Tensor | None) -> Any:
    """What tells results apart: all bits but those of NaN."""
    if tensor is None:
        return None
    array = tensor.detach().numpy()
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.asarray(np.nan, array.dtype), array)
    return str(tensor.dtype), array.shape, array.tobytes()


def found(call: Callable[[], Any], gradients: bool = False) -> Any:
    """What a call gives, with its first derivatives; or which error it raises."""
    try:
        with enable_grad():
            results = tensors_in(call())
            known = [y for y in results if y.requires_grad]
            first = derivatives([*enumerate(known)], [X], 0) if gradients and known else []
        return [told(t) for t in (*results, *first)]
    except (CubeError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        return type(error)


def anew(call: Callable[[], Any], gradients: bool = False) -> Any:
    """The same where nothing that came before is used."""
    recording.detours += 1
    try:
        return found(call, gradients)
    finally:
        recording.detours -= 1


def compare(
    rng: random.Random,
    of: Sequence[tuple[Any, Callable[[], Any]]],
    wants: Sequence[Any],
    gradients: bool,
    rounds: int,
) -> None:
    """Calls with equal numbers, in a random order."""
    known = [(number, call, want) for (number, call), want in zip(of, wants, strict=True)]
    for _ in range(rounds):
        for number, call, want in rng.sample(known, len(known)):
            for _ in range(rng.choice((1, 4))):
                assert found(call, gradients) == want, f"{number!r} after one that is equal"


def drawn(rng: random.Random, name: str) -> tuple[Any, tuple[Any, ...], Sequence[Any]] | None:
    """A call of an op, where a number is among its arguments, and numbers for it."""
    ones = [
        (call, path)
        for call in calls()[name]
        if not is_random(name, call) and "dropout" not in name
        for path in places((tuple(call.args), call.kwargs))
    ]
    if not ones:
        return None
    call, path = rng.choice(ones)
    arguments: Any = (tuple(call.args), call.kwargs)
    old = arguments
    for part in path:
        old = old[part]
    equal = [group for group in EQUAL if old in group] or [(old, float(old)), *EQUAL[:2]]
    return arguments, path, rng.choice(equal)


def numbered(function: Any, arguments: Any, path: Any, numbers: Sequence[Any]) -> list[Any]:
    """The calls of a function with several numbers."""

    def call(number: Any) -> Callable[[], Any]:
        args, kwargs = with_number(arguments, path, number)
        return lambda: function(*args, **kwargs)

    return [(number, call(number)) for number in numbers]


@pytest.mark.turns(6, "ops of torch")
@pytest.mark.parametrize("name", CALLS)
def test_equal_numbers_give_ops_results_of_their_own(name: str) -> None:
    rng = random.Random(zlib.crc32(name.encode()))
    for _ in range(2):
        if (one := drawn(rng, name)) is not None:
            of = numbered(CALLS[name], *one)
            compare(rng, of, [anew(call) for _, call in of], False, 4)


@pytest.mark.turns(6, "ops of torch")
@pytest.mark.parametrize("name", CALLS)
def test_equal_numbers_give_programs_results_of_their_own(name: str) -> None:
    rng = random.Random(zlib.crc32(name.encode()) + 1)
    if (one := drawn(rng, name)) is None:
        return
    program = cb.jit(lambda *args, **kwargs: CALLS[name](*args, **kwargs))
    alone = numbered(lambda *args, **kwargs: cb.jit(CALLS[name])(*args, **kwargs), *one)
    compare(rng, numbered(program, *one), [found(call) for _, call in alone], False, 3)


@pytest.mark.parametrize("name", MORE)
def test_equal_numbers_give_functions_results_of_their_own(name: str) -> None:
    rng, function = random.Random(zlib.crc32(name.encode())), MORE[name]
    for numbers in (sum(EQUAL, ()), *EQUAL):
        of = numbered(function, ((0,), {}), (0, 0), numbers)
        compare(rng, of, [anew(call, True) for _, call in of], True, REPEATED // 3)
        program = cb.jit(lambda v: function(v))
        wants = [anew(call) for _, call in of]
        compare(rng, numbered(program, ((0,), {}), (0, 0), numbers), wants, False, 3)


def test_keys_of_a_dict_are_no_others_that_are_equal() -> None:
    program = cb.jit(lambda x, by: x * next(iter(by)))
    x = cb.tensor([1.0])
    for number in (0.0, -0.0, 0.0, -0.0, 1, True, 1.0):
        for _ in range(3):
            assert told(program(x, {number: 1})) == told(x * number)


def test_a_number_that_is_traced_makes_a_tensor_like_any_other() -> None:
    program = cb.jit(lambda v: (cb.tensor(v), cb.tensor([v, v]), xp.asarray(v) + v))
    for number in (1.0, -0.0, 2.5, 1.0):
        made = program(number)
        assert [t.dtype for t in made] == [cb.f32] * 3
        assert [t.tolist() for t in made] == [number, [number, number], number + number]
