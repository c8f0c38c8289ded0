"""Pictures as a model was trained to see them: resized, cut, scaled, as `preprocessor_config.json`
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.errors import ArgumentError
from cubepy.kernels.entry.options import shown
from cubepy.models.architectures.settings import Settings

NEAREST, LANCZOS, LINEAR, CUBIC = 0, 1, 2, 3
"""Filters, by the numbers that configs give them."""
REACH = {LANCZOS: 3.0, LINEAR: 1.0, CUBIC: 2.0}
ONE = 1 << 22
"""Weights of filters are multiples of its inverse."""
WHOLE = 384
"""ConvNeXt: pictures of this size and larger are not cut."""


@dataclass(frozen=True)
class Preparation:
    """What is done with pictures.

    Attributes:
        size: height and width that pictures are resized to, or None.
        shortest: the same, of the shorter side, the other one in proportion; 0: not so.
        crop: height and width of the middle that is kept, or None.
        filter: by which they are resized.
        factor: numbers of bytes are multiplied by it.
        mean, deviation: of each channel, by which numbers are normalised.

    Example:
        >>> Preparation(size=(2, 2)).pixels([np.full((4, 6, 3), 255, np.uint8)])[0, 0]
        array([[1., 1.],
               [1., 1.]], dtype=float32)
    """

    size: tuple[int, int] | None = None
    shortest: int = 0
    crop: tuple[int, int] | None = None
    filter: int = LINEAR
    factor: float = 1 / 255
    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    deviation: tuple[float, ...] = (1.0, 1.0, 1.0)

    def pixels(self, pictures: Any) -> np.ndarray:
        """(pictures, 3, height, width) f32.

        Args:
            pictures: bytes (height, width, 3) or (height, width), or a picture of PIL; or a list
                of them.

        Raises:
            ArgumentError: other arrays, or pictures that do not become alike.
        """
        if hasattr(pictures, "convert") or (isinstance(pictures, np.ndarray) and pictures.ndim < 4):
            pictures = [pictures]
        if not isinstance(pictures, (Sequence, np.ndarray)) or not len(pictures):
            raise ArgumentError(f"pictures are a list of arrays of bytes, not {shown(pictures)}")
        found = [self._one(bytes_of(picture)) for picture in pictures]
        if len({one.shape for one in found}) > 1:
            raise ArgumentError(
                f"pictures of {len(found)} sizes stay as they are", hint="resize them alike"
            )
        return np.stack(found)

    def _one(self, picture: np.ndarray) -> np.ndarray:
        if picture.dtype != np.uint8 or picture.ndim not in (2, 3) or not picture.size:
            raise ArgumentError(
                f"a picture is bytes (height, width, 3), not {picture.dtype}{picture.shape}"
            )
        if picture.ndim == 2:
            picture = np.repeat(picture[..., None], 3, axis=2)
        if picture.shape[2] == 4:
            picture = picture[..., :3]
        if picture.shape[2] != 3:
            raise ArgumentError(f"a picture has 3 channels behind its sides, not {picture.shape}")
        size = self.size
        if self.shortest:
            short, long = sorted(picture.shape[:2])
            other = max(int(self.shortest * long / short), 1)
            upright = picture.shape[0] > picture.shape[1]
            size = (other, self.shortest) if upright else (self.shortest, other)
        if size is not None:
            picture = resized(picture, size, self.filter)
        if self.crop is not None:
            picture = middle(picture, self.crop)
        scaled = (picture * self.factor - np.array(self.mean)) / np.array(self.deviation)
        return np.ascontiguousarray(scaled.transpose(2, 0, 1), np.float32)


def bytes_of(picture: Any) -> np.ndarray:
    """A picture as an array; one of PIL may have a palette, or channels of another kind."""
    return np.asarray(picture.convert("RGB") if hasattr(picture, "convert") else picture)


def resized(picture: np.ndarray, size: tuple[int, int], kind: int) -> np.ndarray:
    """Bytes (H, W, C) at another size, first along rows, then columns, rounded in between as the
    imaging library that models are trained with does.

    Example:
        >>> resized(np.array([[[0], [100]]], np.uint8), (1, 4), LINEAR)[0, :, 0]
        array([  0,  25,  75, 100], dtype=uint8)
    """
    for axis, wanted in ((1, size[1]), (0, size[0])):
        if wanted != picture.shape[axis]:
            moved = np.moveaxis(picture, axis, 0)
            if kind == NEAREST:
                at = ((np.arange(wanted) + 0.5) * moved.shape[0] / wanted).astype(np.int64)
                moved = moved[at]
            else:
                codes = np.round(weights_of(moved.shape[0], wanted, kind) * ONE)
                sums = np.tensordot(codes, moved, 1)
                moved = np.clip(np.floor(sums / ONE + 0.5), 0, 255).astype(np.uint8)
            picture = np.moveaxis(moved, 0, axis)
    return picture


def weights_of(length: int, wanted: int, kind: int) -> np.ndarray:
    """How much each position gives to each new one, (wanted, length); rows sum to one. Where
    pictures become smaller the filter becomes as much wider.
    """
    scale = length / wanted
    wide = max(scale, 1.0)
    reach = REACH[kind] * wide
    centers = ((np.arange(wanted) + 0.5) * scale)[:, None]
    at = np.arange(length)
    x = np.abs(at + 0.5 - centers) / wide
    if kind == LINEAR:
        found = np.maximum(1 - x, 0)
    elif kind == CUBIC:
        inner, outer = (1.5 * x - 2.5) * x * x + 1, ((-0.5 * x + 2.5) * x - 4) * x + 2
        found = np.where(x < 1, inner, np.where(x < 2, outer, 0))
    else:
        found = np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)
    first, last = np.floor(centers - reach + 0.5), np.floor(centers + reach + 0.5)
    found = np.where((at >= first) & (at < last), found, 0)
    return found / found.sum(axis=1, keepdims=True)


def middle(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The middle of a picture; what is missing is filled with zeros."""
    for axis, wanted in enumerate(size):
        length = picture.shape[axis]
        if length < wanted:
            before = (wanted - length + 1) // 2
            pads = [(0, 0)] * picture.ndim
            pads[axis] = (before, wanted - length - before)
            picture = np.pad(picture, pads)
        else:
            first = (length - wanted) // 2
            picture = np.take(picture, range(first, first + wanted), axis)
    return picture


