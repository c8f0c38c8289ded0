"""A launch that came before, as one written function: numbers go into a table, and machine code
checks the arrays, takes their addresses and runs (see `replay`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.backends.cpu import replay
from cubepy.runtime import recording

Quick = Callable[[tuple, Any], bool]


def launch_of(
    runner: Any,
    positions: Sequence[tuple[int, int]],
    outputs: Sequence[int],
    extents: Sequence[Any],
) -> Quick | None:
    """A function of (values, stream) that launches, and says whether it did: outputs that cannot be
    written or share memory are left to the general path. None where there is no machine code.

    Args:
        runner: a `CpuRunner`, whose table this is from now on.
        positions: where each leaf stands among the values: (argument, -1), or (argument, position
            in its tuple).
        outputs: leaves that are written.
        extents: the first byte of each array and one past the last, from its address on.
    """
    if replay.entry() is None:
        return None
    given = [f"values[{i}]" + (f"[{j}]" if j >= 0 else "") for i, j in positions]
    arrays = [n for n, (_, is_array, _) in enumerate(runner.slots) if is_array]
    operand = {n: k for k, n in enumerate(arrays)}
    scope: dict[str, Any] = {"recording": recording}

    def lay_out() -> int:
        """Fill the table, with the threads of the settings as they are; where its block begins."""
        table = replay.HostTable()
        begin = table.words(runner.block)
        table.step(*runner.step(begin), -1)
        table.runners.append(runner)
        for n in arrays:
            table.put(begin + runner.slots[n][0], operand[n], 0)
        for n in outputs:
            for m in arrays:
                if m != n and extents[n][1] > extents[n][0] and extents[m][1] > extents[m][0]:
                    table.disjoint(operand[n], extents[n], operand[m], extents[m])
        scope["settings"] = recording.settings
        scope["go"], scope["table"], scope["_alive"] = table.ready()
        words = scope["words"] = scope["_alive"][0]
        scope["floats"] = (ctypes.c_double * len(words)).from_buffer(words)
        scope["failed"] = table.failed
        return table.first_word(replay.HEAD) + begin

    first, scope["lay_out"] = lay_out(), lay_out
    lines = ["def quick(values, stream):"]
    if runner.parallel:  # on one thread nothing depends on settings
        lines += ["    if settings != recording.settings:", "        lay_out()"]
    if outputs:
        fixed = " and ".join(f"{given[n]}.flags.writeable" for n in outputs)
        lines += [f"    if not ({fixed}):", "        return False"]
    for n, (slot, is_array, is_float) in enumerate(runner.slots):
        if not is_array:
            target = "floats" if is_float else "words"
            lines.append(f"    {target}[{first + slot}] = {given[n]}")
    lines += [
        f"    code = go(table, ({', '.join(given[n] for n in arrays)},))",
        "    if code:",
        "        failed(code)",
        "    return not code",
    ]
    exec(compile("\n".join(lines), "<launch on the host>", "exec"), scope)  # text made above
    return scope["quick"]  # type: ignore[no-any-return]
