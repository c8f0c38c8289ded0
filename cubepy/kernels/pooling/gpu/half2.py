"""16-bit floats two at a time: devices with matrix units find the larger ones of both halves of a
word in one step.

With channels last neighbouring channels are a word, so arrays are seen as words. With channels
first a word holds what two neighbouring results need: positions as far from each other as their
windows are.
"""

from __future__ import annotations

from typing import Any

import cubepy as cb
from cubepy.kernels.primitives.vector_width import address
from cubepy.kernels.windows.rows_gpu import Steps

NOTHING = {"f16": 0xFC00, "bf16": 0xFF80}
"""The bits of the lowest number, -inf."""


def words_of(x: Any, out: Any, last: bool, properties: cb.DeviceProperties) -> tuple[Any, Any, Any]:
    """x and out as integers, of words with channels last and of their elements otherwise, and the
    dtype of which these are; as they are, and None, where they are no 16-bit floats or words do not
    fit them.
    """
    pairs = cb.as_dtype(x.dtype)
    if pairs.name not in NOTHING or "mma" not in properties.features:
        return x, out, None
    if last and (x.shape[-1] % 2 or (address(x) | address(out)) % 4):
        return x, out, None
    kind = "u4" if last else "u2"
    return x.view(kind), out.view(kind), pairs


def nothing_of(least: Any, pairs: Any) -> Any:
    """What the largest of no values is: for words, both halves of them."""
    return least if pairs is None else NOTHING[pairs.name] * 0x10001


def two_by_two(steps: Steps) -> Steps:
    """How pairs of windows go along words whose halves are `steps.ins` positions apart."""
    return Steps(1, 2 * steps.ins, steps.lows, steps.taps)


@cb.func
def larger(a, b, pairs: cb.Comptime):
    """The larger of two values, of each half where they are words of `pairs`; NaN if either
    is NaN.
    """
    if pairs is None:
        return cb.nan_max(a, b)
    return cb.packed_max(a, b, pairs)


@cb.func
def put_words(words, at: cb.Comptime[int], line, there, none):
    """Keep neighbouring elements, the first of them the `at`-th of what `words` hold, or `none`
    where they are not `there`; None means that they are. Single ones come in their order, and words
    were 0 before.
    """
    for k in cb.unroll(
        range(0, len(line), 2)
    ):  # not by `bitcast`: NVVM would not see that it gives what was loaded
        number = cb.cast(line[k], cb.u32)
        if len(line) > 1:
            number = number | (cb.cast(line[k + 1], cb.u32) << 16)
        if there is not None:
            number = cb.select(there, number, none if len(line) > 1 else none & 0xFFFF)
        m = (at + k) // 2
        words[m] = words[m] | (number << 16) if at % 2 else number


@cb.func
def join(pairs, words, at: cb.Comptime[int], spacing: cb.Comptime[int], n: cb.Comptime[int]):
    """pairs[k] = element at + k of what words hold and, as the upper half, the one `spacing` behind
    it, for k below n.
    """
    for k in cb.unroll(range(at, at + n)):
        low, high = words[k // 2], words[(k + spacing) // 2]
        if spacing == 1 and k % 2 == 0:
            pairs[k - at] = low
        else:
            upper = high & 0xFFFF0000 if (k + spacing) % 2 else high << 16
            pairs[k - at] = (low >> 16 if k % 2 else low & 0xFFFF) | upper


@cb.func
def write_words(
    out, index, words, at: cb.Comptime[int], n: cb.Comptime[int], each: cb.Comptime[int], many
):
    """out[index], ... = the halves of words[at], ... of n words, `each` at once, as far as there
    are `many`; None means that there are enough.
    """
    for k in cb.unroll(range(0, 2 * n, each)):
        if many is None or k < many:
            if each > 1:
                out.store((index + k,), cb.bitcast(words.load(at + k // 2, each // 2), cb.u16))
            else:
                number = words[at + k // 2] >> 16 if k % 2 else words[at + k // 2] & 0xFFFF
                out[index + k] = cb.cast(number, cb.u16)
