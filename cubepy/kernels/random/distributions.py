"""Random numbers from a counter: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", SC 2011).

Block number b of a generator is four words of 32 bits that depend on the seed and b only, so every
element is computed by itself, and the numbers are the same for any number of units and threads and
on every backend. Element i of a draw takes word i % 4 of block i // 4 behind what the generator
gave out before (two words where it needs 64 bits).
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.kernels.entry.arguments import array_of, number_of, whole, wholes
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import output, wrapper
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.random.fill_gpu import Blocks, Fill
from cubepy.kernels.random.philox import counters, weave
from cubepy.lang.dtypes import as_dtype
from cubepy.lang.philox import radius, sine_cosine
from cubepy.runtime import device as devices
from cubepy.runtime import memory
from cubepy.runtime.memory.device_array import upload
from cubepy.tune import CpuRoutine, Op

CHUNK = 4096  # blocks of a cube


@cb.func
def unit_interval_wide(high, low):
    """Pairs of words to doubles in [0, 1) with 53 bits."""
    return cb.fma(cb.cast(high >> 5, cb.f64), 67108864.0, cb.cast(low >> 6, cb.f64)) * (2.0**-53)


@cb.func
def normal_line(w0, w1, w2, w3, mean, std):
    """Box and Muller (1958) on two pairs of words."""
    r0, r1 = radius(w0) * std, radius(w2) * std
    s0, c0 = sine_cosine(w1)
    s1, c1 = sine_cosine(w3)
    return weave(
        cb.fma(r0, c0, mean), cb.fma(r0, s0, mean), cb.fma(r1, c1, mean), cb.fma(r1, s1, mean)
    )


@cb.func
def normal_line_wide(w0, w1, w2, w3):
    """The same in doubles, one pair a block."""
    r = cb.sqrt(-2.0 * cb.log(1.0 - unit_interval_wide(w0, w1)))
    angle = unit_interval_wide(w2, w3) * (2 * math.pi)
    return cb.interleave(r * cb.cos(angle), r * cb.sin(angle))


@cb.func
def below(high, low, span):
    """floor(word * span / 2^64) for words of 64 bits: even up to span / 2^64."""
    part = cb.cast(low, cb.u64) * (span & cb.u64(0xFFFFFFFF))
    middle = cb.cast(high, cb.u64) * (span & cb.u64(0xFFFFFFFF)) + (part >> 32)
    other = cb.cast(low, cb.u64) * (span >> 32) + (middle & cb.u64(0xFFFFFFFF))
    return cb.cast(high, cb.u64) * (span >> 32) + (middle >> 32) + (other >> 32)


@cb.func
def below_narrow(high, low, span):
    """The same for a span of at most 32 bits."""
    span = span & cb.u64(0xFFFFFFFF)
    return (cb.cast(high, cb.u64) * span + ((cb.cast(low, cb.u64) * span) >> 32)) >> 32


@cb.func
def draws(kind: cb.Comptime[str], dtype: cb.Comptime, w, a, b, p, at, lanes: cb.Comptime[int]):
    """The elements that `lanes` blocks give: 4 a block, or 2."""
    w0, w1, w2, w3 = w
    if kind == "words":
        return weave(w0, w1, w2, w3)
    if kind == "integers" or kind == "few integers":
        if kind == "integers":
            whole = cb.interleave(below(w0, w1, b), below(w2, w3, b)) + a
        else:
            whole = cb.interleave(below_narrow(w0, w1, b), below_narrow(w2, w3, b)) + a
        return cb.cast(cb.bitcast(whole, cb.i64), dtype)
    if kind == "bernoulli":
        u = weave(*(cb.to_uniform(w0, cb.f32), cb.to_uniform(w1, cb.f32), cb.to_uniform(w2, cb.f32),
                    cb.to_uniform(w3, cb.f32)))  # fmt: skip
        chance = (
            cb.cast(p.load(at, 4 * lanes, valid=p.size - at), cb.f32)
            if p is not None
            else cb.splat(a, 4 * lanes)
        )
        return cb.cast(cb.select(u < chance, 1.0, 0.0), dtype)
    if kind == "uniform":
        if dtype == cb.f64:
            u = cb.interleave(unit_interval_wide(w0, w1), unit_interval_wide(w2, w3))
        else:
            u = weave(
                cb.to_uniform(w0, dtype),
                cb.to_uniform(w1, dtype),
                cb.to_uniform(w2, dtype),
                cb.to_uniform(w3, dtype),
            )
        return cb.cast(cb.fma(u, b - a, a), dtype)
    if dtype == cb.f64:
        return cb.fma(normal_line_wide(w0, w1, w2, w3), b, a)
    return cb.cast(normal_line(w0, w1, w2, w3, a, b), dtype)


@cb.kernel
def fill(
    out: cb.Array, p, state: cb.Array, ends: cb.Array, kind: cb.Comptime[str],
    each: cb.Comptime[int], lanes: cb.Comptime[int], steps,
):  # fmt: skip
    """out[i] = the element that its block gives; a unit makes `steps` lines of `lanes` blocks of
    `each` elements.

    `state` holds the seed, the high half of the counter and the first block, `ends` the two numbers
    of the distribution: in memory, since a launch that is repeated has the same arguments.
    """
    seed, high, first = state[0], state[1], state[2]
    k0, k1 = cb.cast(seed, cb.u32), cb.cast(seed >> 32, cb.u32)
    s0, s1 = cb.cast(high, cb.u32), cb.cast(high >> 32, cb.u32)
    a, b = ends[0], ends[1]
    for step in range(steps):
        block = ((cb.CUBE_POS * steps + step) * cb.CUBE_DIM + cb.UNIT_POS) * lanes
        if block * each < out.size:
            count = counters(first + cb.cast(block, cb.u64), lanes)
            upper = cb.splat(s0, lanes)
            counter = (cb.cast(count, cb.u32), cb.cast(count >> 32, cb.u32), upper)
            w = cb.philox(counter + (cb.splat(s1, lanes),), (k0, k1))
            out.store(block * each, draws(kind, out.dtype, w, a, b, p, block * each, lanes))


@cb.func
def block_of(kind: cb.Comptime[str], dtype: cb.Comptime, seed, high, count, at, a, b, p):
    """The elements of one block, number `count`, which are those from `at` on."""
    k0, k1 = cb.cast(seed, cb.u32), cb.cast(seed >> 32, cb.u32)
    s0, s1 = cb.cast(high, cb.u32), cb.cast(high >> 32, cb.u32)
    low = cb.splat(count, 1)
    counter = (cb.cast(low, cb.u32), cb.cast(low >> 32, cb.u32), cb.splat(s0, 1), cb.splat(s1, 1))
    w = cb.philox(counter, (k0, k1))
    return draws(kind, dtype, w, a, b, p, at, 1)


class Generator:
    """A stream of random numbers: a seed, and how many blocks of it are used.

    Args:
        seed: any integer; its low 64 bits count.
        stream: number of an independent stream under the same seed.

    Attributes:
        seed: the key of all blocks.
        stream: the high half of the counter.
        offset: blocks given out so far, the low half of the counter. Set it back to repeat numbers.

    Example:
        >>> g = Generator(7)
        >>> a = normal(size=4, generator=g)
        >>> b = normal(size=4, generator=g.manual_seed(7))
        >>> bool((a == b).all())
        True
    """

    def __init__(self, seed: int = 0, stream: int = 0) -> None:
        self._lock = threading.Lock()
        self.stream = whole(stream, "stream") % 2**64
        self.manual_seed(seed)

    def manual_seed(self, seed: int) -> Generator:
        """Start from the first number of a seed; returns the generator."""
        self.seed = whole(seed, "seed") % 2**64
        self.offset = 0
        return self

    def take(self, blocks: int) -> int:
        """Reserve blocks; gives the number of the first one."""
        with self._lock:
            first = self.offset
            self.offset = (first + blocks) % 2**64
        return first

    def __repr__(self) -> str:
        return f"Generator(seed={self.seed}, stream={self.stream}, offset={self.offset})"


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the generator that is used where none is named, and return it.

    Example:
        >>> manual_seed(7)
        Generator(seed=7, stream=0, offset=0)
        >>> first = uniform(size=2)
        >>> bool((uniform(size=2) == first).all())
        False
        >>> generator = manual_seed(7)
        >>> bool((uniform(size=2) == first).all())
        True
    """
    return default_generator.manual_seed(seed)


