"""Record graphs of `torch.export`, with inputs and torch's results, for tests without torch.

    PYTHONPATH=. python scripts/make_torch_fixture.py      (an environment with torch, transformers)

Every case is checked before it is written; `--check` writes nothing. Operators are functions of one
line, in `torch_cases.py`, `torch_rare_cases.py` and `torch_loop_cases.py`; families of transformers are there to see whole graphs.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree

from cubepy.models.exported.model import TorchModel
from cubepy.models.exported.reading import exported_of, tensor_of
from scripts.torch_cases import operators, trained
from scripts.torch_loop_cases import cells, control
from scripts.torch_rare_cases import rare
from tests.models.exported.recorded import FIXTURE, encoded, write


class Called(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Classifier(nn.Module):
    """Images to a dict, with a length that calls decide."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.head = nn.Linear(4, 5)
        self.tied = nn.Linear(4, 5, bias=False)
        self.tied.weight = self.head.weight
        self.register_buffer("scale", torch.tensor([2.0]), persistent=False)

    def forward(self, x: torch.Tensor, extra: Any = None, factor: float = 1.5) -> Any:
        y = self.features(x).mean((2, 3))
        found = {"scores": self.head(y) * self.scale, "others": [self.tied(y), y.shape[0]]}
        if extra is not None:
            found["extra"] = extra["shift"] + y * factor
        return found


class Recurrent(nn.Module):
    """A sequence to a pair, with a pair inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)


class Logits(nn.Module):
    """What a language model of transformers says of the next token."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.model(tokens, use_cache=False).logits


def whole() -> Iterator[tuple[str, nn.Module, tuple[Any, ...], Any, tuple[Any, ...]]]:
    """Modules, arguments, dynamic shapes, and other arguments."""
    import transformers

    batch = torch.export.Dim("batch", min=2, max=64)
    image = torch.randn(2, 3, 8, 8)
    other = torch.randn(5, 3, 8, 8)
    yield "classifier", trained(Classifier()), (image,), {"x": {0: batch}}, (other,)
    shift = {"shift": torch.randn(2, 4)}
    shapes = {"x": {0: batch}, "extra": {"shift": {0: batch}}, "factor": None}
    more = (other, {"shift": torch.randn(5, 4)}, 2.5)
    yield "arguments inside", trained(Classifier()), (image, shift, 2.5), shapes, more
    length = torch.export.Dim("length", max=500)
    x = torch.randn(2, 5, 6)
    yield "lstm", Recurrent(), (x,), ({0: batch},), (torch.randn(3, 5, 6),)
    small = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2}
    small |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
    tokens, longer = torch.randint(1, 31, (2, 6)), torch.randint(1, 31, (3, 9))
    config = transformers.LlamaConfig(**small, tie_word_embeddings=True)
    llama = Logits(transformers.LlamaForCausalLM(config))
    yield "llama", llama, (tokens,), ({0: batch, 1: length},), (longer,)
    t5 = transformers.T5Config(vocab_size=31, d_model=16, d_kv=4, d_ff=20, num_layers=1)
    t5.num_heads, t5.decoder_start_token_id = 4, 0
    encoder = Encoder(transformers.T5EncoderModel(t5))
    yield "t5 encoder", encoder, (tokens,), ({0: batch},), (torch.randint(1, 31, (3, 6)),)


class Encoder(nn.Module):
    """What an encoder of transformers gives, as it gives it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> Any:
        return self.model(tokens)


def recorded(
    name: str,
    module: nn.Module,
    args: tuple[Any, ...],
    dynamic: Any,
    others: list[tuple[Any, ...]],
    arrays: dict[str, np.ndarray],
) -> dict[str, Any]:
    """A case: its graph, and what torch gives for all arguments."""
    module.eval()
    with torch.no_grad():
        found = torch.export.export(module, args, dynamic_shapes=dynamic)
        exported = exported_of(found)
        model = TorchModel(exported)
        given = encoded(name, exported, arrays)
        given["calls"] = 0
        for n, one in enumerate([args, *others]):
            leaves, _ = _pytree.tree_flatten(one)
            right, _ = _pytree.tree_flatten(module(*one))
            arrays |= {
                f"{name}/{n}/in/{k}": array_of(leaf)
                for k, leaf in enumerate(leaves)
                if isinstance(leaf, torch.Tensor)
            }
            given.setdefault("fixed", {}).update(
                {str(k): v for k, v in enumerate(leaves) if not isinstance(v, torch.Tensor)}
            )
            arrays |= {f"{name}/{n}/out/{k}": array_of(leaf) for k, leaf in enumerate(right)}
            given["calls"] += 1
            check(name, model, one, right)
    return given


def array_of(value: Any) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    return tensor_of(value).numpy()


def plain(value: Any) -> Any:
    """Tensors of torch as arrays, where tensors of ours have their dtype, too."""
    return value if not isinstance(value, torch.Tensor) else value.detach()


def check(name: str, model: TorchModel, args: tuple[Any, ...], right: list[Any]) -> None:
    """Compare with torch.

    Raises:
        AssertionError: another result.
    """
    found = model(*_pytree.tree_map(plain, args))
    leaves = model.exported.gives.flatten(found, "the results")
    assert len(leaves) == len(right), name
    for mine, one in zip(leaves, right, strict=True):
        if not isinstance(one, torch.Tensor):
            assert mine == one, name
            continue
        mine, one = mine.numpy(), one.detach()
        assert mine.shape == tuple(one.shape), (name, mine.shape, one.shape)
        assert str(one.dtype).removeprefix("torch.") == mine.dtype.name, (
            name,
            one.dtype,
            mine.dtype,
        )
        wide, theirs = mine.astype(np.float64), one.double().numpy()
        limit = 1e-2 if mine.dtype.itemsize == 2 else 1e-5
        np.testing.assert_allclose(wide, theirs, limit, limit, err_msg=name)


def main() -> None:
    """Record all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--only", default="", help="cases whose names have this")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    arrays: dict[str, np.ndarray] = {}
    graphs, wrong = {}, []
    made = [
        (n, f if isinstance(f, nn.Module) else Called(f), a, None, ())
        for n, f, a in (*operators(), *rare(), *cells(), *control())
    ]
    for name, module, args, dynamic, others in [*made, *whole()]:
        if options.only not in name:
            continue
        try:
            more = [others] if others else []
            graphs[name] = recorded(name, module, args, dynamic, more, arrays)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
    print(f"{len(graphs)} cases, {len(wrong)} wrong", *wrong, sep="\n")
    if not options.check and not wrong:
        write(graphs, arrays)
        print(FIXTURE, FIXTURE.stat().st_size)


if __name__ == "__main__":
    main()
