"""Kernels that use planes do not take them to have 32 units: AMD's have 64, too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.project.architecture import ROOT

NVIDIA = "matrix units or copy engines of NVIDIA GPUs, whose planes have 32"
KEYS = "a word of 64 bits where a plane has more than 32 units"
REASONS = {
    "cubepy/kernels/attention/gpu/flash_decoding.py: combine_parts": NVIDIA,
    "cubepy/kernels/attention/sm90/backward_256.py: query_gradients": NVIDIA,
    "cubepy/kernels/attention/sm90/backward_passes.py: prepare_gradients": NVIDIA,
    "cubepy/kernels/attention/sm90/backward_passes.py: round_query_grads": NVIDIA,
    "cubepy/kernels/attention/sm90/fragments.py: write_rows": NVIDIA,
    "cubepy/kernels/attention/sm90/masks.py: survey": NVIDIA,
    "cubepy/kernels/attention/sm90/masks.py: survey_keys": NVIDIA,
    "cubepy/kernels/primitives/units.py: over_units": "distances from 32 down, below the plane's",
    "cubepy/kernels/reduce/walk_gpu.py: units_joined": "distances from 32 down, below the plane's",
    "cubepy/kernels/scan/columns_gpu.py: shown": "the upper 32 bits of a word",
    "cubepy/kernels/sort/onesweep_gpu.py: rank_keys": KEYS,
    "cubepy/kernels/sort/onesweep_gpu.py: sweep": KEYS,
    "cubepy/kernels/sort/radix_block_gpu.py: rank_tile": KEYS,
    "cubepy/kernels/sort/radix_block_gpu.py: sort_rows_by_planes": KEYS,
    "quant/linear/gpu/gemm_mma.py: arrange_rows": NVIDIA,
    "quant/linear/gpu/gemv.py: few_product": NVIDIA,
    "quant/linear/gpu/gemv.py: round_eight": "an exponent of a float",
    "quant/linear/sm90/fragments.py: fragments": NVIDIA,
}
"""Functions that say 32 beside builtins of planes, and why; the list only shrinks."""


def suspicious(text: str) -> list[str]:
    """Kernels and funcs that use planes and hold 32, 31 or five steps of halving."""
    found = []
    for function in ast.walk(ast.parse(text)):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not any("cb.func" in ast.unparse(d) or "cb.kernel" in ast.unparse(d)
                   for d in function.decorator_list):  # fmt: skip
            continue
        nodes = list(ast.walk(function))
        names = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
        planes = {n for n in names if n.startswith("plane_")} | names & {
            "UNIT_POS_PLANE",
            "PLANE_POS",
        }
        numbers = {n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) is int}
        steps = any(isinstance(n, ast.Call) and ast.unparse(n) == "range(5)" for n in nodes)
        if planes and (numbers & {31, 32} or steps):
            found.append(function.name)
    return found


def test_kernels_say_why_they_count_to_32() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("cubepy/kernels", "quant")
        for path in sorted((Path(ROOT) / folder).rglob("*.py"))
        for name in suspicious(path.read_text())
    }
    assert not found - REASONS.keys(), "cb.PLANE_DIM instead, or a reason above"
    assert not REASONS.keys() - found, "no longer needed, take it off the list"


@pytest.mark.parametrize(
    "line",
    ["cb.UNIT_POS_PLANE + 32", "cb.plane_sum(x) % 32", "[cb.plane_max(x) for k in range(5)]"],
)
def test_it_sees_them(line: str) -> None:
    assert suspicious(f"@cb.func\ndef f(x):\n    return {line}\n") == ["f"]
    assert not suspicious(f"def f(x):\n    return {line}\n")
