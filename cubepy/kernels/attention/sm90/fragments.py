"""Products of attention on Hopper, started and not waited for, and how their accumulators become
operands and results.

A unit holds pairs of neighbours in rows r and r + 8 of a group's 64. As 16-bit words they lie just
as the next product takes them.
"""

from __future__ import annotations

import cubepy as cb
from cubepy.kernels.attention.sm90.plan import BLOCK
from cubepy.kernels.primitives.register_transpose import whole_words


@cb.func
def start_products(s, own, rows, group, others, columns, slot, depth, tile=0):
    """s = own @ others.T, started: 64 rows of a group, of the `rows` of a `tile`, by the `columns`
    rows of a stage.
    """
    cb.wgmma_fence()
    for d in cb.unroll(range(depth // 16)):
        inside = d % 4 * 16
        cb.wgmma(
            s,
            own,
            tile * rows * depth + group * BLOCK * BLOCK + d // 4 * rows * BLOCK + inside,
            others,
            slot * columns * depth + d // 4 * columns * BLOCK + inside,
            columns,
            own.dtype,
            accumulate=d > 0,
        )
    cb.wgmma_commit()


@cb.func
def start_sums(sums, p, values, rows, slot, depth):
    """sums += p @ values, started: the weights p (or slopes) are in registers, the `rows` rows of a
    stage in a ring.
    """
    cb.wgmma_fence(sums)
    for j in cb.unroll(range(rows // 16)):
        cb.wgmma(
            sums,
            p[j],
            0,
            values,
            slot * rows * depth + j * 16 * BLOCK,
            depth,
            values.dtype,
            transpose_b=True,
            b_lead=rows * BLOCK,
        )
    cb.wgmma_commit()


@cb.func
def fragment(s, at, dtype):
    """Eight accumulators as four words, an operand of the next product: they lie just as it takes
    them.
    """
    words = tuple(
        cb.pack(cb.line(s[at + j], s[at + j + 1]), dtype) for j in cb.unroll(range(0, 8, 2))
    )
    return cb.concat(cb.concat(words[0], words[1]), cb.concat(words[2], words[3]))


@cb.func
def fragments(p, s, dtype, count: cb.Comptime[int]):
    """`count` fragments of neighbouring accumulators."""
    for j in range(count):
        p[j] = fragment(s, 8 * j, dtype)


@cb.func
def write_rows(o, out, dtype, start, factors, first, columns: cb.Comptime[int]):
    """out[b, h, row and row + 8] = o times a factor a row, (b, h, row) being `start`; `out` holds
    words of two numbers, from `first` on.
    """
    b, h, row = start
    for g in range(columns // 32):
        for e in cb.unroll(range(2)):
            at = 16 * g + 2 * e
            words = tuple(
                cb.pack(cb.line(o[at + j] * factors[e], o[at + j + 1] * factors[e]), dtype)[0]
                for j in cb.unroll(range(0, 16, 4))
            )
            line = whole_words(words[0], words[1], words[2], words[3])
            column = first + 16 * g + cb.UNIT_POS_PLANE % 4 * 4
            if row + 8 * e < out.shape[2] and column < out.shape[3]:
                out.store((b, h, row + 8 * e, column), line)
