"""Write what transformers' image processors make of pictures into a fixture of `tests/models`.

    python scripts/make_image_fixture.py

Needs transformers and Pillow, neither torch nor cubepy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.models.drawn import noise

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "models" / "fixtures"
SIZE: dict[str, Any] = {"size": {"height": 12, "width": 12}}
EDGE: dict[str, Any] = {"size": {"shortest_edge": 14}, "crop_size": {"height": 10, "width": 12}}
PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTImageProcessorPil", SIZE),
    "vit/lanczos": ("ViTImageProcessorPil", SIZE | {"resample": 1}),
    "vit/nearest": ("ViTImageProcessorPil", SIZE | {"resample": 0, "do_normalize": False}),
    "deit": ("DeiTImageProcessorPil", SIZE | {"crop_size": {"height": 10, "width": 16}}),
    "dinov2": ("BitImageProcessorPil", EDGE),
    "clip": ("CLIPImageProcessorPil", EDGE),
    "convnext": ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 12}}),
}


def main() -> None:
    """All processors on two pictures."""
    arrays: dict[str, np.ndarray] = {}
    for name, (kind, values) in PROCESSORS.items():
        processor = getattr(transformers, kind)(**values)
        key = name.replace("/", "_")
        config = json.dumps(processor.to_dict()).encode()
        arrays[f"{key}/config"] = np.frombuffer(config, np.uint8)
        for n, shape in enumerate(((50, 37, 3), (9, 21, 3))):
            picture = (noise(f"picture{n}", shape) * 60 + 128).clip(0, 255).astype(np.uint8)
            arrays[f"{key}/{n}"] = processor([picture], return_tensors="np")["pixel_values"][0]
    np.savez_compressed(FIXTURES / "pictures.npz", **arrays)


if __name__ == "__main__":
    main()
