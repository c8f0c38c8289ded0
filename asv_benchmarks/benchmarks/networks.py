"""Small networks, written once for `torch.nn` and for `cubepy.nn`, whose names are the same, and the
training step of the smallest for JAX.

B6 is the GPT of Karpathy's lectures that BurTorch (arXiv 2503.13795) measures: 8 letters, 6 blocks of
width 24 with 6 heads, 46,337 numbers, SGD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LENGTH, LETTERS, RATE = 8, 65, 3e-4


class Library(NamedTuple):
    """`nn`, `nn.functional`, `optim`, what makes a tensor of an array, what compiles a step or a
    function, and the context without gradients.
    """

    nn: Any
    functional: Any
    optim: Any
    tensor: Callable[[np.ndarray], Any]
    compiled: Callable[[Any], Any]
    no_grad: Callable[[], Any]


def gpt(lib: Library, width: int = 24, heads: int = 6, layers: int = 6) -> Any:
    """Letters (batch, length) -> (batch, length, letters)."""
    nn, functional = lib.nn, lib.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (
                part.reshape(batch, length, heads, width // heads).transpose(1, 2)
                for part in self.qkv(self.norm1(x)).chunk(3, -1)
            )
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(seen.transpose(1, 2).reshape(batch, length, width))
            return x + self.down(functional.relu(self.up(self.norm2(x))))

    class Gpt(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.letters, self.places = nn.Embedding(LETTERS, width), nn.Embedding(LENGTH, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

        def forward(self, codes: Any) -> Any:
            x = self.letters(codes) + self.places.weight
            return self.head(self.norm(self.blocks(x))).reshape(-1, LETTERS)

    return Gpt()


def perceptron(lib: Library) -> Any:
    """Rows of 64 -> 65 classes by two layers."""
    nn = lib.nn
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, LETTERS))


def convolutions(lib: Library) -> Any:
    """Images of 16 x 16 -> 65 classes."""
    nn = lib.nn
    parts: list[Any] = []
    for before, after in ((1, 16), (16, 32)):
        parts += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
        parts += [nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, LETTERS))


def letters(batch: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A batch of B6: letters, and those that follow, where every second one follows from the one
    before.
    """
    text = np.random.default_rng(seed).integers(0, LETTERS, (batch, LENGTH + 1))
    text[:, 1::2] = (text[:, :-1:2] * 7 + 3) % LETTERS
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:]).reshape(-1)


def rows(batch: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 64 and their classes."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((batch, 64), np.float32), rng.integers(0, LETTERS, batch)


def images(batch: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and their classes."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((batch, 1, 16, 16), np.float32), rng.integers(0, LETTERS, batch)


NETWORKS: dict[str, tuple[Callable[[Library], Any], Callable[[int, int], Any]]] = {
    "gpt": (gpt, letters),
    "perceptron": (perceptron, rows),
    "convolutions": (convolutions, images),
}


def first_values(model: Any, lib: Library) -> Any:
    """The model with the same first values in both libraries: those of matrices and filters are
    drawn with a deviation of 0.02.
    """
    rng = np.random.default_rng(0)
    drawn: dict[str, Any] = {}
    for name, value in model.state_dict().items():
        array = value.numpy()
        if name.endswith("weight") and array.ndim > 1:
            array = (rng.standard_normal(array.shape) * 0.02).astype(np.float32)
        elif name.endswith("bias"):
            array = np.zeros_like(array)
        drawn[name] = lib.tensor(array.copy())
    model.load_state_dict(drawn)
    return model


def training(network: str, lib: Library, rate: float = RATE) -> Callable[[Any, Any], Any]:
    """A step of SGD: inputs and classes -> the loss."""
    model = first_values(NETWORKS[network][0](lib), lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=rate)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return lib.compiled(step)


def inference(network: str, lib: Library) -> Callable[[Any, Any], Any]:
    """Inputs (and classes, which are not looked at) -> numbers of the classes."""
    model = first_values(NETWORKS[network][0](lib), lib).eval()

    def run(x: Any, y: Any) -> Any:
        with lib.no_grad():
            return model(x)

    return lib.compiled(run)


def ours(compiled: bool = True) -> Library:
    """cubepy, steps as programs or op by op."""
    import cubepy as cb
    from cubepy import nn

    as_it_is: Callable[[Any], Any] = lambda f: f
    return Library(
        nn, nn.functional, nn.optim, cb.tensor, cb.jit if compiled else as_it_is, cb.no_grad
    )


def theirs(torch: Any, compiled: bool = False) -> Library:
    """torch, eager or compiled."""
    how = torch.compile if compiled else lambda f: f
    return Library(torch.nn, torch.nn.functional, torch.optim, torch.from_numpy, how, torch.no_grad)


def jax_training(jax: Any) -> tuple[Callable[..., Any], Any]:
    """A step of B6 for JAX, (parameters, x, y) -> (parameters, loss), and the first parameters."""
    jnp, width, heads, layers = jax.numpy, 24, 6, 6
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> Any:
        return jnp.asarray((rng.standard_normal(shape) * 0.02).astype(np.float32))

    zeros, ones = jnp.zeros, jnp.ones
    first = {"letters": drawn(LETTERS, width), "places": drawn(LENGTH, width), "blocks": []}
    for _ in range(layers):
        first["blocks"].append(
            {
                "norms": [(ones(width), zeros(width)), (ones(width), zeros(width))],
                "qkv": drawn(3 * width, width),
                "proj": (drawn(width, width), zeros(width)),
                "up": (drawn(4 * width, width), zeros(4 * width)),
                "down": (drawn(width, 4 * width), zeros(width)),
            }
        )
    first |= {"norm": (ones(width), zeros(width)), "head": (drawn(LETTERS, width), zeros(LETTERS))}
    below = np.tri(LENGTH, dtype=bool)

    def norm(x: Any, numbers: Any) -> Any:
        mean = x.mean(-1, keepdims=True)
        var = ((x - mean) ** 2).mean(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5) * numbers[0] + numbers[1]

    def linear(x: Any, numbers: Any) -> Any:
        return x @ numbers[0].T + numbers[1]

    def loss(p: Any, x: Any, y: Any) -> Any:
        h, batch = p["letters"][x] + p["places"], x.shape[0]
        for block in p["blocks"]:
            q, k, v = (
                part.reshape(batch, LENGTH, heads, -1).transpose(0, 2, 1, 3)
                for part in jnp.split(norm(h, block["norms"][0]) @ block["qkv"].T, 3, -1)
            )
            scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
            seen = jax.nn.softmax(jnp.where(below, scores, -jnp.inf), -1) @ v
            h = h + linear(seen.transpose(0, 2, 1, 3).reshape(batch, LENGTH, width), block["proj"])
            up = jax.nn.relu(linear(norm(h, block["norms"][1]), block["up"]))
            h = h + linear(up, block["down"])
        logs = jax.nn.log_softmax(linear(norm(h, p["norm"]), p["head"]).reshape(-1, LETTERS), -1)
        return -jnp.take_along_axis(logs, y[:, None], 1).mean()

    @jax.jit
    def step(p: Any, x: Any, y: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(p, x, y)
        return jax.tree.map(lambda a, b: a - RATE * b, p, slopes), value

    return step, first
