"""Quantized models in safetensors files.

A packed weight "x.weight" is stored as the tensors "x.weight.codes", "x.weight.scales" and so on,
just as they lie in memory; the metadata entry "cubepy.quant" says what they are. Loading maps them:
nothing is unpacked, converted or copied.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
from typing import Any

import numpy as np

from cubepy import nn
from cubepy.errors import ArgumentError, FileFormatError, QuantizationError
from cubepy.kernels.entry.options import shown
from cubepy.lang.dtypes import dtype_named
from cubepy.nn import arguments
from cubepy.nn.safetensors import texts_of
from cubepy.quant import measure
from cubepy.quant.orientation import Orientations
from cubepy.quant.report import LayerReport, QuantizationReport
from cubepy.quant.schemes.scheme import Scheme, parse_scheme
from cubepy.quant.selection import Skip, Skips, warn_of
from cubepy.quant.storage import Quantized
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.tensor import Tensor

KEY = "cubepy.quant"
VERSION = 1
Path = str | os.PathLike[str]


def save(model: nn.Module, path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a model's state, packed weights as they are; the file appears whole or not at all.

    Args:
        model: quantized or not.
        path: of the safetensors file.
        metadata: texts to store with it.

    Raises:
        ArgumentError: `model` is no module, `metadata` no mapping, or `path` no path.
        FileFormatError: `metadata` holds something else than texts.
        QuantizationError: weights in blocks of a GGUF file.

    Example:
        >>> import tempfile
        >>> from cubepy import quant
        >>> path = tempfile.mkdtemp() + "/model.safetensors"
        >>> save(quant.quantize(nn.Linear(32, 8), "int4", measure_speed=False).model, path)
        >>> load(nn.Linear(32, 8), path).weight.storage.kind
        'quantized'
    """
    tensors: dict[str, Any] = {}
    packed: dict[str, Any] = {}
    others = texts_of(metadata)
    for name, tensor in _module(model).state_dict().items():
        if isinstance(tensor.storage, Quantized):
            tensors.update(_parts(name, tensor.storage.weight))
            packed[name] = {**tensor.storage.weight.metadata(), "dtype": tensor.dtype.name}
        elif tensor.storage.kind != "dense":
            raise QuantizationError(
                f"the weight {name!r} lies in {tensor.storage.kind} of its file, which are not "
                "written",
                hint="keep the file that the model came from: cb.load reads it without unpacking",
            )
        else:
            tensors[name] = tensor
    nn.save_safetensors(tensors, path, _described(packed, others))


