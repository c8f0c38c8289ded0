"""softmax and layer_norm on a CPU: a row at a time while it is in the cache."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.kernels.entry.shapes import view_as
from cubepy.kernels.movement.copy import copy
from cubepy.kernels.normalization.problem import Norm, Softmax
from cubepy.kernels.primitives.exponentials import exp_below_one
from cubepy.kernels.primitives.vector_width import STREAMING_BYTES, to_line
from cubepy.tune import CpuRoutine

ROWS = 4  # rows of a cube
MANY = 16  # where there are many: the first one's largest is looked for alone
STREAMS = 4  # lines at a time
ROOM = 8192  # elements of a row whose exponentials wait near the processor


@cb.kernel
def softmax_rows(
    x: cb.Array,
    out: cb.Array,
    lanes: cb.Comptime[int],
    rows: cb.Comptime[int],
    room: cb.Comptime[int] = 0,
):
    """out[r] = exp(x[r] - max) / sum, in f32; x and out are (rows, n).

    While a row's exponentials are computed, the largest of the next row is looked for: its loads
    come from memory, and there is arithmetic to do meanwhile. A row's exponentials wait for their
    sum in the result or, where that is narrow and would round them, in a buffer of `room` elements;
    they are computed again where there is neither.
    """
    n = x.shape[1]
    acc = wide(x.dtype)
    buffer = cb.local((room,), acc) if room else None
    first = cb.CUBE_POS * rows
    last = cb.min(first + rows, x.shape[0])
    whole = n // (STREAMS * lanes) * (STREAMS * lanes)
    tops = cb.local((STREAMS,), acc, lanes=lanes)
    lowest(tops, acc, lanes)
    for k in range(0, whole, STREAMS * lanes):
        raise_tops(tops, x, first, k, acc, lanes)
    for row in range(first, last):
        for k, valid in cb.lines(whole, n, lanes):
            value = x.load((row, k), lanes, valid=valid, other=-float("inf"))
            tops[0] = larger(cb.cast(value, acc), tops[0])
        top = greatest(tops, lanes)
        lowest(tops, acc, lanes)
        after = cb.min(row + 1, last - 1)
        total = cb.cast(cb.splat(0.0, lanes), acc)
        for k in range(0, whole, STREAMS * lanes):
            part = cb.cast(cb.splat(0.0, lanes), acc)
            for j in cb.unroll(range(STREAMS)):
                e = weights(x, row, k + j * lanes, lanes, top, lanes)
                keep_weights(out, buffer, row, k + j * lanes, e, lanes)
                part = part + e
            total = total + part
            raise_tops(tops, x, after, k, acc, lanes)
        for k, valid in cb.lines(whole, n, lanes):
            e = weights(x, row, k, valid, top, lanes)
            keep_weights(out, buffer, row, k, e, valid)
            total = total + cb.keep_first(e, valid, 0.0)
        scale = 1.0 / total.sum()
        for k in range(0, whole, STREAMS * lanes):
            for j in cb.unroll(range(STREAMS)):
                at = k + j * lanes
                e = kept_weights(x, out, buffer, row, at, lanes, top, lanes)
                out.store((row, at), cb.cast(e * scale, out.dtype))
        for k, valid in cb.lines(whole, n, lanes):
            e = kept_weights(x, out, buffer, row, k, valid, top, lanes)
            out.store((row, k), cb.cast(e * scale, out.dtype), valid=valid)


@cb.func
def weights(x, row, k, valid, top, lanes: cb.Comptime[int]):
    """e ** (x - top) of a line."""
    return weight_of(cb.cast(x.load((row, k), lanes, valid=valid), top.dtype) - top)


@cb.func
def keep_weights(out, buffer, row, k, e, valid):
    """A line of exponentials waits for the sum: in the result, in the buffer, or not at all."""
    if out.dtype == e.dtype:
        out.store((row, k), e, valid=valid)
    elif buffer is not None:
        buffer.store(k, e, valid=valid)


@cb.func
def kept_weights(x, out, buffer, row, k, valid, top, lanes: cb.Comptime[int]):
    """The line that waits, or computed again."""
    if out.dtype == top.dtype:
        return out.load((row, k), lanes, valid=valid)
    if buffer is not None:
        return buffer.load(k, lanes, valid=valid)
    return weights(x, row, k, valid, top, lanes)


@cb.kernel
def softmax_streaming(
    x: cb.Array,
    out: cb.Array,
    head,
    lanes: cb.Comptime[int],
    rows: cb.Comptime[int],
    room: cb.Comptime[int],
    early: cb.Comptime[bool],
    peeled: cb.Comptime[bool],
):
    """The same for rows of whole groups of lines and at most `room` elements, stored past the
    caches.

    `peeled`: lines begin after the first `head` elements of each row of the result.

    A row's exponentials wait in a buffer for their sum. The next row's largest is looked for while
    they are computed (`early`: they take longer than memory) or while they are stored.
    """
    n = x.shape[1]
    acc = wide(x.dtype)
    first = cb.CUBE_POS * rows
    last = cb.min(first + rows, x.shape[0])
    buffer = cb.local((room,), acc)
    tops = cb.local((STREAMS,), acc, lanes=lanes)
    lowest(tops, acc, lanes)
    for k in range(0, n, STREAMS * lanes):
        raise_tops(tops, x, first, k, acc, lanes)
    for row in range(first, last):
        top = greatest(tops, lanes)
        lowest(tops, acc, lanes)
        after = cb.min(row + 1, last - 1)
        total = cb.cast(cb.splat(0.0, lanes), acc)
        for k in range(0, n, STREAMS * lanes):
            if early:
                raise_tops(tops, x, after, k, acc, lanes)
            part = cb.cast(cb.splat(0.0, lanes), acc)
            for j in cb.unroll(range(STREAMS)):
                e = weight_of(cb.cast(x.load((row, k + j * lanes), lanes), acc) - top)
                buffer.store(k + j * lanes, e)
                part = part + e
            total = total + part
        scale = 1.0 / total.sum()
        for k in range(0, n, STREAMS * lanes):
            if not early:
                raise_tops(tops, x, after, k, acc, lanes)
            for j in cb.unroll(range(STREAMS)):
                at = k + j * lanes
                if not peeled:
                    out.store_stream((row, at), cb.cast(buffer.load(at, lanes) * scale, out.dtype))
                elif at + head + lanes <= n:
                    value = buffer.load(at + head, lanes) * scale
                    out.store_stream((row, at + head), cb.cast(value, out.dtype))
        if peeled:
            for part in cb.unroll(range(2)):  # type: ignore[assignment]
                at, count = ends_of(part, n, head, lanes)  # type: ignore[arg-type]
                value = buffer.load(at, lanes, valid=count) * scale
                out.store((row, at), cb.cast(value, out.dtype), valid=count)


@cb.func
def ends_of(part: cb.Comptime[int], n, head, lanes):
    """Where a row of n elements begins, or its last whole line ends, and how many are left there:
    lines begin `head` elements later.
    """
    if part == 0:
        return 0 * n, head
    return n - lanes + head, lanes - head


@cb.func
def larger(a, b):
    """The larger one by one comparison; b where one is NaN (whose row is NaN by its sum)."""
    return cb.select(a > b, a, b)


@cb.func
def weight_of(x):
    """e ** x for x <= 0: of a number of 32 bits, none of the subnormal ones."""
    return cb.exp(x) if x.dtype == cb.f64 else exp_below_one(x)


@cb.func
def lowest(tops, acc, lanes):
    """No number was seen yet."""
    for j in cb.unroll(range(STREAMS)):
        tops[j] = cb.cast(cb.splat(-float("inf"), lanes), acc)


@cb.func
def raise_tops(tops, x, row, k, acc, lanes):
    """Some lines of a row count for the largest."""
    for j in cb.unroll(range(STREAMS)):
        tops[j] = larger(cb.cast(x.load((row, k + j * lanes), lanes), acc), tops[j])


@cb.func
def greatest(tops, lanes):
    """The largest of all lanes."""
    line = larger(larger(tops[0], tops[1]), larger(tops[2], tops[3]))
    top = line[0]
    for j in cb.unroll(range(1, lanes)):
        top = larger(line[j], top)
    return top


@cb.func
def wide(dtype):
    """The dtype to compute in: f32 for narrow floats."""
    return cb.f64 if dtype == cb.f64 else cb.f32


@cb.kernel
def layer_norm_rows(
    x: cb.Array,
    weight,
    bias,
    out: cb.Array,
    eps,
    head,
    lanes: cb.Comptime[int],
    rows: cb.Comptime[int],
    streaming: cb.Comptime[bool],
    peeled: cb.Comptime[bool],
):
    """out[r] = (x[r] - mean) / sqrt(variance + eps) * weight + bias; two passes over the row, as
    torch.

    While a row is written, the next one is summed: its loads come from memory, and there is other
    work meanwhile. With `streaming` the results are stored past the caches, for lines that are
    aligned, or with `peeled` would be `head` elements later.
    """
    n = x.shape[1]
    acc = wide(x.dtype)
    first = cb.CUBE_POS * rows
    last = cb.min(first + rows, x.shape[0])
    whole = n // (STREAMS * lanes) * (STREAMS * lanes)
    sums = cb.local((STREAMS,), acc, lanes=lanes)
    nothing(sums, acc, lanes)
    for k in range(0, whole, STREAMS * lanes):
        for j in cb.unroll(range(STREAMS)):
            sums[j] = sums[j] + cb.cast(x.load((first, k + j * lanes), lanes), acc)
    for row in range(first, last):
        mean = total_of(sums, x, row, whole, None, lanes) / cb.cast(n, acc)
        nothing(sums, acc, lanes)
        for k in range(0, whole, STREAMS * lanes):
            for j in cb.unroll(range(STREAMS)):
                d = cb.cast(x.load((row, k + j * lanes), lanes), acc) - mean
                sums[j] = cb.fma(d, d, sums[j])
        variance = total_of(sums, x, row, whole, mean, lanes) / cb.cast(n, acc)
        moments = mean, 1.0 / cb.sqrt(variance + eps)
        nothing(sums, acc, lanes)
        after = cb.min(row + 1, last - 1)
        for k in range(0, whole, STREAMS * lanes):
            for j in cb.unroll(range(STREAMS)):
                at = k + j * lanes
                if peeled:
                    if at + head + lanes <= n:
                        v = scaled_line(x, weight, bias, row, at + head, lanes, moments, lanes)
                        out.store_stream((row, at + head), cb.cast(v, out.dtype))
                else:
                    v = scaled_line(x, weight, bias, row, at, lanes, moments, lanes)
                    if streaming:
                        out.store_stream((row, at), cb.cast(v, out.dtype))
                    else:
                        out.store((row, at), cb.cast(v, out.dtype))
                sums[j] = sums[j] + cb.cast(x.load((after, at), lanes), acc)
        if peeled:
            for part in cb.unroll(range(2)):
                at, count = ends_of(part, n, head, lanes)
                v = scaled_line(x, weight, bias, row, at, count, moments, lanes)
                out.store((row, at), cb.cast(v, out.dtype), valid=count)
        for k, valid in cb.lines(whole + (head if peeled else 0), n, lanes):
            v = scaled_line(x, weight, bias, row, k, valid, moments, lanes)
            out.store((row, k), cb.cast(v, out.dtype), valid=valid)


@cb.func
def nothing(sums, acc, lanes):
    """Nothing was added up yet."""
    for j in cb.unroll(range(STREAMS)):
        sums[j] = cb.cast(cb.splat(0.0, lanes), acc)


@cb.func
def total_of(sums, x, row, whole, mean, lanes: cb.Comptime[int]):
    """The sum of a row, `sums` and what follows its whole groups of lines; or with a `mean` of the
    squares about it.
    """
    total = (sums[0] + sums[1]) + (sums[2] + sums[3])
    for k, valid in cb.lines(whole, x.shape[1], lanes):
        v = cb.cast(x.load((row, k), lanes, valid=valid), total.dtype)
        if mean is not None:
            v = (v - mean) * (v - mean)
        total = total + cb.keep_first(v, valid, 0.0)
    return total.sum()


@cb.func
def scaled_line(x, weight, bias, row, k, valid, moments, lanes: cb.Comptime[int]):
    """A line of a normalised row; `moments` are its mean and 1 / sqrt(variance)."""
    mean, scale = moments
    v = (cb.cast(x.load((row, k), lanes, valid=valid), mean.dtype) - mean) * scale
    if weight is not None:
        v = v * cb.cast(weight.load(k, lanes, valid=valid), mean.dtype)
    if bias is not None:
        v = v + cb.cast(bias.load(k, lanes, valid=valid), mean.dtype)
    return v


class SoftmaxPast(CpuRoutine):
    """Large results stored past the caches; a row's exponentials wait near the processor."""

    name = "streaming"

    def unfit(self, p: Softmax, properties: cb.DeviceProperties) -> str | None:
        """New results that no cache holds, in rows of whole groups of lines."""
        n, lanes = p.x.shape[1], properties.lanes(p.acc)
        if p.log or n > ROOM or n % (STREAMS * lanes):
            return "for whole groups of lines, as many as wait near the processor"
        return None if streaming_head(p.x, p.out, lanes) is not None else "for large new results"

    def launch(self, p: Softmax, properties: cb.DeviceProperties) -> None:
        """A cube does MANY rows."""
        lanes, early = properties.lanes(p.acc), properties.register_bytes < 64
        head = streaming_head(p.x, p.out, lanes) or 0
        softmax_streaming[-(-p.x.shape[0] // MANY), 1](
            p.x, p.out, head, lanes, MANY, ROOM, early, head > 0, mode="unchecked"
        )


class SoftmaxRows(CpuRoutine):
    """A row at a time, while the next one is read."""

    name = "rows"

    def unfit(self, p: Softmax, properties: cb.DeviceProperties) -> str | None:
        """Softmax itself."""
        return "for softmax, not its logarithm" if p.log else None

    def launch(self, p: Softmax, properties: cb.DeviceProperties) -> None:
        """A cube does ROWS rows."""
        room = ROOM if p.out.itemsize == 2 and p.x.shape[1] <= ROOM else 0
        softmax_rows[-(-p.x.shape[0] // ROWS), 1](
            p.x, p.out, properties.lanes(p.acc), ROWS, room, mode="unchecked"
        )


class LayerNormRows(CpuRoutine):
    """A row at a time, while the next one is summed."""

    name = "rows"

    def unfit(self, p: Norm, properties: cb.DeviceProperties) -> str | None:
        """Means that are subtracted."""
        return None if p.centred else "for norms with a mean"

    def launch(self, p: Norm, properties: cb.DeviceProperties) -> None:
        """A cube does ROWS rows; large results are stored past the caches."""
        lanes = properties.lanes(p.acc)
        after = streaming_head(p.x, p.out, lanes)
        streaming, head = after is not None, after or 0
        arrays, how = (p.x, p.weight, p.bias, p.out), (lanes, ROWS, streaming, head > 0)
        layer_norm_rows[-(-p.x.shape[0] // ROWS), 1](*arrays, p.eps, head, *how, mode="unchecked")


def streaming_head(rows: np.ndarray, out: np.ndarray, lanes: int) -> int | None:
    """After how many elements of every row of a result (rows, n) lines are aligned, so that it may
    be stored past the caches; None where they are nowhere, and where it is small or no new array.
    """
    whole = out.shape[1] % lanes == 0 and out.flags.c_contiguous and out.nbytes >= STREAMING_BYTES
    return to_line(out, lanes) if whole and not np.may_share_memory(rows, out) else None


def as_rows(array: np.ndarray, axis: int) -> np.ndarray:
    """(rows, n) with `axis` last and unit stride along it: a view where strides allow it, else a
    copy.
    """
    view = rows_in(array, axis)
    return copy(last(array, axis)).reshape(-1, array.shape[axis]) if view is None else view


def last(array: np.ndarray, axis: int) -> np.ndarray:
    """The array with an axis last; NumPy is only asked where that is another one."""
    return array if axis in (-1, array.ndim - 1) else np.moveaxis(array, axis, -1)


def rows_in(array: np.ndarray, axis: int) -> np.ndarray | None:
    """(rows, n) with `axis` last and unit stride along it, as a view; None where strides do not
    allow it.
    """
    n = array.shape[axis]
    try:
        view = view_as(last(array, axis), (array.size // n, n) if array.size else (0, n))
    except AttributeError:
        return None
    return view if view.strides[1] == view.itemsize or n <= 1 else None
