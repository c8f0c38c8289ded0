"""Wrong arguments of layers, files and schemes are refused where they are given, by name and value."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy import nn, quant
from cubepy.errors import (
    ArgumentError,
    DTypeError,
    KernelTypeError,
    LaunchError,
    QuantizationError,
    ShapeError,
)
from cubepy.lang import views
from cubepy.nn import functional as F

M = np.ones((4, 4), np.float32)
V = np.arange(8, dtype=np.float32)

CALLS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: nn.Linear(-1, 3), ShapeError, "in_features must be at least 0, not -1"),
    (lambda: nn.Linear(3, -1), ShapeError, "out_features must be at least 0, not -1"),
    (lambda: nn.Linear(3.5, 3), ArgumentError, "in_features must be an int, not 3.5"),
    (lambda: nn.Linear("3", 3), ArgumentError, "in_features must be an int, not '3'"),
    (lambda: nn.Linear(True, 3), ArgumentError, "in_features must be an int, not True"),
    (
        lambda: nn.Linear(M, 3),
        ArgumentError,
        "in_features must be an int, not an array of shape (4, 4)",
    ),
    (lambda: nn.Linear(3, 3, bias="no"), ArgumentError, "bias must be True or False, not 'no'"),
    (lambda: nn.Embedding(-1, 3), ShapeError, "num_embeddings must be at least 0, not -1"),
    (lambda: nn.Embedding(3, None), ArgumentError, "embedding_dim must be an int, not None"),
    (lambda: nn.LayerNorm((3, -1)), ShapeError, "normalized_shape must be at least 0, not -1"),
    (lambda: nn.LayerNorm(()), ShapeError, "normalized_shape must have at least one axis"),
    (lambda: nn.LayerNorm(3, eps="x"), ArgumentError, "eps must be a number, not 'x'"),
    (lambda: nn.LayerNorm(3, eps=-1), LaunchError, "eps must be at least 0, not -1"),
    (lambda: F.layer_norm(M, 4, eps=None), ArgumentError, "eps must be a number, not None"),
    (lambda: F.layer_norm(M, None), ArgumentError, "normalized_shape must be an int, not None"),
    (lambda: nn.RMSNorm("x"), ArgumentError, "normalized_shape must be an int, not 'x'"),
    (lambda: nn.BatchNorm1d(3, momentum=7), LaunchError, "momentum must be from 0 to 1, not 7"),
    (lambda: nn.BatchNorm2d(-3), ShapeError, "num_features must be at least 0, not -3"),
    (lambda: nn.GELU("nonsense"), ShapeError, 'approximate is "none" or "tanh", not \'nonsense\''),
    (lambda: nn.GELU(None), ShapeError, 'approximate is "none" or "tanh", not None'),
    (lambda: nn.Dropout("0.5"), ArgumentError, "dropout, must be a number, not '0.5'"),
    (lambda: nn.Dropout(float("nan")), LaunchError, "dropout, must be from 0 to 1, not nan"),
    (lambda: F.dropout(V, None), ArgumentError, "dropout, must be a number, not None"),
    (lambda: F.dropout(V, 0.5, "yes"), ArgumentError, "training must be True or False, not 'yes'"),
    (lambda: nn.MultiHeadAttention(0, 2), ShapeError, "embed_dim must be at least 1, not 0"),
    (lambda: nn.MultiHeadAttention(8, "2"), ArgumentError, "num_heads must be an int, not '2'"),
    (lambda: nn.MultiHeadAttention(8, 3), ShapeError, "3 heads do not divide 8"),
    (lambda: nn.Sequential([nn.ReLU()]), ArgumentError, "Sequential holds modules, not [ReLU()]"),
    (
        lambda: nn.Sequential(nn.ReLU()).append(None),
        ArgumentError,
        "Sequential holds modules, not None",
    ),
    (
        lambda: nn.ModuleList(nn.ReLU()),
        ArgumentError,
        "ModuleList takes a list of modules, not ReLU()",
    ),
    (
        lambda: nn.Parameter(M, requires_grad="x"),
        ArgumentError,
        "requires_grad must be True or False",
    ),
    (
        lambda: nn.ReLU().register_buffer("a.b", M),
        ArgumentError,
        "must be an identifier, not 'a.b'",
    ),
    (lambda: nn.ReLU().register_buffer(3, M), ArgumentError, "must be an identifier, not 3"),
    (lambda: nn.ReLU().register_forward_pre_hook(3), ArgumentError, "hook must be a function"),
    (
        lambda: nn.ReLU().get_submodule(3),
        ArgumentError,
        "the name of a module must be a string, not 3",
    ),
    (lambda: nn.ReLU().train("x"), ArgumentError, "mode must be True or False, not 'x'"),
    (
        lambda: nn.ReLU().load_state_dict(None),
        ArgumentError,
        "state must map names to tensors, not None",
    ),
    (
        lambda: nn.ReLU().load_state_dict({}, strict="x"),
        ArgumentError,
        "strict must be True or False, not 'x'",
    ),
    (lambda: nn.init.manual_seed("x"), ArgumentError, "seed must be an int, not 'x'"),
    (
        lambda: nn.save_safetensors([M], "x"),
        ArgumentError,
        "tensors must map names to tensors, not [array",
    ),
    (
        lambda: nn.save_safetensors({"w": M}, None),
        ArgumentError,
        "path must be a text or a pathlib.Path, not None",
    ),
    (
        lambda: nn.save_safetensors({"w": M}, "x", "text"),
        ArgumentError,
        "metadata must map texts to texts, not 'text'",
    ),
    (
        lambda: nn.load_safetensors(3.5),
        ArgumentError,
        "path must be a text or a pathlib.Path, not 3.5",
    ),
    (
        lambda: quant.save(nn.ReLU(), "x", metadata="text"),
        ArgumentError,
        "metadata must map texts to texts, not 'text'",
    ),
    (lambda: quant.save(3, "x"), ArgumentError, "model must be an nn.Module, not 3"),
    (lambda: quant.load(None, "x"), ArgumentError, "model must be an nn.Module, not None"),
    (lambda: quant.read(None), ArgumentError, "path must be a text or a pathlib.Path, not None"),
    (
        lambda: quant.quantize(nn.Linear(8, 8), calibrate=3),
        ArgumentError,
        "calibrate must be a list of inputs or one",
    ),
    (
        lambda: quant.quantize(nn.Linear(8, 8), calibrate="x"),
        ArgumentError,
        "or one array, not 'x'",
    ),
    (
        lambda: quant.quantize(nn.Linear(8, 8), skip=3),
        QuantizationError,
        "skip takes names, patterns or a function",
    ),
    (
        lambda: quant.quantize(nn.Linear(8, 8), inplace="x"),
        ArgumentError,
        "inplace must be True or False, not 'x'",
    ),
    (
        lambda: quant.parse_scheme("int4", symmetric="x"),
        ArgumentError,
        "symmetric must be True or False, not 'x'",
    ),
    (lambda: quant.Scheme("int5", 5, 32, True), QuantizationError, "not 'int5' with 5"),
    (
        lambda: quant.Scheme("int4", 4, 0, True),
        QuantizationError,
        "a group is a positive multiple of 8: group=0",
    ),
    (
        lambda: quant.Scheme("int4", 4, None, True),
        QuantizationError,
        "a group is a positive multiple of 8",
    ),
    (
        lambda: quant.Scheme("int8", 8, None, True, "int3"),
        QuantizationError,
        "activations are 'int8' or 'float'",
    ),
    (
        lambda: cb.tensor(M).flatten(9),
        ShapeError,
        "flatten: axis 9 is out of range for a tensor of rank 2",
    ),
    (lambda: cb.tensor(M).flatten(1, 0), ShapeError, "flatten: axis 1 comes after axis 0"),
    (
        lambda: cb.tensor(M).squeeze(9),
        ShapeError,
        "squeeze: axis 9 is out of range for a tensor of rank 2",
    ),
    (
        lambda: cb.tensor(M).transpose("x", 0),
        ArgumentError,
        "transpose: an axis is an integer, not 'x'",
    ),
    (lambda: cb.tensor(M).reshape("x"), ArgumentError, "lengths and axes are integers, not 'x'"),
    (
        lambda: cb.tensor(M)["x"],
        ArgumentError,
        "a tensor is indexed by integers, slices, arrays, None and ..., not by 'x'",
    ),
    (lambda: cb.tensor.concat(3), ArgumentError, "concat takes a list of tensors, not int"),
    (lambda: cb.kernel(fast_math=3), KernelTypeError, "fast_math takes names of liberties, not 3"),
    (
        lambda: cb.tensor_map(M, 4),
        ArgumentError,
        "box must be a tuple with a side for each axis, not 4",
    ),
    (lambda: K.gelu(np.arange(4)), DTypeError, "x must hold floats, not int64"),
    (
        lambda: views.permuted(M, (0, 0)),
        ShapeError,
        "must name each of the 2 axes of the array once, not (0, 0)",
    ),
    (
        lambda: views.broadcast(V, (3,)),
        ShapeError,
        "an array of shape (8,) does not stretch to (3,)",
    ),
    (
        lambda: views.dequantized(M, M, M[:, :1], group=1),
        ShapeError,
        "zeros of shape (4, 1) are not one for every 1",
    ),
]


@pytest.mark.parametrize(
    ("call", "error", "message"), CALLS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_wrong_argument_is_named_with_its_value(
    call: Callable[[], Any],
    error: type[Exception],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=re.escape(message)):
        call()
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_a_file_is_not_written_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder to write in.*missing"):
        nn.save_safetensors({"w": M}, tmp_path / "missing" / "model.safetensors")
    with pytest.raises(IsADirectoryError, match="this is a folder"):
        nn.save_safetensors({"w": M}, tmp_path)
    assert not list(tmp_path.iterdir())


def test_sizes_of_numpy_are_sizes() -> None:
    layer = nn.Linear(np.int64(4), np.int32(2), bias=np.True_)
    assert (layer.in_features, layer.weight.shape, layer.bias.shape) == (4, (2, 4), (2,))
    assert nn.LayerNorm([4, np.int64(4)]).normalized_shape == (4, 4)
    assert nn.Dropout(np.float32(0.5)).p == 0.5