def _module(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        result = isinstance(getattr(model, "report", None), QuantizationReport)
        raise ArgumentError(
            f"model must be an nn.Module, not {type(model).__name__ if result else shown(model)}",
            hint="its model is result.model"
            if result
            else "nn.save_safetensors writes tensors by name",
        )
    return model


def load(model: nn.Module, path: Path, *, strict: bool = True) -> nn.Module:
    """Give a model the state of a file that `save` or `quantize_file` wrote; returns the model.

    Args:
        model: of the same architecture, with float or packed weights; they are replaced.
        path: of the file. Packed weights are mapped from it, never made float.
        strict: whether the file must hold every tensor of the model, and no other.

    Raises:
        FileFormatError: a damaged file, or tensors that are missing, left over or of another shape.
            The model is unchanged then.
        ArgumentError: `model` is no module.

    Example:
        >>> import tempfile
        >>> from cubepy import quant
        >>> path = tempfile.mkdtemp() + "/model.safetensors"
        >>> save(quant.quantize(nn.Linear(32, 8), measure_speed=False).model, path)
        >>> load(nn.Linear(32, 8), path)
        Linear(in_features=32, out_features=8, bias=True, storage=quantized)
    """
    _module(model).load_state_dict(read(path), strict=strict)
    return model


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name, packed weights as tensors with quantized storage.

    Raises:
        FileFormatError: a damaged file.

    Example:
        >>> import tempfile
        >>> from cubepy import quant
        >>> path = tempfile.mkdtemp() + "/model.safetensors"
        >>> save(quant.quantize(nn.Linear(32, 8), measure_speed=False).model, path)
        >>> {name: tensor.storage.kind for name, tensor in read(path).items()}
        {'bias': 'dense', 'weight': 'quantized'}
    """
    tensors = dict(nn.load_safetensors(path))
    for name, facts in _packed(path).items():
        prefix = f"{name}."
        parts = {
            part: tensors.pop(prefix + part).numpy() for part in _PARTS if prefix + part in tensors
        }
        if name in tensors:
            raise FileFormatError(
                f"{os.fspath(path)}: tensor {name!r} is stored both packed and in float"
            )
        try:
            dtype = dtype_named(facts.get("dtype", "f32"))
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(
                f"{os.fspath(path)}: quantized tensor {name!r}: {error}"
            ) from error
        tensors[name] = Tensor(Quantized(QuantizedWeight.from_arrays(parts, facts, name), dtype))
    return tensors


def quantize_file(
    source: Path,
    target: Path,
    scheme: str | Scheme = "int8",
    *,
    group: int | None = None,
    symmetric: bool | None = None,
    skip: Skip = (),
) -> QuantizationReport:
    """Quantize the linear weights of a safetensors file into another one, which appears whole or
    not at all.

    Every float matrix named "weight" (after the last dot) is taken for a linear layer's (outputs,
    inputs), unless its name speaks of an embedding. It stays as it is, and a `QuantizationWarning`
    and the report name it, if its inputs are no multiple of the group or if it may lie the other
    way round, as those of GPT-2's `Conv1D` do: its bias is as long as its second axis; or it has
    none or is square, and its name or the other matrices of the file speak for it. Everything else
    is written as it is. The source is mapped and read tensor by tensor.

    Args:
        source, target: paths; they may be the same.
        scheme, group, symmetric: as for `quantize`.
        skip: names or patterns of tensors, or a function of (name, tensor).

    Returns:
        A report without times and output errors.

    Raises:
        FileFormatError: a damaged source.
        QuantizationError: an unknown scheme, nothing to quantize, or a source that is quantized
            already.

    Example:
        >>> import numpy as np, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> nn.save_safetensors({"head.weight": np.eye(32, dtype=np.float32)},
        ...     folder + "/float.safetensors")
        >>> report = quantize_file(folder + "/float.safetensors", folder + "/packed.safetensors",
        ...     "int4")
        >>> report.quantized[0].name
        'head.weight'
    """
    chosen = parse_scheme(scheme, group=group, symmetric=symmetric)
    skips = Skips(skip)
    if os.path.isdir(arguments.path("source", source)):
        found = sorted(p.name for p in pathlib.Path(source).glob("*.safetensors"))
        raise QuantizationError(
            f"{os.fspath(source)} is a folder; one safetensors file is quantized",
            hint=f"give one of its files: {', '.join(found[:4]) or 'it has none'}; or quantize "
            "cb.load(folder) as a model",
        )
    if _packed(source):
        raise QuantizationError(
            f"{os.fspath(source)} is quantized already",
            hint="quantize the float file that it was made from",
        )
    tensors: dict[str, Any] = {}
    packed: dict[str, Any] = {}
    layers = []
    unasked = []
    everything = nn.load_safetensors(source)
    orientations = Orientations({name: tensor.shape for name, tensor in everything.items()})
    for name, tensor in everything.items():
        reason = _reason(name, tensor, skips)
        doubt = orientations.doubt(name) or chosen.misfit(tensor.shape[1]) if reason == "" else ""
        if reason is None:
            tensors[name] = tensor
        elif reason or doubt:
            reason = reason or doubt
            unasked += [(name, doubt)] if doubt else []
            tensors[name] = tensor
            layers.append(
                LayerReport(name, tensor.shape, None, reason, tensor.nbytes, tensor.nbytes)
            )
        else:
            weight = tensor.numpy().astype(np.float32, copy=False)
            quantized = QuantizedWeight.from_float(weight, chosen, name=name)
            tensors.update(_parts(name, quantized))
            packed[name] = {**quantized.metadata(), "dtype": tensor.dtype.name}
            error = measure.weight_error(weight, quantized)
            layers.append(
                LayerReport(
                    name, tensor.shape, chosen.name, "", tensor.nbytes, quantized.nbytes, error
                )
            )
    if not packed:
        named = ", ".join(f"{layer.name!r} ({layer.reason})" for layer in layers[:4])
        raise QuantizationError(
            f"{os.fspath(source)} has nothing to quantize: "
            f"{named or 'it holds no float matrix named *.weight'}",
            hint="check skip= and group=",
        )
    nn.save_safetensors(tensors, target, _described(packed, nn.safetensors_metadata(source)))
    return QuantizationReport(chosen.describe(), layers, notes=skips.notes() + warn_of(unasked))


# What tables of embeddings are called, where the word is not written out.
_TABLES = ("emb", "wte", "wpe", "shared", "words")
_TABLE_NAMES = ("relative_attention_bias",)
_PARTS = ("codes", "scales", "minimums", "sums", "input_scale")


def _parts(name: str, weight: QuantizedWeight) -> dict[str, np.ndarray]:
    return {f"{name}.{part}": array for part, array in weight.arrays().items()}


def _described(packed: dict[str, Any], others: dict[str, str]) -> dict[str, str]:
    kept = {key: text for key, text in others.items() if key != KEY}
    if packed:
        kept[KEY] = json.dumps({"version": VERSION, "tensors": packed}, sort_keys=True)
    return kept


def _packed(path: Path) -> dict[str, dict[str, Any]]:
    """What a file says of its packed weights, by name."""
    text = nn.safetensors_metadata(path).get(KEY)
    if text is None:
        return {}
    try:
        described = json.loads(text)
        version, tensors = described["version"], described["tensors"]
        sound = all(isinstance(facts, dict) for facts in tensors.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{os.fspath(path)}: the metadata entry {KEY!r} is damaged: {error}"
        ) from error
    if version != VERSION or not sound:
        raise FileFormatError(
            f"{os.fspath(path)}: the metadata entry {KEY!r} has the version {version!r}; "
            f"this cubepy reads {VERSION}",
            hint="quantize the float model again with this version",
        )
    return tensors  # type: ignore[no-any-return]


def _reason(name: str, tensor: Tensor, skips: Skips) -> str | None:
    """Why a tensor stays as it is; empty: it is to be quantized; None: it is no matrix of a layer
    at all.
    """
    last = name.rpartition(".")[2]
    if last not in ("weight", "in_proj_weight") or tensor.ndim != 2 or not tensor.dtype.is_float:
        return None
    if tensor.dtype.itemsize < 2:
        return f"its dtype is {tensor.dtype.name}"
    module = name.rpartition(".")[0]
    asked = skips.reason((name, module), tensor)
    if asked:
        return asked
    last = module.rpartition(".")[2].lower()
    if last in _TABLE_NAMES or any(
        "embed" in part or part in _TABLES for part in re.split(r"[._]", name.lower())
    ):
        return "an embedding is looked up, not multiplied"
    if 0 in tensor.shape:
        return "it has no elements"
    return ""
