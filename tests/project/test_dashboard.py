"""The page of the asv suite: what it reads of asv's files, which ratios it shows, that it needs
nothing else.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "asv_benchmarks"
NAME = "bench_kernels.Softmax.time_softmax"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that writes the page."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, "page", raising=False)
    return importlib.import_module("page")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two commits of one benchmark, as asv writes them; the older one lacks a library."""
    machine = tmp_path / "results" / "zen"
    machine.mkdir(parents=True)
    (machine / "machine.json").write_text(json.dumps({"machine": "zen", "version": 1}))
    names = {NAME: {"param_names": ["library", "shape"], "unit": "seconds"}, "version": 2}
    (tmp_path / "results" / "benchmarks.json").write_text(json.dumps(names))
    params = [["'cubepy'", "'numpy'", "'torch'"], ["'8x8'", "'64x64'"]]
    for commit, date, times in (
        ("aaaa", 1000, [2e-3, 4e-3, 3e-3, 2e-3, None, None]),
        ("bbbb", 2000, [1e-3, 4e-3, 3e-3, 2e-3, 5e-3, float("nan")]),
    ):
        stored = {
            "commit_hash": commit,
            "date": date,
            "version": 2,
            "result_columns": ["result", "params"],
        }
        stored["results"] = {NAME: [times, params]}
        (machine / f"{commit}.json").write_text(json.dumps(stored))
    return tmp_path / "results"


def test_ratios_are_of_the_youngest_commit_and_the_best_peer_comes_first(
    page: Any, results: Path
) -> None:
    small, large = sorted(page.load([results]), key=lambda row: len(row.case))

    assert small.case == "8x8" and large.case == "64x64"
    assert small.latest("cubepy") == 1e-3
    assert list(small.ratios().items()) == [
        ("numpy", pytest.approx(3.0)),
        ("torch", pytest.approx(5.0)),
    ]
    assert list(large.ratios()) == ["numpy"]  # torch has no number for that shape
    assert [c for c, _ in small.history("cubepy")] == ["aaaa", "bbbb"]


def test_the_page_is_one_file_that_loads_nothing(page: Any, results: Path, tmp_path: Path) -> None:
    target = page.write(page.load([results]), tmp_path / "html" / "index.html")
    text = target.read_text()

    assert "3.00x" in text and "<polyline" in text and "1 ms" in text
    assert not any(
        word in text for word in ("http:", "https:", "src=", "<link", "<script", "@import", "url(")
    )
    assert list(target.parent.iterdir()) == [target]


def test_a_page_without_results_says_how_to_get_them(page: Any, tmp_path: Path) -> None:
    assert "make asv" in page.write(page.load([tmp_path]), tmp_path / "index.html").read_text()


def test_results_of_another_version_are_refused(page: Any, results: Path) -> None:
    file = results / "zen" / "aaaa.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 3}))

    with pytest.raises(ValueError, match="version 3"):
        page.load([results])


def test_every_benchmark_of_a_gpu_says_why_it_is_skipped_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setitem(sys.modules, "torch", None)
    bench = importlib.import_module("benchmarks.bench_gpu")
    suites = bench.GpuSuite.__subclasses__()

    assert len(suites) == len(bench.PARTS)
    for suite in suites:
        libraries, cases, devices = suite.params
        assert set(libraries) == {"cubepy", "peer"} and len(set(cases)) == len(cases) > 0
        with pytest.raises(NotImplementedError, match="torch is not installed"):
            suite().setup(libraries[0], cases[0], devices[0])


def test_the_time_of_a_case_is_the_mean_of_its_rows_by_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    suite = importlib.import_module("benchmarks.bench_gpu").GpuMatmul()
    rows = [{"work": "a", "ms": (1.0, 2.0)}, {"work": "b", "ms": (4.0, 8.0)}]
    suite.cases = {
        "both": lambda device: rows,
        "none": lambda device: [{"ours": "failed: no room"}],
    }

    assert suite.track_matmul("cubepy", "both", "cuda:0") == pytest.approx(2.0)
    assert suite.track_matmul("peer", "both", "cuda:0") == pytest.approx(4.0)
    with pytest.raises(RuntimeError, match="no room"):
        suite.track_matmul("peer", "none", "cuda:0")


def test_results_name_no_place_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, results: Path
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    dashboard = importlib.import_module("dashboard")
    old = json.loads((results / "zen" / "aaaa.json").read_text())
    for hidden, names in (("home_me_bin", ["one", "two"]), ("home_you_bin", ["two", "three"])):
        stored = old | {
            "commit_hash": "c" * 40,
            "env_name": hidden,
            "python": "/home",
            "params": {"python": "/home"},
        }
        stored["results"] = dict.fromkeys(names, hidden)
        (results / "zen" / f"cccccccc-existing-py_{hidden}.json").write_text(json.dumps(stored))
        dashboard.without_paths(results)

    (kept,) = (results / "zen").glob("cccccccc-*.json")
    found = json.loads(kept.read_text())
    assert found["results"] == {
        "one": "home_me_bin",
        "two": "home_you_bin",
        "three": "home_you_bin",
    }
    assert (
        "home" not in kept.name
        and "/" not in found["python"] + found["params"]["python"] + found["env_name"]
    )
