"""Calls of loaded models that come again are programs, and nothing else changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import DTypeError, OutOfBoundsError, ShapeError
from cubepy.models.architectures.encoder import EncoderConfig
from cubepy.models.architectures.vision.layers import LayerConfig
from cubepy.models.architectures.vision.transformer import VisionConfig, VisionTransformer
from cubepy.models.generation.text_encoder import TextEncoder
from cubepy.models.repeated_calls import MOST, RepeatedCalls, Repeating

CONFIG = EncoderConfig(vocabulary=30, width=16, layers=2, heads=2, inner=24, context=32)


@pytest.fixture
def model() -> TextEncoder:
    made = TextEncoder(CONFIG).eval()
    for p in made.parameters():
        p.requires_grad_(False)
    return made


def tokens_of(rng: Any, batch: int, length: int) -> np.ndarray:
    return rng.integers(2, 30, (batch, length))


def expected(model: TextEncoder, *given: Any) -> np.ndarray:
    """What the model gives op by op."""
    return model.forward(*given).numpy()


def test_a_call_that_comes_again_is_traced_once(model: TextEncoder) -> None:
    rng = np.random.default_rng(0)
    for shape in ((1, 5), (2, 7)):
        traces, ops = [], []
        for _ in range(4):
            given = tokens_of(rng, *shape)
            want, before = expected(model, given), cb.stats()
            np.testing.assert_allclose(model(given).numpy(), want, rtol=1e-5, atol=1e-6)
            traces.append(cb.stats().traces - before.traces)
            ops.append(cb.stats().ops - before.ops)
        assert traces == [0, 1, 0, 0]
        assert ops[2:] == [0, 0]


def test_random_calls_are_those_of_single_ops(model: TextEncoder) -> None:
    rng = np.random.default_rng(1)
    for _ in range(40):
        batch, length = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        given: list[Any] = [tokens_of(rng, batch, length)]
        if rng.random() < 0.6:
            given.append((np.arange(length) < rng.integers(1, length + 1, (batch, 1))).astype("i8"))
            if rng.random() < 0.5:
                given.append(rng.integers(0, 2, (batch, length)))
        as_tensors = rng.random() < 0.5
        options = {} if len(given) < 2 or rng.random() < 0.5 else {"mask": given.pop(1)}
        if len(given) == 2 and options:
            options["types"] = given.pop(1)
        want = model.forward(*given, **options).numpy()
        if as_tensors:
            given = [cb.tensor(g) for g in given]
        np.testing.assert_allclose(model(*given, **options).numpy(), want, rtol=1e-5, atol=1e-6)


def test_hooks_are_called_every_time(model: TextEncoder) -> None:
    given = tokens_of(np.random.default_rng(2), 1, 4)
    for _ in range(3):
        model(given)
    seen: list[int] = []
    removal = model.layers[1].register_forward_hook(lambda *_: seen.append(1))
    for n in range(3):
        model(given)
        assert len(seen) == n + 1
    removal.remove()
    before = cb.stats().ops
    model(given)
    assert len(seen) == 3 and cb.stats().ops == before


def test_new_weights_count(model: TextEncoder) -> None:
    rng = np.random.default_rng(3)
    given = tokens_of(rng, 1, 4)
    for _ in range(3):
        model(given)
    state = {k: v.numpy() + rng.standard_normal(v.shape) for k, v in model.state_dict().items()}
    model.load_state_dict({k: cb.tensor(v, "f32") for k, v in state.items()})
    np.testing.assert_allclose(model(given).numpy(), expected(model, given), rtol=1e-5, atol=1e-5)
    model.norm.weight.assign_(2 * model.norm.weight)
    np.testing.assert_allclose(model(given).numpy(), expected(model, given), rtol=1e-5, atol=1e-5)
    copied = model.clone()
    copied.words.weight.assign_(0 * copied.words.weight)
    for _ in range(3):
        want = expected(copied, given)
        np.testing.assert_allclose(copied(given).numpy(), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model(given).numpy(), expected(model, given), rtol=1e-5, atol=1e-5)


def test_gradients_and_training_go_op_by_op(model: TextEncoder) -> None:
    given = tokens_of(np.random.default_rng(4), 1, 4)
    for _ in range(3):
        model(given)
    model.norm.weight.requires_grad_()
    for _ in range(3):
        model.norm.weight.grad = None
        model(given).sum().backward()
        assert model.norm.weight.grad is not None
    with cb.no_grad():
        model(given)  # traced again, for another parameter
        before = cb.stats().ops
        model(given)
        assert cb.stats().ops == before
    before = cb.stats().calls
    model.train()
    for _ in range(3):
        model(given)
    assert cb.stats().calls == before


def test_errors_are_those_of_single_ops(model: TextEncoder) -> None:
    fine, wrong = np.array([[3, 4, 5]]), np.array([[3, 30, 5]])
    for _ in range(3):
        with pytest.raises(OutOfBoundsError):
            model(wrong).numpy()
        model(fine)
        with pytest.raises(ShapeError, match="batch, length"):
            model(fine[0])
        with pytest.raises(DTypeError, match="tokens are integers"):
            model(fine.astype("f4"))


def test_embeddings_and_images_are_programs(model: TextEncoder) -> None:
    rng = np.random.default_rng(5)
    config = VisionConfig(LayerConfig(8, 2, 16), 2, (8, 8), (4, 4))
    images = VisionTransformer(config).eval()
    pixels = [rng.standard_normal((2, 3, 8, 8)).astype(np.float32) for _ in range(4)]
    wants = [images.forward(p)[:, 0].detach().numpy() for p in pixels]
    texts = [[3, 4, 5], [6, 7, 8]]
    for n, (p, want) in enumerate(zip(pixels, wants, strict=True)):
        calls = cb.stats().calls
        np.testing.assert_allclose(images.embed(p), want, rtol=1e-5, atol=1e-6)
        assert (cb.stats().calls > calls) == (n > 0)
        mask = np.ones((2, 3))
        pooled = model.forward(np.array(texts), mask).mean(1).numpy()
        calls = cb.stats().calls
        np.testing.assert_allclose(model.embed(texts), pooled, rtol=1e-5, atol=1e-6)
        assert (cb.stats().calls > calls) == (n > 0)


def test_eight_threads_share_a_model(model: TextEncoder) -> None:
    rng = np.random.default_rng(6)
    given = [tokens_of(rng, 1 + n % 3, 2 + n % 5) for n in range(64)]
    wants = [expected(model, g) for g in given]
    with ThreadPoolExecutor(8) as pool:
        for got, want in zip(pool.map(lambda g: model(g).numpy(), given), wants, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_programs_of_others_and_lists(model: TextEncoder) -> None:
    given = cb.tensor(tokens_of(np.random.default_rng(7), 2, 3))
    summed = cb.jit(lambda t: model(t).sum())
    for _ in range(3):
        assert float(summed(given)) == pytest.approx(float(expected(model, given).sum()), abs=1e-4)
        got = model(given.numpy().tolist()).numpy()
        np.testing.assert_allclose(got, expected(model, given), rtol=1e-5, atol=1e-6)


def test_a_deterministic_run_gives_the_same_bits_every_time(model: TextEncoder) -> None:
    given = tokens_of(np.random.default_rng(8), 2, 9)
    with cb.config.override(deterministic=True):
        found = [model(given).numpy().tobytes() for _ in range(3)]
    assert len({*found}) == 1


def test_old_kinds_are_forgotten() -> None:
    class Doubled(RepeatedCalls):
        def forward(self, x: Any) -> Any:
            return x + x

    known = Repeating(Doubled().forward)
    kinds = [[cb.tensor(np.ones(n))] for n in range(1, MOST + 2)]
    assert not any(known.again(kind) for kind in kinds)
    assert len(known.kinds) == MOST
    assert known.again(kinds[-1]) and not known.again(kinds[0])
