"""The table of ratios: which library runs how often, what a row says, what is left out."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "asv_benchmarks"
LIMITS = (50e9, 40e9, 500e9)


@pytest.fixture
def ratios(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, with its folder on the path for as long as the test takes."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setitem(sys.modules, "openvino_telemetry", sys.modules.get("openvino_telemetry"))
    return importlib.import_module("ratios")


def test_importing_the_benchmarks_changes_nothing_of_the_process() -> None:
    script = """
import ctypes, os

class Watched(ctypes.CDLL):
    def __getattr__(self, name):
        assert name != "mallopt"
        return super().__getattr__(name)

ctypes.CDLL, before = Watched, dict(os.environ)
import ratios, benchmarks.bench_kernels
assert dict(os.environ) == before, set(os.environ) ^ set(before)
"""
    paths = os.pathsep.join([str(FOLDER), *sys.path])
    subprocess.run(
        [sys.executable, "-c", script], check=True, env=os.environ | {"PYTHONPATH": paths}
    )


def test_every_library_has_its_way_for_some_work_and_ours_for_all(ratios: Any) -> None:
    have = {
        name: [op for op, work in ratios.WORKS.items() if work.make(name)]
        for name in ratios.LIBRARIES
    }

    assert len(have["cubepy"]) == len(ratios.WORKS)
    assert all(have.values())
    assert have["onnxruntime"] == have["openvino"]


def test_a_library_that_cannot_be_imported_is_left_out(
    ratios: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import peers

    for name in ("torch", "jax", "onnx", "onnxruntime", "openvino"):
        monkeypatch.setitem(sys.modules, name, None)
    peers.jax_module.cache_clear()

    for library in ("torch", "torch.compile", "jax", "onnxruntime", "openvino"):
        with pytest.raises(NotImplementedError):
            ratios.case("softmax", library, "4x8")


def test_torch_is_not_compiled_without_a_compiler(
    ratios: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks import peers

    monkeypatch.setattr(peers, "torch_module", lambda: None)
    monkeypatch.setattr(peers.shutil, "which", lambda name: None)

    with pytest.raises(NotImplementedError, match="compiler"):
        peers.compiled(lambda x: lambda: x)(np.ones(3))
    assert "no C++ compiler" in ratios.described(2, LIMITS)


def test_a_library_three_times_slower_than_the_fastest_runs_no_rounds(
    ratios: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes, calls = (
        {"cubepy": 7.0, "numpy": 5.0, "torch": 16.0, "jax": 14.0},
        dict.fromkeys(ratios.LIBRARIES, 0),
    )

    def case(op: str, library: str, shape: str) -> Any:
        if library not in takes:
            raise NotImplementedError

        def run() -> str:
            calls[library] += 1
            return library

        return run

    monkeypatch.setattr(ratios, "case", case)
    monkeypatch.setattr(ratios, "seconds", lambda run: takes[run()])
    monkeypatch.setattr(ratios, "error", lambda op, shape: None)

    row = ratios.measure("softmax", "4x8", rounds=3)

    assert calls["torch"] == 1 and calls["jax"] == calls["numpy"] == calls["cubepy"] == 4
    assert row["seconds"] == 7.0 and row["peers"] == {"numpy": 5.0, "torch": 16.0, "jax": 14.0}
    assert row["about"] == ["torch"]
    assert "numpy 0.71x, jax 2.00x, torch about 2.29x" in ratios.line(row, LIMITS)


def test_without_pauses_libraries_are_called_one_right_after_the_other(
    ratios: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def case(op: str, library: str, shape: str) -> Any:
        if library not in ("cubepy", "numpy"):
            raise NotImplementedError
        return lambda: calls.append(library)

    monkeypatch.setattr(ratios, "case", case)
    monkeypatch.setattr(ratios, "seconds", lambda run: run() or 1.0)
    monkeypatch.setattr(ratios, "error", lambda op, shape: None)
    monkeypatch.setattr(ratios.time, "sleep", lambda duration: pytest.fail("a pause"))

    ratios.measure("softmax", "4x8", rounds=3, pauses=False)

    assert calls[2:] == ["cubepy", "numpy"] * (3 * ratios.TURNS)
    assert "no pauses" in ratios.described(2, LIMITS, pauses=False)


def test_rows_with_out_and_odd_inputs_lie_where_they_say(ratios: Any) -> None:
    data = {
        op: work.data(64, 64) for op, work in ratios.WORKS.items() if op.endswith(("_out", "_odd"))
    }

    assert {"softmax_out", "layer_norm_out", "copy_out", "softmax_odd", "add_odd"} <= set(data)
    for op, arrays in data.items():
        places = {x.ctypes.data % 64 for x in arrays}
        assert places == {16} if op.endswith("_out") else places <= {4, 36}


def test_a_row_names_its_share_of_the_limit_it_meets(ratios: Any) -> None:
    row = {"seconds": 1e-3, "peers": {}, "about": [], "error": None}

    assert "46 GB/s, 92 % of reading" in ratios.line(
        row | {"op": "sum_rows", "shape": "11500x1000"}, LIMITS
    )
    assert "20 GB/s, 50 % of copying" in ratios.line(
        row | {"op": "softmax", "shape": "2500x1000"}, LIMITS
    )
    assert "250 GFLOP/s, 50 % of the peak" in ratios.line(
        row | {"op": "matmul", "shape": "500x500x500"}, LIMITS
    )
    assert "250 GFLOP/s |" in ratios.line(
        row | {"op": "matmul_bf16", "shape": "500x500x500"}, LIMITS
    )


def test_a_graph_keeps_later_arrays_as_constants_or_feeds_them(ratios: Any) -> None:
    onnx = pytest.importorskip("onnx")
    from benchmarks.peers import node

    a, b = np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    constant, fed = node("MatMul")(a, b), node("MatMul", constant=False)(a, b)

    assert list(constant.feed) == ["x0"] and list(fed.feed) == ["x0", "x1"]
    assert [len(onnx.load_from_string(g.model).graph.initializer) for g in (constant, fed)] == [
        1,
        0,
    ]
