"""The words of the language that save idioms: loops over lines, lines of numbers, coordinates."""

from __future__ import annotations

from cubepy.lang.examples import kernel_example, line

WORDS = {
    "lines": "`for k, valid in lines(start, stop, lanes)`: k goes from start to stop by "
    "comptime `lanes`, and `valid` is how many of the lanes from k on lie before stop: "
    "comptime `lanes` in a loop over whole lines, a runtime number in the tail, for "
    "which the body is written again.",
    "iota": "`iota(lanes, dtype=i32)`: the line 0, 1, 2, ...; both are comptime.",
    "line": "`line(a, b, c, ...)`: a line of 1 to 64 numbers, in the dtype in which they meet.",
    "keep_first": "`keep_first(line, n, other)`: the first n lanes of a line, and `other` in those "
    "behind; `other` is a number or a line and takes the line's dtype.",
    "unravel": "`unravel(position, shape)`: the coordinates (a tuple) of a position in the C order "
    "of a shape.",
    "range": "`range(start, stop, step, unroll=True)`: Python's; with `unroll=False` compilers "
    "keep it a loop.",
}
"""What each word does."""

WORD_EXAMPLES = {
    "lines": kernel_example(
        "total = cb.splat(cb.f32(0), 4)\nfor k, valid in cb.lines(0, x.size, 4):\n"
        "    total += x.load(k, 4, valid=valid)  # the second line has two numbers and two zeros\n"
        "out.store(0, total)",
        x="np.array([1, 2, 3, 4, 10, 20], np.float32)",
        out="np.zeros(4, np.float32)",
        shows="[11. 22.  3.  4.]",
    ),
    "iota": line("v + cb.iota(4) * 10", "[1, 2, 3, 4]", 4, "[ 1. 12. 23. 34.]"),
    "line": line("cb.line(v[3], v.sum(), 7)", "[1, 2, 3, 4]", 3, "[ 4. 10.  7.]"),
    "keep_first": line("cb.keep_first(v, 3, -1)", "[1, 2, 3, 4]", 4, "[ 1.  2.  3. -1.]"),
    "unravel": kernel_example(
        "row, column = cb.unravel(cb.ABSOLUTE_POS, (2, 3))\nout[row, column] = 10 * row + column",
        grid="[2, 3]",
        out="np.zeros((2, 3), np.int32)",
        shows="[[ 0  1  2]\n [10 11 12]]",
    ),
    "range": kernel_example(
        "total = 0\nfor k in cb.range(0, x.size, 2, unroll=False):  # the body stays short\n"
        "    total += x[k]\nout[0] = total",
        x="np.array([1, 2, 3, 4, 5], np.int32)",
        out="np.zeros(1, np.int32)",
        shows="[9]",
    ),
}
"""The lines of an example of each."""


def took_missing(how: str, array: str) -> str:
    """What validate mode says of a maximum ("max") or minimum ("min") of missing lanes."""
    number, least = ("maximum", "-inf") if how == "max" else ("minimum", "inf")
    return (
        f"a {number} takes lanes that are not in the array {array!r} "
        "(past its end, or past valid=) and so are zero; "
        f"say what they are with load(..., other=), as other={least} for floats"
    )


def read_too_early(name: str) -> str:
    """What validate mode says of a variable to which the path that was taken gave no value."""
    return (
        f"the variable {name!r} is read on a path that gave it no value; "
        "assign it on every path before this line"
    )


STEP_OF_ZERO = "range needs a step that is not zero"
"""What validate mode says of a loop that would never get on."""
