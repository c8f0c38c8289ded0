"""Folders as Hugging Face has them: `config.json`, weights, a tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cubepy.errors import FileFormatError
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.models.architectures.decoders import decoder_config
from cubepy.models.architectures.encoders import ENCODER_NAMES, ENCODERS, encoder_config
from cubepy.models.architectures.modern_encoder import MODERN_NAMES, modern_config
from cubepy.models.architectures.settings import Settings
from cubepy.models.architectures.speech.whisper_family import WHISPER_NAMES, whisper_config
from cubepy.models.architectures.t5_family import t5_config, t5_weights
from cubepy.models.architectures.vision.families import VISION
from cubepy.models.architectures.vision.preparing import Prepared, preparation
from cubepy.models.architectures.weights import decoder_weights, fill
from cubepy.models.families import FAMILIES, kind_of
from cubepy.models.formats.shards import read_json
from cubepy.models.generation.speech.speech_model import SpeechModel
from cubepy.models.generation.speech.tokens import speech_tokens
from cubepy.models.generation.text_encoder import (
    ModernTextEncoder,
    T5TextEncoder,
    TextEncoder,
    TextVectors,
)
from cubepy.models.generation.text_model import TextModel
from cubepy.models.generation.text_to_text import TextToText
from cubepy.models.generation.tokenizer import folder_ends, folder_tokenizer
from cubepy.models.looking import folder_tensors, models_in
from cubepy.models.tokenized import Tokenized
from cubepy.nn import Module, init

Model = TypeVar("Model", bound=Module)


def load_folder(path: str | os.PathLike[str]) -> Any:
    """The model of a folder with `config.json`.

    Raises:
        FileFormatError: a model of a kind that is not known, or weights that do not fit it.
        FileNotFoundError: there is no config, or no weights.
    """
    folder = Path(path)
    source = str(folder / "config.json")
    if not os.path.isfile(source):
        raise FileNotFoundError(
            f"{folder}: a folder of a model has a config.json, and this one has none"
            f"{models_in(folder)}"
        )
    values = read_json(source)
    family = values.get("model_type")
    if "quantization_config" in values:
        method = Settings(values, source).table("quantization_config").get("quant_method")
        raise FileFormatError(
            f"{source}: weights that {method!r} quantized cannot be loaded",
            hint="load the float model, or its GGUF file",
        )
    if not isinstance(family, str):
        raise FileFormatError(f"{source}: model_type must be a text, not {family!r}")
    kind = kind_of(family)
    if kind is None:
        raise FileFormatError(
            f"{source}: models of the kind {family!r} cannot be loaded",
            hint=f"those that can: {', '.join(FAMILIES)}",
        )
    return LOADERS[kind](folder, values, source)


def load_decoder(folder: Path, values: dict[str, Any], source: str) -> TextModel:
    """A decoder with its weights as the files have them."""
    c = decoder_config(values, source)
    family = values["model_type"]
    tensors = decoder_weights(folder_tensors(folder), c, family)
    model = built(c, tensors, source)
    model.ends = folder_ends(folder, values)
    model.give_tokenizer(partial(folder_tokenizer, folder))
    _read_pooling(model, folder)
    return model


def load_encoder(folder: Path, values: dict[str, Any], source: str) -> TextVectors:
    """An encoder with its weights as the files have them, and how texts become vectors."""
    family, stored = values["model_type"], folder_tensors(folder)
    model: TextEncoder | ModernTextEncoder
    if family in ENCODERS:
        make = partial(TextEncoder, encoder_config(values, source))
        model = filled(make, ENCODER_NAMES.renamed(stored, family), source)
    else:
        modern = modern_config(Settings(values, source))
        tensors = MODERN_NAMES.renamed(stored, family)
        model = filled(partial(ModernTextEncoder, modern), tensors, source)
    model.give_tokenizer(partial(folder_tokenizer, folder))
    _read_pooling(model, folder)
    return model


def load_t5(folder: Path, values: dict[str, Any], source: str) -> TextToText | T5TextEncoder:
    """T5 with its weights as the files have them; the encoder alone where that is all."""
    s = Settings(values, source)
    tensors = t5_weights(folder_tensors(folder), values["model_type"])
    c = t5_config(s, tensors)
    model: TextToText | T5TextEncoder
    if c.decoder_layers:
        model = filled(partial(TextToText, c), tensors, source)
        model.ends = folder_ends(folder, values)
    else:
        model = filled(partial(T5TextEncoder, c), tensors, source)
        _read_pooling(model, folder)
    model.give_tokenizer(partial(folder_tokenizer, folder))
    return model


def load_vision(folder: Path, values: dict[str, Any], source: str) -> Module:
    """A vision model with its weights as the files have them."""
    make, tensors = VISION[values["model_type"]](Settings(values, source), folder_tensors(folder))
    model = filled(make, tensors, source)
    if isinstance(model, Tokenized):
        model.give_tokenizer(partial(folder_tokenizer, folder))
    path = folder / "preprocessor_config.json"
    if isinstance(model, Prepared) and path.is_file():
        model.preparation = preparation(read_json(path), str(path), values["model_type"])
    return model


def load_whisper(folder: Path, values: dict[str, Any], source: str) -> SpeechModel:
    """Whisper with its weights as the files have them, and what its tokens mean."""
    c = whisper_config(Settings(values, source))
    tensors = WHISPER_NAMES.renamed(folder_tensors(folder), "whisper")
    if "encoder.positions.weight" in tensors:
        tensors["encoder.positions"] = tensors.pop("encoder.positions.weight")
    make = partial(SpeechModel, c, speech_tokens(folder, values, c.vocabulary))
    model = filled(make, tensors, source)
    model.give_tokenizer(partial(folder_tokenizer, folder))
    return model


LOADERS: dict[str, Callable[[Path, dict[str, Any], str], Any]] = {
    "decoder": load_decoder,
    "encoder": load_encoder,
    "encoder with decoder": load_t5,
    "vision": load_vision,
    "speech": load_whisper,
}
"""What makes a model, by its kind."""


def _read_pooling(model: TextVectors, folder: Path) -> None:
    """What sentence-transformers' files say of vectors of texts."""
    path = folder / "1_Pooling" / "config.json"
    if path.is_file():
        model.pooling = _pooling(read_json(path), path)
    if (folder / "modules.json").is_file():
        kinds = _kinds(folder)
        if unknown := [kind for kind in kinds if kind not in MODULES]:
            raise FileFormatError(
                f"{folder / 'modules.json'}: vectors of texts made by {', '.join(unknown)}",
                hint=f"known are {', '.join(MODULES)}; without this file, vectors are pooled alone",
            )
        model.normalized = "Normalize" in kinds
    if (folder / "sentence_bert_config.json").is_file():
        longest = read_json(folder / "sentence_bert_config.json").get("max_seq_length")
        if isinstance(longest, int) and 0 < longest < model.longest:
            model.longest = longest


