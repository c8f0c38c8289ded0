"""Write the table of operators of `docs/onnx.md` from their records.

    python scripts/onnx_page.py [--check]

A test fails where the table is not what this script makes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cubepy.models.onnx import ops
from cubepy.models.onnx.records import ALL, RECORDS, Record
from cubepy.models.onnx.rewriting import OURS

FILE = Path(__file__).resolve().parent.parent / "docs" / "onnx.md"
BEGIN, END = "<!-- operators: made by scripts/onnx_page.py -->\n", "<!-- end of operators -->\n"


def family(record: Record) -> str:
    """The file that a record is in."""
    return record.run.__module__.removeprefix(f"{ops.__name__}.").replace(".", "/")


def runs(record: Record) -> str:
    """Where an operator runs."""
    if ALL in record.reads:
        return "on the host"
    return "between programs" if record.splits else "in programs"


def table() -> str:
    """The records as a table, a row for each operator."""
    lines = [
        "| operator | domain | from opset | family | runs | shapes |",
        "|---|---|---|---|---|---|",
    ]
    known = {key: records for key, records in RECORDS.items() if key[0] != OURS}
    order = sorted(known.items(), key=lambda item: (item[0][0], item[0][1].lower()))
    for (domain, name), records in order:
        newest = records[0]
        since = ", ".join(str(r.since) for r in reversed(records))
        folds = "folded" if newest.host is not None or name in ("Shape", "Size") else ""
        lines.append(
            f"| `{name}` | {domain or 'ai.onnx'} | {since} | {family(newest)} | {runs(newest)} "
            f"| {folds} |"
        )
    lines.append("")
    lines.append(f"{len(known)} operators.")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The page with its table as the records say."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


def main() -> None:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    text = FILE.read_text()
    if options.check:
        sys.exit(0 if page(text) == text else f"{FILE} is not what scripts/onnx_page.py makes")
    FILE.write_text(page(text))


if __name__ == "__main__":
    main()
