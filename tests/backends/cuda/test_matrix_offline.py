"""Kernels with matrix units and asynchronous copies compile to the instructions that they ask for,
without a GPU.
"""

from __future__ import annotations

import dis
import importlib.util
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cb
from tests.backends.cuda import matrix_kernels as M

pytest.importorskip("numba_cuda", reason="compiling for NVIDIA GPUs needs numba-cuda")

from cubepy.backends.cuda.codegen.disassemble import count, usage
from cubepy.backends.cuda.offline import compile_for
from tests.backends.cuda.disassembler import needs_sass
from tests.backends.cuda.thorough import some

BF16 = ml_dtypes.bfloat16
F32 = np.zeros((64, 256), np.float32)


def ones(dtype: Any, *shape: int) -> np.ndarray:
    return np.ones(shape, dtype)


def sass(code: Any, *absent: str) -> str:
    """The machine code; nothing of it may be spilled."""
    text = code.sass
    assert count(text, "LDL", "STL") == {"LDL": 0, "STL": 0}
    assert usage(code.cubin).stack == 0
    return str(text)


MMA = [
    (cb.f16, np.float16, "HMMA"), (cb.bf16, BF16, "HMMA"), (cb.f32, np.float32, "HMMA"), (cb.i8, np.int8, "IMMA"),
    (cb.u8, np.uint8, "IMMA"),
]  # fmt: skip


@needs_sass
@pytest.mark.parametrize(("dtype", "numpy", "name"), MMA, ids=lambda v: str(v))
def test_a_plane_multiplies_with_tensor_cores(dtype: Any, numpy: Any, name: str) -> None:
    each = 16 // np.dtype(numpy).itemsize
    whole, result = (cb.i32, np.int32) if dtype.is_int else (cb.f32, np.float32)
    code = compile_for(
        "sm_80", M.product_of_a_plane, 32, ones(numpy, 16, 4 * each), ones(numpy, 8, 4 * each), ones(result, 16, 8), 8,
        dtype=dtype, each=each, whole=whole, mode="unchecked",
    )  # fmt: skip
    text = sass(code)
    found = count(text, name, "LDSM", "LDGSTS")
    assert found["LDSM"] == 4 and found["LDGSTS"] == 3 and found[name] >= 2


@needs_sass
def test_bytes_with_and_without_sign_are_operands_of_one_product() -> None:
    code = compile_for(
        "sm_80", M.product_of_a_plane, 32, ones(np.uint8, 16, 64), ones(np.int8, 8, 64), ones(np.int32, 16, 8), 8,
        dtype=cb.u8, each=16, whole=cb.i32, other=cb.i8, mode="unchecked",
    )  # fmt: skip
    assert sass(code).count("IMMA.16832.U8.S8") == 2


@needs_sass
def test_transposed_fragments_come_and_go_by_matrix_loads_and_stores() -> None:
    code = compile_for(
        "sm_90a",
        M.product_transposed,
        32,
        ones(BF16, 16, 16),
        ones(BF16, 16, 8),
        ones(BF16, 16, 8),
        dtype=cb.bf16,
    )
    assert ".MT88" in sass(code)
    assert count(code.sass, "HMMA", "STSM") == {"HMMA": 1, "STSM": 1}


@needs_sass
def test_boxes_are_copied_by_the_copy_engine() -> None:
    x = ones(np.float32, 64, 64)
    m = cb.tensor_map(x, (16, 32))
    code = compile_for("sm_90a", M.boxes, 128, m, m, ones(np.float32, 512), 0, 0)
    found = count(sass(code), "UTMALDG", "UTMASTG", "SYNCS", "UTMACCTL")
    assert (
        found["UTMALDG"] == 1
        and found["UTMASTG"] == 1
        and found["SYNCS"] > 0
        and found["UTMACCTL"] == 1
    )


@needs_sass
def test_a_cluster_shares_a_box() -> None:
    m = cb.tensor_map(ones(np.float32, 64, 32), (16, 32))
    code = compile_for("sm_90a", M.spread, 64, m, ones(np.float32, 4, 512))
    assert "UTMALDG.2D.MULTICAST" in sass(code)
    assert count(code.sass, "UCGABAR_ARV", "MAPA")["UCGABAR_ARV"] == 2
    assert code.program.cluster == (2, 1, 1)


@needs_sass
def test_a_plane_arrives_without_waiting_and_another_adds_lines() -> None:
    code = compile_for("sm_90a", M.handed_over, 64, ones(np.float32, 128), ones(np.float32, 128))
    found = count(sass(code), "BAR", "RED", "REDG")
    assert "BAR.ARV" in code.sass and found["BAR"] == 2 and found["RED"] + found["REDG"] == 1
    assert code.program.resident == 4


WGMMA = [
    (cb.f16, np.float16, np.float16, "HGMMA"), (cb.bf16, BF16, BF16, "HGMMA"), (cb.f32, np.float32, np.float32, "HGMMA"),
    (cb.i8, np.int8, np.int8, "IGMMA"), (cb.u8, np.uint8, np.uint8, "IGMMA"),
    (cb.fp8_e4m3, np.uint8, np.uint8, "QGMMA"), (cb.fp8_e5m2, np.uint8, np.uint8, "QGMMA"),
]  # fmt: skip


