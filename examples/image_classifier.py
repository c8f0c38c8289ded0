"""A convolutional network that learns to tell digits apart, on this machine, in seconds.

    python examples/image_classifier.py [--epochs 6]

The images are drawn here: digits of a display of five by seven dots, moved, scaled in brightness,
with dots missing and noise on top. The training step is one program; batch normalisation keeps
running values for evaluation.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F

DIGITS = """
 ###   #    ###  ##### #   # #####  ###  #####  ###   ###
#   # ##   #   #    #  #   # #     #         # #   # #   #
#   #  #       #   #   #   # #     #        #  #   # #   #
#   #  #      #   ###  ##### ####  ####    #    ###   ####
#   #  #     #       #     #     # #   #  #    #   #     #
#   #  #    #    #   #     # #   # #   #  #    #   #     #
 ###  ###  #####  ###      #  ###   ###   #     ###   ###
""".strip("\n").split("\n")
SIDE = 16


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (count, 1, 16, 16) and which digits they show."""
    rng = np.random.default_rng(seed)
    dots = np.array([[c == "#" for c in line.ljust(59)] for line in DIGITS], np.float32)
    digits = rng.integers(0, 10, count)
    images = np.zeros((count, 1, SIDE, SIDE), np.float32)
    for image, digit in zip(images, digits, strict=True):
        shape = dots[:, 6 * digit : 6 * digit + 5] * (rng.random((7, 5)) > 0.03)
        tall, wide = rng.integers(1, 3, 2)  # a dot is one or two pixels high and wide
        shape = shape.repeat(tall, axis=0).repeat(wide, axis=1)
        top, left = (rng.integers(0, SIDE - n + 1) for n in shape.shape)
        image[0, top : top + shape.shape[0], left : left + shape.shape[1]] = shape
        image *= rng.uniform(0.6, 1.4)
    return images + rng.standard_normal(images.shape, np.float32) * 0.15, digits


def network() -> nn.Module:
    """Three convolutions with batch normalisation, then a layer of ten numbers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def right(model: nn.Module, images: np.ndarray, digits: np.ndarray) -> float:
    """Which part of the images the model names as they are."""
    model.eval()
    with cb.no_grad():
        named = [model(part).argmax(axis=1).numpy() for part in np.split(images, 4)]
    model.train()
    return float((np.concatenate(named) == digits).mean())


def train(epochs: int, count: int = 4096, batch: int = 64) -> list[float]:
    """The share of unseen images that is named right after each epoch."""
    nn.init.manual_seed(0)
    rng = np.random.default_rng(0)
    (images, digits), unseen = drawn(count, seed=1), drawn(1024, seed=2)
    model = network()
    optimizer = nn.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    schedule = nn.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * count // batch)

    @cb.jit
    def learn(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    shares = []
    for epoch in range(epochs):
        losses = []
        for chosen in rng.permutation(count).reshape(-1, batch):
            losses.append(learn(cb.tensor(images[chosen]), cb.tensor(digits[chosen])))
            schedule.step()
        shares.append(right(model, *unseen))
        loss = np.mean([one.item() for one in losses])
        print(f"epoch {epoch + 1}  loss {loss:.3f}  right {100 * shares[-1]:.1f} %")
    return shares


def main(arguments: list[str] | None = None) -> list[float]:
    """Train, and show how much is named right; gives the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args(arguments)
    before = time.perf_counter()
    shares = train(options.epochs)
    print(f"{time.perf_counter() - before:.1f} s")
    return shares


if __name__ == "__main__":
    main()
