"""Names of PyTorch that are looked for in cubepy: the error says where they are."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import cubepy as cb
from cubepy.elsewhere import DTYPES, OF_TENSORS, OTHERWISE, hint


@pytest.mark.parametrize("name", [*DTYPES, *OTHERWISE])
def test_what_is_said_is_there(name: str) -> None:
    """Every dotted name of the text, up to where it is called."""
    said = hint(name)
    found = re.findall(r"\bcb((?:\.\w+)+)(\((?:seed)?\)((?:\.\w+)+))?", said)
    assert found or said.startswith(("x.", "a tuple", "model.", "numpy."))
    for dotted, _, of_generator in found:
        value = cb
        for part in dotted[1:].split("."):
            value = getattr(value, part)
        if of_generator:
            assert hasattr(cb.Generator, of_generator[1:])


@pytest.mark.parametrize(
    ("name", "where"),
    {
        "zeros": "cb.tensor.zeros",
        "randn": "cb.Generator(seed).normal",
        "float32": "cb.f32",
        "cat": "cb.tensor.concat",
        "Linear": "cb.nn.Linear",
        "cross_entropy": "cb.nn.functional.cross_entropy",
        "topk": "x.topk",
        "qr": "cb.tensor.linalg.qr",
    }.items(),
)
def test_a_name_of_torch_is_answered_with_ours(name: str, where: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}': see {re.escape(where)}"):
        getattr(cb, name)


@pytest.mark.parametrize(
    ("name", "where"),
    {
        "conv2d": "cb.nn.functional.conv2d",
        "eigh": "cb.tensor.linalg.eigh",
        "tensordot": "cb.tensor.tensordot",
        "t_": "the method without _",
        "random_": "cb.Generator(seed).integers",
    }.items(),
)
def test_a_method_that_tensors_do_not_have_is_answered(name: str, where: str) -> None:
    x = cb.tensor([1.0])
    with pytest.raises(AttributeError, match=f"no attribute '{name}': see {re.escape(where)}"):
        getattr(x, name)
    assert not hasattr(x, name) and not hasattr(x, "__frobnicate__")


def test_nothing_that_is_said_of_tensors_is_there() -> None:
    assert not [name for name in OF_TENSORS if hasattr(cb.tensor([1.0]), name)]


def test_a_name_that_nobody_has_is_answered_plainly() -> None:
    for module in (cb, cb.tensor):
        with pytest.raises(AttributeError, match="has no attribute 'frobnicate'$"):
            module.frobnicate
    assert not hasattr(cb, "__wrapped__")
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'$"):
        cb.tensor([1.0]).frobnicate


def test_names_of_tools_load_nothing() -> None:
    code = "import cubepy, sys; hasattr(cubepy, '__hook__'); print('cubepy.tensor' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
