"""Random calls of the library: every public function is drawn, planted faults are found, and a few
calls are made.

Many more are made by `scripts/fuzz_library.py`; here as many as fit into half a minute of a CPU
that compiles them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cubepy import kernels as K
from cubepy.nn import functional as F
from tests.fuzz import run
from tests.fuzz.check import Want, Wrong, compare, exact, summed
from tests.fuzz.draws import BF16, COVERED, DRAWS, F16, F32, Draw
from tests.pretend import NAME, pretend

NOT_DRAWN = {"views": "makes views for kernels, and is no function of arrays"}
FUNCTIONAL_NOT_DRAWN = {
    "cosine_similarity of two": {"cosine_embedding_loss"},
    "the logarithm of numbers of [0, 1]": {"binary_cross_entropy"},
    "numbers are random": {
        "alpha_dropout",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "feature_alpha_dropout",
        "feature_dropout",
        "fractional_max_pool2d",
        "fractional_max_pool3d",
        "gumbel_softmax",
    },
    "ops of tensors, compared with torch's samples": {
        "bilinear",
        "channel_shuffle",
        "embedding_bag",
        "gaussian_nll_loss",
        "hinge_embedding_loss",
        "local_response_norm",
        "margin_ranking_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "multilabel_soft_margin_loss",
        "pairwise_distance",
        "pdist",
        "poisson_nll_loss",
        "rrelu",
        "soft_margin_loss",
        "triplet_margin_loss",
    },
    "scatter of maxima": {"max_unpool1d", "max_unpool2d", "max_unpool3d"},
    "the activations without an underline": {
        "celu_",
        "elu_",
        "hardtanh_",
        "leaky_relu_",
        "relu_",
        "rrelu_",
        "selu_",
        "threshold_",
    },
    "compared with the sum over all ways": {"ctc_loss"},
    "triplet_margin_loss by other distances": {"triplet_margin_with_distance_loss"},
    "avg_pool of powers": {"lp_pool1d", "lp_pool2d", "lp_pool3d"},
    "interpolate": {"upsample", "upsample_bilinear", "upsample_nearest"},
    "norms of the library": {"group_norm", "instance_norm"},
    "scaled_dot_product_attention in ops": {
        "attention_with_weights",
        "multi_head_attention_forward",
    },
}
"""Functions of `nn.functional` that no calls are drawn of, by what they are made of."""
PLANTED = ("right", "a unit off", "writes behind", "writes its input", "raises", "ends the process")


def test_calls_of_every_public_function_are_drawn() -> None:
    names = run.load()
    missing = set(K.__all__) - set(names) - COVERED - set(NOT_DRAWN)
    assert not missing, f"add draws of {sorted(missing)} to tests/fuzz"
    functional = {
        n
        for n, v in vars(F).items()
        if callable(v) and getattr(v, "__module__", "").startswith(F.__name__) and n[0] != "_"
    }
    forwards = {n for n in functional if hasattr(K, n)}  # the library's, of tensors
    others = set().union(*FUNCTIONAL_NOT_DRAWN.values())
    assert others <= functional
    missing = {f"F.{n}" for n in functional - forwards - others} - set(names)
    assert not missing, f"add draws of {sorted(missing)} to tests/fuzz"


def test_planted_faults_are_found_and_their_calls_named(tmp_path: Path) -> None:
    tally = run.many(0, 60, 1, list(PLANTED), tmp_path, frames=1.0, families=("planted",))
    found = {text.split("(")[0] for _, text in tally.wrong}
    assert found == {"a unit off", "writes behind", "writes its input", "raises"}
    assert tally.calls["right"] > 5
    assert tally.crashed and all("ends the process: ended" in text for _, text in tally.crashed)
    for number, _ in tally.crashed:
        assert run.name_of(number, sorted(PLANTED)) == "ends the process"


def test_a_number_makes_the_same_call_again() -> None:
    run.load()
    for name in ("matmul", "sort", "conv2d"):
        one, two = (DRAWS[name](Draw(12345, name)) for _ in range(2))
        for a, b in zip(one.args, two.args, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(a, b)
                assert a.strides == b.strides


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_what_is_rounded_twice_is_wrong(dtype: np.dtype) -> None:
    value = np.random.default_rng(0).standard_normal(1000)
    compare(value.astype(dtype), Want(value, dtype, 0.0))
    twice = (value.astype(dtype).astype(np.float64) * (1 + 2.0**-7)).astype(dtype)
    with pytest.raises(Wrong):
        compare(twice, Want(value, dtype, 0.0))
    with pytest.raises(Wrong, match="dtype"):
        compare(value, Want(value, dtype, 0.0))
    with pytest.raises(Wrong, match="shape"):
        compare(value.astype(dtype)[:5], exact(value.astype(dtype)))
    with pytest.raises(Wrong):
        compare(np.full(3, np.nan, dtype), summed(np.ones(3), np.ones(3), 5, dtype))


SAMPLE = ("map", "sum", "var", "argmax", "cumsum", "topk", "softmax", "layer_norm", "matmul",
          "gather", "scatter", "pad", "max_pool2d", "avg_pool2d", "interpolate", "F.linear")  # fmt: skip


@pytest.mark.parametrize("name", SAMPLE)
def test_random_calls_are_right_and_stay_in_their_frames(name: str) -> None:
    names = sorted(run.load())
    for number in [n for n in range(4000) if run.name_of(n, names) == name]:
        kind, text = run.one(number, name, 1.0)
        assert kind != "wrong", f"python scripts/fuzz_library.py --frames 1 --call {number}\n{text}"


@pytest.mark.parametrize("name", ["softmax", "concat", "batch_norm", "any", "uniform"])
def test_calls_may_be_made_on_a_device_with_its_own_memory(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = sorted(run.load())
    with pretend(monkeypatch):
        for number in [n for n in range(2000) if run.name_of(n, names) == name][:12]:
            kind, text = run.one(number, name, 0.0, NAME)
            assert kind != "wrong", text