@needs_sass
@pytest.mark.parametrize(
    ("dtype", "numpy", "_", "name"), some(WGMMA, 0, 1, 3), ids=lambda v: str(v)
)
@pytest.mark.parametrize("n", [8, 256])
def test_a_group_multiplies_without_spills(
    dtype: Any, numpy: Any, _: Any, name: str, n: int
) -> None:
    deep = 128 // np.dtype(numpy).itemsize
    whole, result = (cb.i32, np.int32) if dtype.is_int else (cb.f32, np.float32)
    a, b = (cb.tensor_map(ones(numpy, r, deep), (r, deep)) for r in (64, n))
    code = compile_for(
        "sm_90a", M.product_of_a_group, 128, a, b, ones(result, 64, n), dtype=dtype, whole=whole, bytes_deep=32,
        mode="unchecked",
    )  # fmt: skip
    assert count(sass(code), name) == {name: 4}


@needs_sass
@pytest.mark.parametrize("flip_a", [False, True])
def test_transposed_operands_are_read_where_they_lie(flip_a: bool) -> None:
    a, b = cb.tensor_map(ones(BF16, 64, 64), (64, 64)), cb.tensor_map(ones(BF16, 64, 128), (64, 64))
    code = compile_for(
        "sm_90a", M.product_flipped, 128, a, b, F32, dtype=cb.bf16, flip_a=flip_a, mode="unchecked"
    )
    assert count(sass(code), "HGMMA") == {"HGMMA": 4}


@needs_sass
def test_fragments_are_operands() -> None:
    b = cb.tensor_map(ones(BF16, 64, 64), (64, 64))
    code = compile_for(
        "sm_90a", M.product_from_registers, 128, ones(BF16, 64, 64), b, F32, dtype=cb.bf16
    )
    found = count(sass(code), "HGMMA", "LDSM")
    assert found["HGMMA"] >= 1 and found["LDSM"] == found["HGMMA"]


@needs_sass
def test_a_specialised_matmul_keeps_its_accumulators_in_registers() -> None:
    a, b = (
        cb.tensor_map(ones(BF16, 256, 512), (128, 64)),
        cb.tensor_map(ones(BF16, 256, 512), (64, 64)),
    )
    out = cb.tensor_map(ones(np.float32, 256, 256), (64, 32))
    code = compile_for("sm_90a", M.matmul, 384, a, b, out, 512, mode="unchecked")
    found = count(sass(code), "HGMMA", "UTMASTG", "USETMAXREG")
    assert found["HGMMA"] % 4 == 0 and found["UTMASTG"] >= 1 and found["USETMAXREG"] == 2
    assert usage(code.cubin).registers <= 168


def test_generated_code_names_operands_and_literals() -> None:
    x = ones(BF16, 64, 64)
    m = cb.tensor_map(x, (64, 64))
    text = compile_for(
        "sm_90a", M.product_of_a_group, 128, m, m, F32, dtype=cb.bf16, whole=cb.f32, bytes_deep=32
    ).text.text
    assert "barrier_init(shared_3, 1, 1)" in text
    assert (
        "wgmma(local, shared, shared_2, 0, 0, False, 64, 'bf16', 0, False, 128, 8, 512, False, 128, 8, 512, 0, 0)"
        in text
    )
    assert "wgmma_wait(local, 32, 0)" in text


@pytest.mark.parametrize(("kernel", "name"), [(M.matmul, "sync_cluster"), (M.volume, "sync_cube")])
def test_python_does_not_copy_a_barrier(kernel: Any, name: str) -> None:
    """CPython copies short ends of functions into branches; a barrier has one place for all units."""
    a, b = (
        cb.tensor_map(ones(BF16, 256, 512), (128, 64)),
        cb.tensor_map(ones(BF16, 256, 512), (64, 64)),
    )
    box = cb.tensor_map(ones(np.float32, 4, 8, 32), (2, 4, 32))
    out = cb.tensor_map(ones(np.float32, 256, 256), (64, 32), 0)
    args = (a, b, out, 512) if kernel is M.matmul else (box, box, 0, 0, 0)
    text = compile_for("sm_90a", kernel, 384, *args).text.text
    code = next(
        c
        for c in compile(text, "generated", "exec").co_consts
        if getattr(c, "co_name", "") == "kernel"
    )
    assert sum(i.argval == name for i in dis.get_instructions(code)) == text.count(f"{name}()")


def documented(name: str, folder: Path) -> Any:
    """A kernel that the documentation shows."""
    page = (Path(__file__).parents[3] / "docs/reference/matrix-units.md").read_text()
    text = next(
        b for b in re.findall(r"```python no-run\n(.*?)```", page, re.DOTALL) if f"def {name}(" in b
    )
    file = folder / f"shown_{name}.py"
    file.write_text("import cubepy as cb\n\n" + text.split("\n\n")[0])
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@needs_sass
def test_the_kernels_of_the_documentation_compile(tmp_path: Path) -> None:
    tiles = [cb.tensor_map(ones(BF16, 256, 512), (128, 64)) for _ in range(2)]
    box = cb.tensor_map(ones(np.float32, 64, 64), (16, 32))
    cases = {
        "tile": (32, ones(BF16, 16, 16), ones(BF16, 8, 16), ones(np.float32, 16, 8)),
        "double": (128, box, box, 16, 0),
        "matmul": (384, *tiles, ones(np.float32, 256, 256), 512),
        "both": (64, box, ones(np.float32, 4, 512)),
        "layer": (32, ones(np.float32, 128), ones(np.float32, 64, 128), ones(np.float32, 64)),
    }
    for name, (units, *args) in cases.items():
        code = compile_for("sm_90a", documented(name, tmp_path), units, *args)
        assert usage(code.cubin).stack == 0
