"""Sequences of several lengths: padded, packed, and in recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy.errors import ArgumentError, ShapeError
from cubepy.nn.utils.rnn import (
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
    unpad_sequence,
)

RNG = np.random.default_rng(0)
LENGTHS = [3, 5, 1, 4]
SEQUENCES = [RNG.standard_normal((n, 2)) for n in LENGTHS]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("side", ["right", "left"])
def test_padded_sequences(batch_first: bool, side: str) -> None:
    want = np.full((4, 5, 2), -1.0)
    for n, s in enumerate(SEQUENCES):
        want[n, slice(0, len(s)) if side == "right" else slice(5 - len(s), 5)] = s
    found = pad_sequence(SEQUENCES, batch_first, -1.0, side).numpy()
    np.testing.assert_array_equal(found, want if batch_first else want.swapaxes(0, 1))
    if side == "right":
        for a, b in zip(unpad_sequence(found, LENGTHS, batch_first), SEQUENCES, strict=True):
            np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("batch_first", [False, True])
def test_packed_sequences_come_back(batch_first: bool) -> None:
    padded = pad_sequence(SEQUENCES, batch_first)
    packed = pack_padded_sequence(padded, cb.tensor(LENGTHS), batch_first, enforce_sorted=False)
    order = np.argsort(LENGTHS)[::-1]
    want = [SEQUENCES[n][t] for t in range(5) for n in order if t < LENGTHS[n]]
    np.testing.assert_array_equal(packed.data.numpy(), want)
    assert packed.batch_sizes.tolist() == [4, 3, 3, 2, 1]
    assert packed.sorted_indices is not None and packed.sorted_indices.tolist() == order.tolist()
    back, lengths = pad_packed_sequence(packed, batch_first, padding_value=7.0, total_length=6)
    assert lengths.tolist() == LENGTHS and back.shape[1 if batch_first else 0] == 6
    for a, b in zip(unpad_sequence(back, lengths, batch_first), SEQUENCES, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)
    assert (back.numpy() == 7.0).sum() == 2 * (24 - sum(LENGTHS))
    for a, b in zip(unpack_sequence(pack_sequence(SEQUENCES, False)), SEQUENCES, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM, "projected"])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("program", [False, True])
def test_layers_take_each_sequence_for_itself(
    kind: Any, bidirectional: bool, program: bool
) -> None:
    more = {"proj_size": 2} if kind == "projected" else {}
    kind = nn.LSTM if more else kind
    layer = kind(2, 3, 2, bidirectional=bidirectional, **more).double()
    first = RNG.standard_normal((4 if bidirectional else 2, 4, 3))

    def states(n: Any) -> Any:
        part = cb.tensor(first if n is None else first[:, n : n + 1])
        return (part[..., : more.get("proj_size")], part) if kind is nn.LSTM else part

    def run(x: Any) -> Any:
        packed = pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        y, ends = layer(packed, states(None))
        return pad_packed_sequence(y)[0], ends

    x = pad_sequence(SEQUENCES).requires_grad_()
    y, ends = (cb.jit(run) if program else run)(x)
    for n, s in enumerate(SEQUENCES):
        own, last = layer(s[:, None], states(n))
        np.testing.assert_allclose(y.numpy()[: len(s), n], own.numpy()[:, 0], rtol=1e-10)
        assert not y.numpy()[len(s) :, n].any()
        for a, b in zip(*((ends, last) if kind is nn.LSTM else ((ends,), (last,))), strict=True):
            np.testing.assert_allclose(a.numpy()[:, n], b.numpy()[:, 0], rtol=1e-10)
    (y**2).sum().backward()
    given, other = x.grad.numpy(), [cb.tensor(s, requires_grad=True) for s in SEQUENCES]
    for n, s in enumerate(other):
        (layer(s.unsqueeze(1), states(n))[0] ** 2).sum().backward()
        np.testing.assert_allclose(given[: len(s), n], s.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_wrong_lengths_are_refused() -> None:
    x = np.ones((5, 2, 3))
    with pytest.raises(ArgumentError, match=r"lengths fall, not \[2, 5\]"):
        pack_padded_sequence(x, [2, 5])
    with pytest.raises(ShapeError, match=r"lengths are from 1 to 5, not \[6, 1\]"):
        pack_padded_sequence(x, [6, 1])
    with pytest.raises(ShapeError, match="there are 2 sequences"):
        pack_padded_sequence(x, [5])
    with pytest.raises(ShapeError, match="total_length is at least 5, not 4"):
        pad_packed_sequence(pack_padded_sequence(x, [5, 1]), total_length=4)
    with pytest.raises(ArgumentError, match="no PackedSequence"):
        pad_packed_sequence(x)
    with pytest.raises(ArgumentError, match="there are no sequences"):
        pad_sequence([])
    with pytest.raises(ArgumentError, match="'right' or 'left', not 'top'"):
        pad_sequence([x], padding_side="top")
