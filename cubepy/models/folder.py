"""Folders as Hugging Face has them: `config.json`, weights, a tokenizer."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from cubepy.errors import FileFormatError
from cubepy.models.architectures.decoders import DECODERS, decoder_config
from cubepy.models.architectures.weights import decoder_weights, fill
from cubepy.models.formats.shards import read_json
from cubepy.models.generation.text_model import TextModel
from cubepy.models.generation.tokenizer import folder_ends, folder_tokenizer
from cubepy.models.looking import folder_tensors
from cubepy.nn import init


def load_folder(path: str | os.PathLike[str]) -> Any:
    """The model of a folder with `config.json`.

    Raises:
        FileFormatError: a model of a kind that is not known, or weights that do not fit it.
        FileNotFoundError: there is no config, or no weights.
    """
    folder = Path(path)
    source = str(folder / "config.json")
    values = read_json(source)
    family = values.get("model_type")
    if family in DECODERS:
        return load_decoder(folder, values, source)
    raise FileFormatError(
        f"{source}: models of the kind {family!r} cannot be loaded",
        hint=f"those that can: {', '.join(DECODERS)}",
    )


def load_decoder(folder: Path, values: dict[str, Any], source: str) -> TextModel:
    """A decoder with its weights as the files have them."""
    c = decoder_config(values, source)
    family = values["model_type"]
    tensors = decoder_weights(folder_tensors(folder), c, family)
    model = built(c, tensors, source)
    model.ends = folder_ends(folder, values)
    model.give_tokenizer(partial(folder_tokenizer, folder))
    return model


def built(c: Any, tensors: dict[str, Any], source: str) -> TextModel:
    """A decoder of a config and its weights; without those of the last layer, it is tied."""
    if "head.weight" in tensors and c.tied:
        del tensors["head.weight"]
    try:
        with init.skip():
            model = TextModel(c)
    except MemoryError:
        raise FileFormatError(f"{source}: a model of this size does not fit this machine") from None
    fill(model, tensors, source)
    model.eval()
    return model
