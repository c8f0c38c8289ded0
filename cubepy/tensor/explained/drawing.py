"""A program as SVG: its steps as boxes from top to bottom, fused ones with what is inside; below,
the arena: time to the right, bytes upwards.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

LETTER, LINE, GAP = 6.7, 15, 26  # pixels: of a letter, between lines of text, between boxes
MOST_LINES, MOST_LETTERS = 12, 56  # of a box
MOST_STEPS = 400  # that are drawn
ARENA_WIDTH, ARENA_HEIGHT = 640, 180
FILL = {"input": "#eef2f7", "fused": "#e3f4e1", "step": "#fdf6e3"}
STROKE = {"input": "#8aa0bd", "fused": "#58a04c", "step": "#c9a24a"}
HUES = ("#9ecae1", "#a1d99b", "#fdd0a2", "#bcbddc", "#fc9272", "#c7e9c0", "#d9d9d9")


def drawn(title: str, programs: Sequence[Any]) -> str:
    """Programs (`ProgramShown`) below each other."""
    parts: list[str] = []
    width, at = 320.0, 34.0
    for program in programs:
        parts.append(_text(10, at, program.kind, bold=True))
        at += GAP
        body, wide, at = _steps(program, at)
        parts += body
        width = max(width, wide, 20 + LETTER * len(program.kind))
        if program.lifetimes:
            body, at = _arena(program, at + GAP)
            parts += body
            width = max(width, ARENA_WIDTH + 40)
        at += GAP
    head = _text(10, 18, title, bold=True)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{at:.0f}" '
        f'viewBox="0 0 {width:.0f} {at:.0f}" font-family="monospace" font-size="11">'
        '<rect width="100%" height="100%" fill="white"/>' + head + "".join(parts) + "</svg>"
    )


def _text(x: float, y: float, text: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{weight}>{html.escape(text)}</text>'


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


def _lines(step: Any) -> list[str]:
    """What stands in the box of a step."""
    if step.op == "input":
        return [_cut(step.name), *[_cut(r) for r in step.results]]
    lines = [step.op if step.kernels is None else f"{step.op}: {', '.join(step.kernels) or 'view'}"]
    shown = step.formulas[:MOST_LINES]
    lines += shown or step.results
    if len(step.formulas) > len(shown):
        lines.append(f"... {len(step.formulas) - len(shown)} more")
    for body in step.bodies:
        inner = [line for one in body.steps for line in one.text() if one.op != "input"]
        lines += [f"{body.title}:", *[f"  {line.strip()}" for line in inner[:MOST_LINES]]]
        lines += [f"  ... {len(inner) - MOST_LINES} more"] * (len(inner) > MOST_LINES)
    lines += [f"gives {r}" for r in step.results]
    return [_cut(line) for line in lines]


def _steps(program: Any, top: float) -> tuple[list[str], float, float]:
    """The boxes and the ways between them, how wide they are, and where they end."""
    steps = program.steps[:MOST_STEPS]
    level: dict[int, int] = {}
    for step in steps:
        level[step.number] = 1 + max((level[i] for i in step.inputs if i in level), default=-1)
    for step in steps:  # inputs stand above their first reader
        if step.op == "input":
            readers = [level[s.number] for s in steps if step.number in s.inputs]
            level[step.number] = min(readers, default=1) - 1
    rows: dict[int, list[Any]] = {}
    for step in steps:
        rows.setdefault(level[step.number], []).append(step)
    boxes: dict[int, tuple[float, float, float, float]] = {}
    at, widest = top, 0.0
    parts: list[str] = []
    for n in sorted(rows):
        row = sorted(rows[n], key=lambda s: _middle(s, boxes))
        x, high = 10.0, 0.0
        for step in row:
            lines = _lines(step)
            w, h = 14 + LETTER * max(map(len, lines)), 8.0 + LINE * len(lines)
            boxes[step.number] = x, at, w, h
            kind = "input" if step.op == "input" else "fused" if step.fused else "step"
            parts.append(
                f'<rect x="{x:.0f}" y="{at:.0f}" width="{w:.0f}" height="{h:.0f}" rx="5" '
                f'fill="{FILL[kind]}" stroke="{STROKE[kind]}"><title>'
                f"{html.escape(', '.join(step.lines) or step.op)}</title></rect>"
            )
            parts += [_text(x + 7, at + LINE * (k + 1), t) for k, t in enumerate(lines)]
            x, high = x + w + GAP, max(high, h)
        widest, at = max(widest, x), at + high + GAP
    ways = [_way(boxes[i], boxes[s.number]) for s in steps for i in s.inputs if i in boxes]
    if len(program.steps) > len(steps):
        parts.append(_text(10, at, f"... {len(program.steps) - len(steps)} steps more"))
        at += GAP
    return ways + parts, widest, at


def _middle(step: Any, boxes: dict[int, tuple[float, float, float, float]]) -> float:
    """Where the boxes that a step reads stand, from left to right."""
    found = [boxes[i][0] + boxes[i][2] / 2 for i in step.inputs if i in boxes]
    return sum(found) / len(found) if found else 0.0


def _way(one: tuple[float, ...], other: tuple[float, ...]) -> str:
    x, y = one[0] + one[2] / 2, one[1] + one[3]
    u, v = other[0] + other[2] / 2, other[1]
    bend = (v - y) / 2
    return (
        f'<path d="M{x:.0f} {y:.0f} C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} {u:.0f} '
        f'{v:.0f}" fill="none" stroke="#888"/>'
    )


def _arena(program: Any, top: float) -> tuple[list[str], float]:
    """What is in the arena, and when."""
    steps = max(one.last for one in program.lifetimes) + 1
    size = max(program.arena, 1)
    head = f"arena: {program.arena} bytes, {program.peak} used at most, over {steps} launches"
    parts = [_text(10, top, head)]
    top += 8
    for k, one in enumerate(program.lifetimes):
        x = 10 + ARENA_WIDTH * one.first / steps
        w = ARENA_WIDTH * (one.last - one.first + 1) / steps
        h = max(1.0, ARENA_HEIGHT * one.size / size)
        y = top + ARENA_HEIGHT * (1 - one.offset / size) - h
        said = f"{one.size} bytes at {one.offset}, launches {one.first} to {one.last}"
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'fill="{HUES[k % len(HUES)]}" stroke="white"><title>{said}</title></rect>'
        )
    return parts, top + ARENA_HEIGHT
