"""The words of the language that save idioms: loops over lines, lines of numbers, coordinates of a position."""

from __future__ import annotations

from cubepy.lang.examples import kernel_example

WORDS = {
    "lines": "`for k, valid in lines(start, stop, lanes)`: k goes from start to stop by comptime `lanes`, and `valid` "
    "is how many of the lanes from k on lie before stop: comptime `lanes` in a loop over whole lines, a runtime number "
    "in the tail, for which the body is written a second time."
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
    )
}
"""The lines of an example of each."""


def took_missing(how: str, array: str) -> str:
    """What validate mode says of a maximum ("max") or minimum ("min") of lanes that a load left at zero."""
    number, least = ("maximum", "-inf") if how == "max" else ("minimum", "inf")
    return (
        f"a {number} takes lanes that are not in the array {array!r} (past its end, or past valid=) and so are zero; "
        f"say what they are with load(..., other=), as other={least} for floats"
    )
