"""Write the page of the ops of tensors, `docs/reference/ops.md`, from their records.

A test fails where the page is not what this script makes.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from pathlib import Path

import cubepy.tensor  # gradients and fusion add to the records
from cubepy.lang.dtypes import f32
from cubepy.tensor.fusion.products.epilogues import ACTIVATIONS
from cubepy.tensor.fusion.reductions.rows import REDUCTIONS
from cubepy.tensor.fusion.written import SAME, writable
from cubepy.tensor.ops import OPS
from cubepy.tensor.ops.op import KINDS, Op

FILE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "ops.md"
HEAD = """# Ops of tensors

Made by `scripts/ops_page.py` from the records in [cubepy/tensor/ops](../../cubepy/tensor/ops/op.py): change those, not this page.

* **Inputs** are tensors (those with `?` may be absent), **attributes** plain values; names are those of graphs
  (`Graph.nodes`, `cb.explain`), methods and functions of tensors are made of these.
* **Gradient**: *any order* is a gradient written in ops, which have gradients themselves; *constant*: results do not change with
  small changes of inputs (or nothing differentiates them), so none passes; *refused*: `backward()` through it is a `GradientError`.
* **Fusion** in [programs](../guide/programs.md): *map*: joins with maps of its shape, and with reductions along the last axis of
  it; *rows*: along the last axis it joins with other rows and maps; *takes maps*: does an activation or residual behind it in its own
  launch; *joins*: in a group it costs nothing; *alone*: a step of its own.

{kinds}
"""
ORDER = (
    "creation elementwise reductions normalization movement indexing order products linalg attention "
    "convolution pooling random updates"
).split()


def inputs_of(op: Op) -> tuple[str, str]:
    """Inputs and attributes of an op, as text."""
    inputs, attrs = [], []
    for p in inspect.signature(op.rule).parameters.values():
        kind = str(p.annotation)
        if p.kind is p.VAR_POSITIONAL:
            inputs.append(f"*{p.name}")
        elif p.kind is p.VAR_KEYWORD:
            attrs.append(f"**{p.name}")
        elif "Spec" in kind and p.kind is not p.KEYWORD_ONLY:
            inputs.append(p.name + ("?" if "None" in kind or p.default is None else ""))
        else:
            attrs.append(p.name)
    return ", ".join(inputs), ", ".join(attrs)


def results_of(op: Op) -> str:
    """How many results an op has."""
    said = str(inspect.signature(op.rule).return_annotation)
    return (
        "several" if "list" in said or "tuple" in said else "1" if said == "Spec" else "1 or more"
    )


def gradient_of(op: Op) -> str:
    """Whether gradients go through an op."""
    if op.constant:
        return "constant"
    if op.vjp is not None:
        return "any order"
    return "constant" if op.kind == "make" else "refused"


def fusion_of(op: Op) -> str:
    """What an op fuses with."""
    if op.name.startswith(("fused_", "packed_")):
        return "made by fusion"
    found = []
    if op.name in REDUCTIONS:
        found.append("rows")
    elif op.name in (*SAME, "constant"):
        found.append("joins")
    elif op.kind == "map" and writable(op.name, {}, (), f32):
        found.append("map")
    if op.name in (*ACTIVATIONS, "add"):
        found.append("behind linear")
    if op.name == "linear":
        found.append("takes maps")
    return ", ".join(found) or "alone"


def family_of(op: Op) -> str:
    """The file that defines an op."""
    module = op.rule.__module__
    if module == "cubepy.tensor.linalg.ops":
        return "linalg"
    return module.rpartition(".")[2] if module.startswith("cubepy.tensor.ops.") else "programs"


def text() -> str:
    """The page."""
    kinds = inspect.getsource(sys.modules[Op.__module__]).partition("what they fuse with:")[2]
    said = " ".join(kinds.partition('"""')[0].split())
    lines = [HEAD.format(kinds=f"Kinds are {', '.join(f'`{k}`' for k in KINDS)}. {said}")]
    families: dict[str, list[Op]] = {}
    for name in sorted(OPS):
        families.setdefault(family_of(OPS[name]), []).append(OPS[name])
    known = [f for f in ORDER if f in families]
    for family in [*known, *sorted(families.keys() - set(known))]:
        lines += [f"## {family.capitalize()}", ""]
        lines += ["| op | kind | inputs | attributes | results | gradient | fusion |"]
        lines += ["|---|---|---|---|---|---|---|"]
        for op in families[family]:
            inputs, attrs = (part.replace("*", r"\*") for part in inputs_of(op))
            cells = (f"`{op.name}`", op.kind, inputs, attrs, results_of(op))
            row = " | ".join((*cells, gradient_of(op), fusion_of(op)))
            lines.append(f"| {row} |".replace("  ", " "))
        lines.append("")
    count = len(OPS)
    return "\n".join(lines).rstrip() + f"\n\n{count} ops of `cubepy.tensor` {cubepy.__version__}.\n"


def main() -> int:
    """The exit status: 1 when `--check` finds that the page is not what the records say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    if parser.parse_args().check:
        return int(not FILE.exists() or FILE.read_text() != text())
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
