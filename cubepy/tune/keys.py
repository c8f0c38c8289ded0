"""Problems and their keys: sizes rounded up to powers of two, so that near problems share a
measured choice.
"""

from __future__ import annotations

from typing import Any


def bucket(n: int) -> int:
    """The smallest power of two that is at least n; 0 stays 0.

    Example:
        >>> [bucket(n) for n in (0, 1, 3, 64, 65)]
        [0, 1, 4, 64, 128]
    """
    return 1 << (n - 1).bit_length() if n > 1 else n


def factor(n: int, most: int = 16) -> int:
    """The largest power of two that divides n, at most `most`: what a problem may keep of a
    length's alignment.

    Example:
        >>> [factor(n) for n in (3, 12, 96, 0)]
        [1, 4, 16, 16]
    """
    return min(n & -n, most) if n else most


def key_of(problem: Any, exact: frozenset[str]) -> Any:
    """The problem with its integers rounded up to powers of two, those named in `exact` kept.

    Args:
        problem: a named tuple of integers, texts and booleans.
        exact: fields whose every value is a key of its own.

    Returns:
        A named tuple of the same class: the key is itself a problem, the largest of its bucket.
    """
    return problem._make(
        bucket(v) if isinstance(v, int) and not isinstance(v, bool) and name not in exact else v
        for name, v in zip(problem._fields, problem)
    )


def text_of(problem: Any) -> str:
    """Fields and values on one line, without the device.

    Example:
        >>> from typing import NamedTuple
        >>> class Sum(NamedTuple):
        ...     device: str
        ...     rows: int
        >>> text_of(Sum("cpu", 64))
        'rows=64'
    """
    return " ".join(f"{n}={v}" for n, v in zip(problem._fields, problem) if n != "device")
