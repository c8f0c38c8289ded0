"""One page of all results that asv kept: our times, ratios to the peers, their history. No script,
no network.

asv's own pages load scripts from other places and nothing at all from disk; this one is a single
file.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

OURS = "cubepy"
WIDTH, HEIGHT = 140, 28  # of a line of history, in pixels

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 78rem; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { padding: .2rem .6rem; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums } tr + tr td { border-top: 1px solid #8883 }
th { border-bottom: 2px solid #8886 } .good { color: #187a2f } .bad { color: #b3261e } .same { color: #777 }
h2 { margin-top: 2.5rem } svg { vertical-align: middle } small, .dim { color: #777 }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd } .good { color: #6fcf87 }
  .bad { color: #ff8a80 } .same, small, .dim { color: #999 } }
"""


@dataclass(frozen=True)
class Row:
    """One benchmark with all its parameters but the library, on one machine.

    Attributes:
        unit: "seconds", or what a tracked number is.
        values: library (or "" where there is none) -> commit -> value.
        dates: commit -> milliseconds since 1970.
    """

    machine: str
    name: str
    case: str
    unit: str
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    dates: dict[str, int] = field(default_factory=dict)

    def history(self, library: str) -> list[tuple[str, float]]:
        """(commit, value), oldest first."""
        found = self.values.get(library, {})
        return [(c, found[c]) for c in sorted(found, key=self.dates.__getitem__)]

    def latest(self, library: str) -> float | None:
        """The value of the youngest commit."""
        found = self.history(library)
        return found[-1][1] if found else None

    def ratios(self) -> dict[str, float]:
        """Peer -> how many times faster ours is, in the youngest commit that has both; the best
        peer first.
        """
        ours, found = self.values.get(OURS, {}), {}
        for library in self.values:
            both = [c for c, _ in self.history(library) if c in ours]
            if library not in (OURS, "") and both:
                found[library] = self.values[library][both[-1]] / ours[both[-1]]
        return dict(sorted(found.items(), key=lambda p: p[1]))


def load(folders: Iterable[Path]) -> list[Row]:
    """The rows of folders in asv's format (version 2), in the order of their names.

    Raises:
        ValueError: a file of another version.
    """
    rows: dict[tuple[str, str, str], Row] = {}
    for folder in folders:
        names = _json(folder / "benchmarks.json") if (folder / "benchmarks.json").exists() else {}
        for file in sorted(folder.glob("*/*.json")):
            if file.name != "machine.json":
                _merge(rows, file, names)
    return [rows[key] for key in sorted(rows)]


def _json(file: Path) -> dict[str, Any]:
    found = json.loads(file.read_text())
    if found.get("version", 2) != 2:
        raise ValueError(
            f"{file} is of version {found['version']} of asv's format; this page reads version 2"
        )
    return found


def _merge(rows: dict[tuple[str, str, str], Row], file: Path, names: dict[str, Any]) -> None:
    found = _json(file)
    commit, machine = found["commit_hash"], file.parent.name
    for name, stored in found["results"].items():
        values = dict(zip(found["result_columns"], stored, strict=False))
        known = names.get(name, {})
        labels = known.get("param_names") or []
        for cell, value in zip(
            itertools.product(*values["params"]), values["result"] or (), strict=False
        ):
            if value is None or math.isnan(value):
                continue
            texts = [str(v).strip("'\"") for v in cell]
            library = texts.pop(labels.index("library")) if "library" in labels else ""
            key = (machine, name, " ".join(texts))
            row = rows.setdefault(key, Row(*key, known.get("unit", "seconds")))
            row.values.setdefault(library, {})[commit] = value
            row.dates[commit] = max(found["date"], row.dates.get(commit, 0))


def shown(value: float | None, unit: str) -> str:
    """A value with a fitting unit."""
    if value is None:
        return ""
    if unit != "seconds":
        return f"{value:.3g} {unit}"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value / 1e-9:.3g} ns"


def line_of(history: list[tuple[str, float]], unit: str) -> str:
    """A small line of values over commits; each point tells its commit and value."""
    if len(history) < 2:
        return ""
    values = [v for _, v in history]
    low, span = min(values), (max(values) - min(values)) or 1.0
    step = WIDTH / (len(values) - 1)
    points = [(4 + i * step, 4 + HEIGHT * (1 - (v - low) / span)) for i, v in enumerate(values)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"><title>{escape(c[:10])}: {escape(shown(v, unit))}</title></circle>'
        for (x, y), (c, v) in zip(points, history, strict=True)
    )
    size = f'width="{WIDTH + 8}" height="{HEIGHT + 8}"'
    return f'<svg {size} fill="#4a7bd0"><polyline points="{path}" fill="none" stroke="#4a7bd0"/>{dots}</svg>'


def table(rows: list[Row]) -> Iterator[str]:
    """The rows of one machine."""
    yield "<table><tr><th>work</th><th>time</th><th>best peer</th><th>all peers</th><th>history of ours</th></tr>"
    for row in rows:
        library = OURS if OURS in row.values else ""
        ratios = row.ratios()
        best = ""
        if ratios:
            name, ratio = next(iter(ratios.items()))
            kind = "good" if ratio >= 1.02 else "bad" if ratio < 0.98 else "same"
            best = f'<span class="{kind}">{ratio:.2f}x</span> {escape(name)}'
        others = ", ".join(f"{escape(n)} {r:.2f}x" for n, r in ratios.items())
        name = (
            row.name.rsplit(".", 1)[-1]
            .removeprefix("time_")
            .removeprefix("timeraw_")
            .removeprefix("track_")
        )
        yield (
            f'<tr><td>{escape(name)} <span class="dim">{escape(row.case)}</span></td>'
            f'<td class="n">{shown(row.latest(library), row.unit)}</td><td>{best}</td><td><small>{others}</small></td>'
            f"<td>{line_of(row.history(library), row.unit)}</td></tr>"
        )
    yield "</table>"


def write(rows: list[Row], target: Path) -> Path:
    """Write the page in one step; gives its path."""
    lines = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>cubepy</title><style>{STYLE}</style>'
    ]
    lines.append(
        "<h1>cubepy beside its peers</h1><p>A ratio says how many times faster cubepy was than a peer in the "
    )
    lines.append("same run; the first is that to the fastest. Points of a history are commits.</p>")
    if not rows:
        lines.append("<p>There are no results yet: <code>make asv</code> measures.</p>")
    for machine, group in itertools.groupby(rows, lambda row: row.machine):
        lines += [f"<h2>{escape(machine)}</h2>", *table(list(group))]
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "</html>\n")
    Path(name).replace(target)
    return target
