"""Every routine of attention, forced, gives the attention; the guess is what it should be, and what
was measured is used.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.config import config
from cubepy.errors import TuneError
from cubepy.kernels.attention.flash_lines import QueryBlocks
from cubepy.kernels.attention.problem import Attention
from cubepy.kernels.attention.routines import ATTENTION, Lines
from cubepy.tune import Decision, Table, Trial
from cubepy.tune.check import difference
from cubepy.tune.keys import text_of
from tests.tune.agreement import wrong_candidates

PROBLEMS = [
    Attention("cpu", 1, 4, 40, 50, 24, groups=2),
    Attention("cpu", 2, 2, 37, 30, 16, width=24, mask="bool", causal=True),
    Attention("cpu", 1, 2, 5, 70, 32, mask="float", dtype="f16"),
]


@pytest.mark.parametrize("p", PROBLEMS, ids=lambda p: f"{p.length}x{p.keys}-{p.mask}-{p.dtype}")
def test_candidates_of_every_routine_give_the_attention(p: Attention) -> None:
    assert not wrong_candidates(ATTENTION, p, out=4)


@pytest.mark.parametrize("blueprint", [QueryBlocks((12, 1), keys=24, tiles=2)], ids=repr)
def test_other_strips_give_the_same(blueprint: QueryBlocks) -> None:
    p = Attention("cpu", 1, 1, 50, 60, 16, causal=True)
    args = ATTENTION.make(p, 1)
    Lines().launch(blueprint, p, args)
    assert (
        difference(
            ATTENTION.results(p, args), ATTENTION.reference(p, args), *ATTENTION.tolerance(p)
        )
        is None
    )


@pytest.mark.parametrize(
    ("length", "name"), [(1, "few"), (12, "few"), (13, "lines"), (1024, "lines")]
)
def test_the_guess(length: int, name: str) -> None:
    assert ATTENTION.inferred(Attention("cpu", 1, 8, length, 1024, 64)).routine.name == name


def test_matrix_units_are_guessed_where_they_take_the_arrays() -> None:
    names = [
        (u, ATTENTION.guess(Attention("cpu", 1, 8, 5, 64, 64, units=u)))
        for u in ("wgmma", "mma", "")
    ]
    assert names == [("wgmma", "hopper"), ("mma", "planes"), ("", "few")]


def test_typical_problems_have_candidates() -> None:
    found = [ATTENTION.inferred(p) for p in ATTENTION.typical("cpu")]
    assert {c.routine.name for c in found} == {"few", "lines"}


def test_a_forced_routine_gives_the_same_result_and_another_device_s_says_why() -> None:
    rng = np.random.default_rng(0)
    q, k = (
        rng.standard_normal((1, 2, 20, 16), np.float32),
        rng.standard_normal((1, 2, 30, 16), np.float32),
    )
    usual = K.attention(q, k, k)
    for routine in ("few", "lines"):
        with cb.tune.force("attention", routine):
            np.testing.assert_allclose(K.attention(q, k, k), usual, atol=1e-5)
            np.testing.assert_allclose(K.attention_forward(q, k, k)[0], usual, atol=1e-5)
    with cb.tune.force("attention", "hopper"), pytest.raises(TuneError, match="not for wgmma"):
        K.attention(q, k, k)


def test_a_tuned_choice_is_used_by_attention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = np.ones((1, 2, 40, 48), np.float32)
    used: list[object] = []
    launch = Lines.launch
    monkeypatch.setattr(
        Lines,
        "launch",
        lambda self, blueprint, *rest: (used.append(blueprint), launch(self, blueprint, *rest)),
    )
    with config.override(cache_dir=str(tmp_path), tune="none"), cb.tune.record() as seen:
        K.attention(q, q, q, is_causal=True)
        ((op, p),) = seen
        assert op is ATTENTION and (p.heads, p.length, p.keys, p.depth, p.causal) == (
            2,
            40,
            40,
            48,
            True,
        )
        guess, other = (QueryBlocks(), QueryBlocks(keys=24))
        fields = {k: v for k, v in p._asdict().items() if k != "device"}
        trials = [Trial("lines", repr(b), samples=[1.0], status="measured") for b in (guess, other)]
        key, checksum = text_of(ATTENTION.key(p)), ATTENTION.checksum(p)
        Table("cpu").write(
            Decision("attention", key, fields, "quick", checksum, trials[1].name, trials)
        )
        cb.tune.TUNER.forget()
        K.attention(q, q, q, is_causal=True)
        K.attention_forward(q, q, q, True)
        with cb.tune.force("attention", "inferred"):
            K.attention(q, q, q, is_causal=True)
    cb.tune.TUNER.forget()
    assert used == [guess, other, other, guess]
