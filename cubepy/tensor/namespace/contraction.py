"""Sums of products over letters, by products of two tensors at a time."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from cubepy.errors import ArgumentError, ShapeError
from cubepy.tensor.array import Tensor, as_tensor
from cubepy.tensor.control.composed import composed


def einsum(subscripts: str, /, *operands: Any) -> Tensor:
    """Products of elements whose letters agree, summed over the letters that the result has not, as
    `numpy.einsum`.

    Two operands at a time become one matrix product, the cheapest pair first.

    Args:
        subscripts: such as "ij,jk->ik"; without "->" the letters that come once, in order; "..."
            are axes that broadcast.
        operands: a tensor for each term.

    Raises:
        ArgumentError: subscripts that name no such sum.
        ShapeError: lengths of one letter that differ.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> cb.tensor.einsum("ij,kj->ik", x, x)
        tensor([[ 5., 11.],
                [11., 25.]])
        >>> cb.tensor.einsum("ii->i", x), cb.tensor.einsum("ij->", x)
        (tensor([1., 4.]), tensor(10.))
    """
    if len(operands) == 2:
        return _of_two(subscripts, *operands)
    return _sums(subscripts, operands)


@composed
def _of_two(subscripts: str, first: Any, second: Any) -> Tensor:
    """What is asked for most: as a program where it comes often."""
    return _sums(subscripts, (first, second))


def _sums(subscripts: str, operands: Sequence[Any]) -> Tensor:
    tensors = [as_tensor(x) for x in operands]
    terms, result = _terms(subscripts, tensors)
    lengths: dict[str, int] = {}
    for n, (term, x) in enumerate(zip(terms, tensors, strict=True)):
        terms[n], tensors[n] = _diagonals(term, x)
        for letter, length in zip(terms[n], tensors[n].shape, strict=True):
            known = lengths.setdefault(letter, length)
            if length not in (known, 1) and known != 1:
                raise ShapeError(f"einsum: the letter {letter!r} has the lengths {known}, {length}")
            lengths[letter] = length if known == 1 else known
    while len(tensors) > 1:
        i, j = _cheapest(terms, result, lengths)
        others = [term for n, term in enumerate(terms) if n not in (i, j)]
        kept = set(result).union(*others)
        term, x = _product(terms[i], tensors[i], terms[j], tensors[j], kept, lengths)
        terms, tensors = [*others, term], [t for n, t in enumerate(tensors) if n not in (i, j)]
        tensors.append(x)
    return _arranged(terms[0], tensors[0], result)


def _terms(subscripts: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; "..." becomes letters, too."""
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(tensors):
        raise ArgumentError(f"einsum of {len(terms)} terms got {len(tensors)} operands")
    plain = [term.replace("...", "") for term in (*terms, result)]
    if any(not set(term) <= set(string.ascii_letters) for term in plain):
        raise ArgumentError(f"einsum: {subscripts!r} has more than letters, commas and ...")
    free = [letter for letter in string.ascii_letters if letter not in "".join(plain)]
    most = 0
    for term, x in zip(terms, tensors, strict=True):
        rest = x.ndim - len(term.replace("...", ""))
        if rest < 0 or (rest and "..." not in term):
            raise ShapeError(f"einsum: the term {term!r} does not go with the shape {x.shape}")
        most = max(most, rest)
    wide = "".join(free[:most])
    found = []
    for term, x in zip(terms, tensors, strict=True):
        rest = x.ndim - len(term.replace("...", ""))
        found.append(term.replace("...", wide[most - rest :]))
    if not arrow:
        letters = "".join(plain[:-1])
        result = wide + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    result = result.replace("...", wide)
    if len(set(result)) != len(result) or not set(result) <= set("".join(found)):
        raise ArgumentError(f"einsum: the result {result!r} of {subscripts!r} is not of its terms")
    return found, result


def _diagonals(term: str, x: Tensor) -> tuple[str, Tensor]:
    """Without letters that come twice: their diagonal."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            n = x.shape[first]
            if x.shape[second] != n:
                raise ShapeError(
                    f"einsum: the letter {letter!r} has the lengths {n}, {x.shape[second]}"
                )
            x = x.movedim((first, second), (-2, -1))
            flat = x.reshape(*x.shape[:-2], n * n)
            x = flat[..., :: n + 1] if n else flat
            rest = term[:first] + term[first + 1 : second] + term[second + 1 :]
            term = rest + letter
    return term, x


def _cheapest(terms: list[str], result: str, lengths: dict[str, int]) -> tuple[int, int]:
    """The two operands whose product takes the fewest steps, of those the smallest."""

    def cost(both: tuple[int, int]) -> tuple[int, int]:
        letters = set(terms[both[0]]) | set(terms[both[1]])
        kept = set(result).union(*(t for n, t in enumerate(terms) if n not in both))
        size = math.prod(lengths[c] for c in letters & kept)
        return math.prod(lengths[c] for c in letters), size

    return min(combinations(range(len(terms)), 2), key=cost)


def _product(
    left: str, a: Tensor, right: str, b: Tensor, kept: set[str], lengths: dict[str, int]
) -> tuple[str, Tensor]:
    """Two operands as one: letters of both that are kept are batches, the others are summed."""
    left, a = _summed(left, a, kept | set(right))
    right, b = _summed(right, b, kept | set(left))
    both = [c for c in left if c in right]
    batch, inner = [c for c in both if c in kept], [c for c in both if c not in kept]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    first = _in_groups(left, a, (batch, rows, inner), lengths)
    second = _in_groups(right, b, (batch, inner, columns), lengths)
    shape = [lengths[c] for c in (*batch, *rows, *columns)]
    return "".join((*batch, *rows, *columns)), (first @ second).reshape(shape)


def _summed(term: str, x: Tensor, kept: set[str]) -> tuple[str, Tensor]:
    """Summed over the letters that nobody else has."""
    axes = tuple(d for d, c in enumerate(term) if c not in kept)
    return "".join(c for c in term if c in kept), x.sum(axis=axes).astype(x.dtype) if axes else x


def _in_groups(
    term: str, x: Tensor, groups: tuple[list[str], ...], lengths: dict[str, int]
) -> Tensor:
    """Axes in the order of groups of letters, each group as one axis."""
    order = [term.index(c) for group in groups for c in group]
    full = x.permute(order).expand(*(lengths[c] for group in groups for c in group))
    return full.reshape(*(math.prod(lengths[c] for c in group) for group in groups))


def _arranged(term: str, x: Tensor, result: str) -> Tensor:
    """The last operand with the letters of the result, in their order."""
    term, x = _summed(term, x, set(result))
    return x.permute(*(term.index(c) for c in result)) if term != result else x


__all__ = ["einsum"]