POOLINGS = {
    "cls_token": "first",
    "mean_tokens": "mean",
    "lasttoken": "last",
    "max_tokens": "max",
    "cls": "first",
    "mean": "mean",
    "max": "max",
}
"""Ours by what sentence-transformers calls them."""
MODULES = ("Transformer", "Pooling", "Normalize", "Dropout")
"""What may stand in `modules.json`: what else there is would be left out of the vectors."""


def _pooling(values: dict[str, Any], path: Path) -> str:
    """How vectors of tokens become one.

    Raises:
        FileFormatError: in a way that there is not, or in several.
    """
    begin = "pooling_mode_"
    chosen = [key.removeprefix(begin) for key, on in values.items() if on is True and begin in key]
    chosen = chosen or [str(values.get("pooling_mode", "mean"))]
    if len(chosen) != 1 or chosen[0] not in POOLINGS:
        raise FileFormatError(
            f"{path}: vectors of tokens are pooled by {', '.join(chosen)}",
            hint=f"known are {', '.join(POOLINGS)}, one of them",
        )
    return POOLINGS[chosen[0]]


def _kinds(folder: Path) -> list[str]:
    try:
        found = json.loads((folder / "modules.json").read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{folder / 'modules.json'}: no JSON text: {error}") from None
    listed = found if isinstance(found, list) else []
    return [str(m.get("type")).rpartition(".")[2] for m in listed if isinstance(m, dict)]


def built(c: DecoderConfig, tensors: dict[str, Any], source: str) -> TextModel:
    """A decoder of a config and its weights; without those of the last layer, it is tied.

    Raises:
        FileFormatError: weights that are not those of the config.
    """
    there = {name.split(".", 2)[1] for name in tensors if name.startswith("layers.")}
    if c.layers > len(there):  # before so many are made
        first = next(n for n in range(c.layers) if str(n) not in there)
        raise FileFormatError(
            f"{source}: the weights do not fit the config: missing: layers.{first}; of "
            f"{c.layers} layers there are {len(there)}",
            hint="do they belong to each other? fetch both again",
        )
    if "head.weight" in tensors and c.tied:
        del tensors["head.weight"]
    return filled(partial(TextModel, c), tensors, source)


def filled(make: Callable[[], Model], tensors: dict[str, Any], source: str) -> Model:
    """A module whose parameters are these tensors."""
    try:
        with init.skip(memory=False):
            model = make()
    except MemoryError:
        raise FileFormatError(f"{source}: a model of this size does not fit this machine") from None
    fill(model, tensors, source)
    model.eval()
    return model
