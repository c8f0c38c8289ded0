"""Stages of operands in shared memory, for matrix units whose fragments the device describes: 64
bytes of the depth of every row.

Pairs of rows are 128 bytes, whose eight pieces of 16 are permuted by exclusive or with a linear
function of the pair's number. It is such that the lanes that are served together meet every bank
once, when they read a piece of eight rows, in any order that fragments have, and when they write
words across the depth.
"""

from __future__ import annotations

import cubepy as cb

PIECE = 16
"""Bytes that a unit moves at once."""
DEPTH_BYTES = 64
"""Bytes of K in a stage."""
PIECES = DEPTH_BYTES // PIECE


@cb.func
def piece_start(row, piece, size):
    """Where a piece of a row of a stage lies, in elements of `size` bytes."""
    pair = row // 2
    moved = (row % 2 * PIECES + piece) ^ ((pair ^ (pair >> 1 & 2)) % 8)
    return (pair * 2 * PIECES + moved) * (PIECE // size)


@cb.func
def words_of(tiles, at, row, piece, pieces):
    """One or two neighbouring pieces of a row as words."""
    size = tiles.dtype.itemsize
    per = PIECE // size
    found = cb.bitcast(tiles.load(at + piece_start(row, piece, size), per), cb.u32)
    if pieces == 1:
        return found
    more = tiles.load(at + piece_start(row, piece + 1, size), per)
    return cb.concat(found, cb.bitcast(more, cb.u32))