def preparation(values: Mapping[str, Any], source: str, family: str) -> Preparation:
    """What a `preprocessor_config.json` says.

    Args:
        values: of the file.
        source: its path, for errors.
        family: the `model_type`: what old files do not say depends on it.

    Raises:
        FileFormatError: what has a value that cannot be.
    """
    s = Settings(values, source)
    square = family in ("vit", "deit")
    size = _sides(s, "size", square) if s.flag("do_resize", True) else {}
    crop = _sides(s, "crop_size", True) if s.flag("do_center_crop", False) else {}
    short = size.get("shortest_edge", 0)
    sides = (size["height"], size["width"]) if "height" in size else None
    kept = (crop["height"], crop["width"]) if "height" in crop else None
    if family.startswith("convnext") and short:
        part = s.number("crop_pct", default=0.875)
        if not 0 < part <= 1:
            raise s.refuse(f"crop_pct must be in (0, 1], not {part}")
        kept, sides = ((short, short), None) if short < WHOLE else (None, (short, short))
        short = int(short / part) if short < WHOLE else 0
    kind = s.first(("resample",), LINEAR if square else CUBIC)
    if kind not in (NEAREST, *REACH):
        raise s.refuse(f"the filter {kind!r} is not known: 0 nearest, 1 Lanczos, 2 linear, 3 cubic")
    normal = s.flag("do_normalize", True)
    factor = s.number("rescale_factor", default=1 / 255) if s.flag("do_rescale", True) else 1.0
    deviation = _channels(s, "image_std", 0.5) if normal else (1.0,) * 3
    if min(deviation) <= 0:
        raise s.refuse(f"image_std must be positive, not {deviation}")
    mean = _channels(s, "image_mean", 0.5) if normal else (0.0,) * 3
    return Preparation(sides, short, kept, kind, factor, mean, deviation)


def _sides(s: Settings, name: str, square: bool) -> dict[str, int]:
    """Height and width, or the shorter side."""
    found = s.first((name,), 224)
    if isinstance(found, int):
        side = s.size(name, default=224)
        return {"height": side, "width": side} if square else {"shortest_edge": side}
    table = Settings(s.table(name), s.source)
    keys = ("height", "width") if "height" in table.values else ("shortest_edge",)
    return {key: table.size(key) for key in keys}


def _channels(s: Settings, name: str, default: float) -> tuple[float, ...]:
    found = s.first((name,), [default] * 3)
    if not isinstance(found, list) or len(found) != 3:
        raise s.refuse(f"{name} must be three numbers, not {found!r}")
    return tuple(Settings({name: one}, s.source).number(name) for one in found)


class Prepared:
    """A model that says how pictures are prepared.

    Attributes:
        preparation: of its `preprocessor_config.json`, or None.
    """

    preparation: Preparation | None = None

    def prepare(self, pictures: Any) -> np.ndarray:
        """Pictures as the model takes them, (pictures, 3, height, width) f32.

        Args:
            pictures: bytes (height, width, 3), or a picture of PIL; or a list of them.

        Raises:
            ArgumentError: other arrays, or a model that came without `preprocessor_config.json`.
        """
        if self.preparation is None:
            raise ArgumentError(
                "the model came without preprocessor_config.json",
                hint="set model.preparation to a Preparation",
            )
        return self.preparation.pixels(pictures)
