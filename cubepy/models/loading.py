"""`cb.load`: a model of a file or folder, by what is in it."""

from __future__ import annotations

import importlib
import os
from typing import Any

from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.formats.pickled import read_pickled
from cubepy.models.formats.shards import read_index, read_safetensors
from cubepy.models.formats.stored import Stored
from cubepy.models.source import format_of
from cubepy.nn import safetensors_metadata
from cubepy.runtime.device import as_device, current, use
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.storage import HOST


def load(
    source: str | os.PathLike[str], device: Any = None, *, activations: str | None = None
) -> Any:
    """A trained model, ready to be called; the weights stay in the mapped file until they are
    needed otherwise.

    Args:
        source: an ONNX or GGUF file, a file of `torch.export.save` (which torch reads), or a folder
            with `config.json`: a module. A safetensors or PyTorch file of weights alone, or an
            index of shards: its tensors by name, which `Module.load_state_dict` takes.
        device: where it runs; the current device by default.
        activations: of GGUF files, what meets their blocks where it is few rows: "int8" (by
            default), bytes with a scale for 32 of them, or "float".

    Raises:
        ArgumentError: activations of another kind, or for another format.
        FileFormatError: a file that is damaged, of no known format, lacks weights, or has packed
            ones (`cubepy.quant.load` reads what `cubepy.quant.save` wrote).
        FileNotFoundError: there is none.

    Example:
        >>> import numpy as np, tempfile
        >>> from cubepy import nn
        >>> path = tempfile.mkdtemp() + "/w.safetensors"
        >>> nn.save_safetensors({"w": np.zeros(2, np.float32)}, path)
        >>> load(path)
        {'w': tensor([0., 0.])}
    """
    where = current() if device is None else as_device(device)
    with use(HOST):  # where files are
        found = _read(source, activations)
    if where == HOST:
        return found
    if isinstance(found, dict):
        return {name: t.to(where) for name, t in found.items()}
    return found.to(where)


def _read(source: str | os.PathLike[str], activations: str | None) -> Any:
    """The model, or its tensors, on the host: views of the file where nothing else is needed. What
    reads a kind of file is loaded when there is one.
    """
    kind = format_of(source)
    if kind == "gguf":
        gguf = importlib.import_module("cubepy.models.gguf_model")
        return gguf.load_gguf(source, "int8" if activations is None else activations)
    if activations is not None:
        raise ArgumentError(
            f"activations={activations!r} is for GGUF files, and {os.fspath(source)} is none",
            hint='quantize the model: cubepy.quant.quantize(model, activations="int8")',
        )
    if kind == "onnx":
        return importlib.import_module("cubepy.models.onnx").load(source)
    if kind == "exported":
        return importlib.import_module("cubepy.models.exported").load(source)
    if kind == "folder":
        return importlib.import_module("cubepy.models.folder").load_folder(source)
    if kind == "safetensors" and _packed() in safetensors_metadata(source):
        raise FileFormatError(
            f"{os.fspath(source)} holds packed weights, which are no tensors of a model by name",
            hint="cubepy.quant.load(model, path) gives them to a model",
        )
    readers = {"safetensors": read_safetensors, "index": read_index, "pickle": read_pickled}
    return tensors_of(readers[kind](source))


def _packed() -> str:
    """The key in the metadata of files with packed weights."""
    key: str = importlib.import_module("cubepy.quant.files").KEY
    return key


def tensors_of(stored: dict[str, Stored]) -> dict[str, Tensor]:
    """Tensors of plain dtypes as they are in the file, read-only views of it."""
    return {name: as_tensor(one.data) for name, one in stored.items()}
