"""Pictures prepared as transformers' image processors do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ArgumentError, FileFormatError
from cubepy.models.architectures.vision.preparing import Preparation, preparation
from tests.models.drawn import noise
from tests.models.folders import drawn_folder, fixture

PICTURES = fixture("pictures")


def picture(n: int, shape: tuple[int, ...]) -> np.ndarray:
    return (noise(f"picture{n}", shape) * 60 + 128).clip(0, 255).astype(np.uint8)


BOTH = [picture(0, (50, 37, 3)), picture(1, (9, 21, 3))]


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_become_pixels(name: str) -> None:
    given = PICTURES[name]
    values = json.loads(given["config"].tobytes())
    found = preparation(values, "preprocessor_config.json", name.partition("_")[0])
    for n, one in enumerate(BOTH):
        pixels = found.pixels(one)[0]
        assert pixels.shape == given[str(n)].shape
        np.testing.assert_allclose(pixels, given[str(n)], atol=1e-5)


class Picture:
    """A picture of PIL, whose numbers are those of a palette."""

    def __init__(self, codes: np.ndarray, palette: np.ndarray) -> None:
        self.codes, self.palette = codes, palette

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return self.codes

    def convert(self, mode: str) -> np.ndarray:
        assert mode == "RGB"
        return self.palette[self.codes]


def test_pictures_with_a_palette() -> None:
    palette = picture(2, (256, 3))
    given = Picture(BOTH[0][..., 0], palette)
    right = Preparation(size=(8, 8)).pixels(palette[BOTH[0][..., 0]])
    for pictures in (given, [given]):
        np.testing.assert_array_equal(Preparation(size=(8, 8)).pixels(pictures), right)


def test_a_model_prepares_pictures(tmp_path: Path) -> None:
    path = drawn_folder(tmp_path, fixture("vision")["vit"])
    with pytest.raises(ArgumentError, match="without preprocessor_config"):
        cb.load(path).prepare(BOTH)
    (path / "preprocessor_config.json").write_bytes(PICTURES["vit"]["config"].tobytes())
    model = cb.load(path)
    pixels = model.prepare(BOTH)
    assert pixels.shape == (2, 3, 12, 12) and pixels.dtype == np.float32
    np.testing.assert_array_equal(model.prepare(BOTH[1])[0], pixels[1])
    assert model(pixels).shape == (2, 5)
    grey = model.prepare(BOTH[0][..., 0])
    np.testing.assert_array_equal(grey[0, 0], grey[0, 2])
    alpha = np.concatenate([BOTH[0], BOTH[0][..., :1]], axis=2)
    np.testing.assert_array_equal(model.prepare(alpha)[0], pixels[0])
    for wrong, rule in (
        (np.zeros((4, 4, 3), np.float32), "is bytes"),
        (np.zeros((4, 4, 5), np.uint8), "3 channels"),
        (np.zeros((0, 4, 3), np.uint8), "is bytes"),
        ([], "a list"),
        (3, "a list"),
    ):
        with pytest.raises(ArgumentError, match=rule):
            model.prepare(wrong)
    with pytest.raises(ArgumentError, match="2 sizes"):
        Preparation().pixels(BOTH)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"size": {"longest_edge": 3}}, "shortest_edge is missing"),
        ({"size": -1}, "size must be a positive integer"),
        ({"resample": 9}, "the filter 9 is not known"),
        ({"image_std": [1.0, 0.0, 1.0]}, "must be positive"),
        ({"image_mean": [1.0]}, "three numbers"),
        ({"do_resize": 3}, "true or false"),
    ],
)
def test_bad_files_are_refused(values: dict, rule: str, tmp_path: Path) -> None:
    path = drawn_folder(tmp_path, fixture("vision")["vit"])
    (path / "preprocessor_config.json").write_text(json.dumps(values))
    with pytest.raises(FileFormatError, match=rule):
        cb.load(path)


def test_old_files_give_one_number() -> None:
    assert preparation({"size": 30}, "", "vit") == preparation(
        {"size": {"height": 30, "width": 30}}, "", "vit"
    )
    assert preparation({"size": 30}, "", "clip").shortest == 30
    assert preparation({"size": 30}, "", "convnext").crop == (30, 30)
    assert preparation({"size": 384}, "", "convnext").size == (384, 384)
