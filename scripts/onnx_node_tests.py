"""Runs the backend tests of the onnx package, and says how many pass.

    python scripts/onnx_node_tests.py [--kind node simple ...] [--only part]
                                      [--programs] [--failures FILE]

Relative tolerance is that of the case or 1e-3 if larger, absolute 1e-5; dtypes and shapes count.
`--programs` calls each model three times, so that the last one runs as programs.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
import warnings
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test import loader

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


def plain(value: Any) -> Any:
    """A value of a data set as NumPy has it."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value if value is None else np.asarray(value)


def from_files(case: Any) -> tuple[bytes, list[Any]]:
    """The model and the data sets of a case in a folder."""
    folder = Path(case.model_dir)
    sets = []
    for one in sorted(folder.glob("test_data_set_*")):
        parts = []
        for kind in ("input", "output"):
            files = sorted(one.glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[1]))
            found = []
            for path in files:
                tensor = onnx.TensorProto()
                tensor.ParseFromString(path.read_bytes())
                found.append(numpy_helper.to_array(tensor))
            parts.append(found)
        sets.append((parts[0], parts[1]))
    return str(folder / "model.onnx"), sets  # type: ignore[return-value]


def array(value: Any) -> Any:
    """A result as NumPy has it."""
    if isinstance(value, list):
        return [array(v) for v in value]
    return value.numpy() if hasattr(value, "numpy") else value


def check(ours: Any, theirs: Any, rtol: float, atol: float, name: str) -> None:
    """Raise unless two values are equal within tolerances."""
    if isinstance(theirs, list):
        assert isinstance(ours, list) and len(ours) == len(theirs), f"{name}: another length"
        for a, b in zip(ours, theirs, strict=True):
            check(a, b, rtol, atol, name)
        return
    if theirs is None:
        assert ours is None, f"{name}: expected nothing"
        return
    theirs = np.asarray(theirs)
    ours = np.asarray(ours)
    assert ours.shape == theirs.shape, f"{name}: shape {ours.shape}, expected {theirs.shape}"
    if theirs.dtype.kind in "OUST":
        assert ours.astype(str).tolist() == theirs.astype(str).tolist(), f"{name}: other texts"
        return
    assert ours.dtype == theirs.dtype, f"{name}: dtype {ours.dtype}, expected {theirs.dtype}"
    if theirs.dtype.kind not in "fiubc":
        ours, theirs = ours.astype(np.float64), theirs.astype(np.float64)
    np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=name)


def run(case: Any, programs: bool) -> None:
    """Run one case; raises what goes wrong."""
    from cubepy.models.onnx import load

    if case.model is None:
        source, sets = from_files(case)
        model = load(source)
    else:
        model = load(case.model.SerializeToString())
        sets = [([plain(v) for v in i], [plain(v) for v in o]) for i, o in case.data_sets]
    rtol, atol = max(case.rtol, 1e-3), max(case.atol, 1e-5)
    for inputs, outputs in sets:
        for _ in range(3 if programs else 1):
            found = model(*inputs)
        if (
            any(n in case.name for n in ("bernoulli", "random", "multinomial"))
            and "seed" not in case.name
        ):
            for ours, theirs in zip(found.values(), outputs, strict=False):
                assert tuple(ours.shape) == np.asarray(theirs).shape
            continue
        for (name, ours), theirs in zip(found.items(), outputs, strict=False):
            check(array(ours), theirs, rtol, atol, name)


def outcome(job: tuple[str, int, bool]) -> tuple[str, str]:
    """(name, why it failed) of a case."""
    kind, k, programs = job
    case = cases(kind)[k]
    start = time.time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(case, programs)
        why = ""
    except Exception as error:
        why = f"{type(error).__name__}: {str(error)[:400]}".replace("\n", " | ")
    if time.time() - start > 60:
        print(f"slow: {case.name} {time.time() - start:.0f} s", file=sys.stderr)
    return case.name, why


_cases: dict[str, Any] = {}


def cases(kind: str) -> Any:
    """The cases of a kind, in a fixed order."""
    if kind not in _cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _cases[kind] = sorted(loader.load_model_tests(kind=kind), key=lambda c: c.name)
    return _cases[kind]


def main() -> None:
    """Run all cases that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", nargs="*", default=KINDS)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--programs", action="store_true")
    parser.add_argument("--failures", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    jobs = [
        (kind, k, options.programs)
        for kind in options.kind
        for k, case in enumerate(cases(kind))
        if not options.only or any(part in case.name for part in options.only)
    ]
    passed, failed = 0, []
    os.environ.setdefault("NUMBA_NUM_THREADS", "2")
    with Pool(options.jobs, maxtasksperchild=200) as pool:
        for name, why in pool.imap_unordered(outcome, jobs, chunksize=4):
            if why:
                failed.append((name, why))
                print(f"{name}: {why[:300]}", flush=True)
            else:
                passed += 1
    kinds = collections.Counter(why.split(":")[0] for _, why in failed)
    print(f"{passed} of {len(jobs)} pass; failures: {dict(kinds)}")
    if options.failures:
        options.failures.write_text("".join(f"{n}\t{w}\n" for n, w in sorted(failed)))


if __name__ == "__main__":
    main()