def _target(size: Any, dtype: Any, device: Any, out: Any) -> Any:
    if out is not None:
        found = array_of(out, "out")
        return output(out, found.shape if size is None else _shape(size), found.dtype)
    shape = () if size is None else _shape(size)
    with devices.use(devices.current() if device is None else device):
        return output(None, shape, as_dtype(dtype).numpy)


def _shape(size: Any) -> tuple[int, ...]:
    shape = wholes(size, "size")
    if any(n < 0 for n in shape):
        raise ShapeError(f"size must be an int or a tuple of ints of at least 0, not {size!r}")
    return shape


def _fill(
    result: Any,
    kind: str,
    a: Any,
    b: Any,
    generator: Generator | None,
    words: int = 1,
    p: Any = None,
) -> Any:
    if result.size == 0:
        return result
    source = default_generator if generator is None else generator
    if not isinstance(source, Generator):
        raise ArgumentError(
            f"generator must be a Generator, not {source!r}"[:120],
            hint="make one: K.Generator(seed)",
        )
    contiguous = result.flags.c_contiguous
    flat = (result if contiguous else np.empty_like(result, order="C", subok=False)).reshape(-1)
    each = 4 // words
    first = source.take(-(-result.size // each))
    state = np.array((source.seed, source.stream, first), np.uint64)
    task = _fill_host if isinstance(flat, np.ndarray) else _fill_at
    task(state, np.array((a, b), a.dtype), p, kind, each, out=flat)
    if not contiguous:
        convert_into(result, flat.reshape(result.shape))
    return result


def _fill_at(state: Any, ends: Any, p: Any, kind: str, each: int, *, out: Any = None) -> Any:
    """Fill an array of rank 1, where it is, from what a generator gave; a NumPy array may be given
    while a GPU is the current device.
    """
    where = devices.current() if isinstance(out, np.ndarray) else out.device
    if isinstance(out, np.ndarray) and devices.gpu_of(where) is not None:
        where = devices.as_device("cpu")
    RANDOM.run(Fill(out, p, state, ends, kind, each, where), where)
    return out


_fill_host = repeated(_fill_at)


class Lines(CpuRoutine):
    """A unit makes lines of blocks."""

    name = "lines"

    def launch(self, p: Fill, properties: cb.DeviceProperties) -> None:
        """The last lines end behind the array; state and ends go where it is."""
        state, ends = p.state, p.ends
        if not isinstance(p.out, np.ndarray):
            state, ends = upload(state, p.device), upload(ends, p.device)
        blocks, lanes = -(-p.out.size // p.each), properties.register_bytes // 4
        steps = max(1, min(CHUNK, -(-blocks // 2)) // lanes)
        arguments = (p.out, p.p, state, ends, p.kind, p.each, lanes, steps)
        fill[-(-blocks // (lanes * steps)), 1](*arguments, device=p.device, mode="checked")


RANDOM = Op("random", [Blocks(block_of), Lines()])


def _float_of(result: Any, what: str) -> Any:
    dtype = as_dtype(result.dtype)
    if not dtype.is_float or dtype.storage_only:
        raise DTypeError(f"{what} numbers are floats, not {result.dtype}")
    return cb.f64 if dtype == cb.f64 else cb.f32


def uniform(
    low: float = 0.0, high: float = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = cb.f32, device: Any = None, out: Any = None,
) -> Any:  # fmt: skip
    """Floats spread evenly over [low, high), as `numpy.random.uniform`; rounding may give `high`,
    as there.

    Args:
        low, high: ends of the interval.
        size: int or tuple; without it one number, as an array of rank 0, or all of `out`.
        generator: where numbers come from; by default the one that `manual_seed` seeds.
        dtype: f32, f64, f16 or bf16.
        device: where the result lies; by default the current device.
        out: array to fill.

    Example:
        >>> x = uniform(-1, 1, (2, 3), generator=Generator(0))
        >>> x.shape, bool((abs(x) <= 1).all())
        ((2, 3), True)
    """
    low, high = number_of(low, "low"), number_of(high, "high")
    result = _target(size, dtype, device, out)
    scalar = _float_of(result, "uniform")
    kind = np.float64 if scalar == cb.f64 else np.float32
    return _returned(
        _fill(result, "uniform", kind(low), kind(high), generator, 2 if scalar == cb.f64 else 1),
        out,
    )


def normal(
    mean: float = 0.0, std: float = 1.0, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = cb.f32, device: Any = None, out: Any = None,
) -> Any:  # fmt: skip
    """Floats of the normal distribution, as `torch.normal` and `numpy.random.normal`.

    Args:
        mean, std: of the distribution; std is not negative.
        size, generator, dtype, device, out: as for `uniform`.

    Raises:
        ShapeError: a negative std.

    Example:
        >>> normal(5.0, 0.0, 3)
        array([5., 5., 5.], dtype=float32)
    """
    mean, std = number_of(mean, "mean"), number_of(std, "std")
    if std < 0:
        raise ShapeError(f"std must be at least 0, not {std}")
    result = _target(size, dtype, device, out)
    scalar = _float_of(result, "normal")
    kind = np.float64 if scalar == cb.f64 else np.float32
    return _returned(
        _fill(result, "normal", kind(mean), kind(std), generator, 2 if scalar == cb.f64 else 1), out
    )


def bernoulli(
    input: Any, size: Any = None, *, generator: Generator | None = None, out: Any = None
) -> Any:
    """Ones with the given probability, zeros otherwise, as `torch.bernoulli`.

    Args:
        input: array of probabilities, or one number together with `size` (or `out`).
        size: of the result when `input` is a number.
        generator: as for `uniform`.
        out: array to fill.

    Returns:
        Of the shape and dtype of `input`; f32 for a number.

    Example:
        >>> bernoulli(1.0, 3)
        array([1., 1., 1.], dtype=float32)
    """
    if isinstance(input, (int, float)):
        if not 0 <= input <= 1:
            raise ShapeError(f"a probability lies between 0 and 1; {input} does not")
        result = _target(size, cb.f32, None, out)
        return _returned(
            _fill(result, "bernoulli", np.float32(input), np.float32(0), generator), out
        )
    wrap, p = wrapper(input), array_of(input, "input")
    if not as_dtype(p.dtype).is_float:
        raise DTypeError(f"probabilities are floats, not {p.dtype}")
    result = _like(p) if out is None else output(out, p.shape, array_of(out).dtype)
    flat = p
    if not p.flags.c_contiguous:
        flat = _like(p)
        convert_into(flat, p)
    done = _fill(result, "bernoulli", np.float32(0), np.float32(0), generator, p=flat.reshape(-1))
    return out if out is not None else wrap(done)


def _like(array: Any) -> Any:
    """A new array in C order, of the shape and dtype of one, where it is."""
    if isinstance(array, np.ndarray):
        return memory.host_pool.empty(array.shape, array.dtype)
    return np.empty_like(array, order="C", subok=False)


def randint(
    low: int, high: int | None = None, size: Any = None, *, generator: Generator | None = None,
    dtype: Any = cb.i64, device: Any = None, out: Any = None,
) -> Any:  # fmt: skip
    """Integers of [low, high), all as likely as each other, as `numpy.random.randint` and
    `torch.randint`.

    Args:
        low, high: ends of the interval; with `low` alone it is [0, low).
        size, generator, device, out: as for `uniform`.
        dtype: of the result; it must hold both ends.

    Raises:
        ShapeError: an empty interval.
        DTypeError: a dtype that does not hold the interval.

    Example:
        >>> randint(3, 4, 2)
        array([3, 3])
    """
    low, high = (0, low) if high is None else (low, high)
    low, high = whole(low, "low"), whole(high, "high")
    if low >= high:
        raise ShapeError(f"randint needs low < high, not {low} and {high}")
    result = _target(size, dtype, device, out)
    if as_dtype(result.dtype).kind not in "iu" or as_dtype(result.dtype).storage_only:
        raise DTypeError(f"randint gives integers, not {result.dtype}")
    info = np.iinfo(result.dtype)
    if low < info.min or high - 1 > info.max:
        raise DTypeError(f"{result.dtype} does not hold all of [{low}, {high})")
    if high - low == 2**64:
        raise ShapeError(
            f"the interval [{low}, {high}) has 2^64 integers; fill an array of u64 with "
            "`uniform` bits"
        )
    kind = "integers" if high - low >= 2**32 else "few integers"
    done = _fill(result, kind, np.uint64(low % 2**64), np.uint64(high - low), generator, 2)
    return _returned(done, out)


def _returned(result: Any, out: Any) -> Any:
    return result if out is None else out
