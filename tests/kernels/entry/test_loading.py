"""The library is loaded by families, as they are used."""

from __future__ import annotations

import json
import subprocess
import sys
from inspect import unwrap
from types import FunctionType, ModuleType

import pytest

import cubepy.kernels as K

USED = """
import json, sys
import cubepy.kernels as K
import cubepy.nn
def families():
    return sorted({n.split(".")[2] for n in sys.modules if n.startswith("cubepy.kernels.")})
before = families()
import cubepy.kernels.sort.problem
print(json.dumps([before, type(K.sort).__name__, families(), "numpy.ma" in sys.modules]))
"""


def test_families_are_loaded_when_they_are_used() -> None:
    made = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, check=True)
    before, kind, after, masked = json.loads(made.stdout)
    assert not {"sort", "matmul", "attention", "convolution", "pooling"} & set(before)
    assert kind == "function"  # the folder of the same name was imported first
    assert "sort" in after and "pooling" not in after
    assert not masked


NAMED = """
from cubepy import tune
before = len(tune.OPS)
print(tune.op_named("matmul").name, len(tune.OPS) > before + 10)
"""


def test_operations_are_declared_when_they_are_asked_for() -> None:
    made = subprocess.run([sys.executable, "-c", NAMED], capture_output=True, text=True, check=True)
    assert made.stdout.split() == ["matmul", "True"]


def test_every_name_is_there() -> None:
    for name in K.__all__:
        found = getattr(K, name)
        assert getattr(found, "__name__", "").rpartition(".")[2] == name
        if isinstance(found, FunctionType):
            wrapped = [found]  # staged for a GPU, by one more
            unwrap(found, stop=lambda one, seen=wrapped: seen.append(one.__wrapped__))
            assert found.explain.args[0] in wrapped
    assert set(K.__all__) <= set(dir(K))
    assert {n for n in K.__all__ if isinstance(getattr(K, n), ModuleType)} == {"functions", "views"}


def test_unknown_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="'cubepy.kernels' has no attribute 'matmull'"):
        K.matmull
