"""Angles of rotary embeddings that depend on the length of a text."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy.models.architectures.decoder import Decoder, DecoderConfig
from cubepy.models.architectures.rotary import Rotary, rotary

SCALING = {"rope_type": "dynamic", "factor": 2.0}
SIZES = {"vocabulary": 30, "width": 32, "layers": 2, "heads": 4, "groups": 2, "depth": 8}


def test_dynamic_frequencies_are_those_of_transformers() -> None:
    """Of transformers 5.23, for heads of 8, 16 trained positions and a text of 40."""
    theirs = [1.0, 0.06299605220556259, 0.00396850286051631, 0.0002500000118743628]
    found = rotary(8, 10000.0, SCALING, 16)
    assert found.at_length(16) is None
    np.testing.assert_allclose(found.at_length(40), theirs, rtol=1e-6)
    np.testing.assert_array_equal(found.frequencies, rotary(8, 10000.0).frequencies)
    assert rotary(8, 10000.0).at_length(10**6) is None


def test_a_text_beyond_the_trained_positions_has_frequencies_of_its_length() -> None:
    angles = rotary(8, 10000.0, SCALING, 16)
    model = Decoder(DecoderConfig(**SIZES, inner=48, context=16, rotary=angles))
    grown = angles.at_length(40)
    assert grown is not None
    plain = Decoder(DecoderConfig(**SIZES, inner=48, context=64, rotary=Rotary(grown)))
    plain.load_state_dict(model.state_dict())
    short = Decoder(DecoderConfig(**SIZES, inner=48, context=64, rotary=rotary(8, 10000.0)))
    short.load_state_dict(model.state_dict())
    tokens = cb.tensor(np.random.default_rng(0).integers(0, 30, (2, 40)))
    with cb.no_grad():
        np.testing.assert_allclose(model(tokens).numpy(), plain(tokens).numpy(), rtol=1e-5)
        few = tokens[:, :16]
        np.testing.assert_allclose(model(few).numpy(), short(few).numpy(), rtol=1e-5)
        assert np.abs(model(tokens).numpy() - short(tokens).numpy()).max() > 1e-4
