"""How many windows of a pool there are."""

from __future__ import annotations

from cubepy.errors import ShapeError


def window_count(op: str, n: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
    """How many windows of k positions, d apart, begin every s positions of an axis of n that is
    padded by p on both sides; with `ceil_mode` they may hang over the end.

    Raises:
        ShapeError: none fits, or padding is more than half of a window; `op` is told by its name.

    Example:
        >>> window_count("max_pool1d", 7, 3, 2, 0, 1, False), window_count("", 8, 3, 2, 0, 1, True)
        (3, 4)
    """
    if p > k // 2:
        raise ShapeError(f"{op}: padding={p} is more than half of kernel_size={k}")
    span = n + 2 * p - d * (k - 1) - 1
    m = (-(-span // s) if ceil_mode else span // s) + 1
    if ceil_mode and (m - 1) * s >= n + p:
        m -= 1  # the last window would begin behind the end
    if m < 1 or n < 1:
        gaps = f" with dilation={d}" if d > 1 else ""
        raise ShapeError(
            f"{op}: kernel_size={k}{gaps} does not fit into an axis of {n} with padding={p}"
        )
    return m
