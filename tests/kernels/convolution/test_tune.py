"""Every routine of convolutions, forced, gives the convolution; the guess is what it should be, and
what was measured is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.config import config
from cubepy.errors import TuneError
from cubepy.kernels.convolution.problem import Convolution
from cubepy.kernels.convolution.routines import CONVOLUTION, Block, Blocks, scattered
from cubepy.tune import Decision, Table, Trial
from cubepy.tune.check import difference
from cubepy.tune.command import _problem_of
from cubepy.tune.keys import text_of
from tests.tune.agreement import wrong_candidates


def image(
    n: int, channels: int, filters: int, size: int, k: int = 1, layout: Any = "first", **rest: Any
) -> Convolution:
    """A square image, padded so that a window leaves its size."""
    given = {"ph": k // 2, "pw": k // 2, "last": layout == "last", **rest}
    return Convolution(
        "cpu", n, channels, filters, height=size, width=size, kh=k, kw=k, layout=layout, **given
    )


PROBLEMS = [
    image(1, 5, 24, 9, 3),
    image(2, 5, 24, 9, 3, "last", packed=True, add=True),
    image(1, 20, 32, 16),
    image(1, 1, 1, 20, 3, groups=12),
    image(1, 1, 1, 9, 3, "last", groups=12, packed=True, sh=2, sw=2),
    image(1, 3, 4, 9, 3, "strided", groups=3, dtype="f16", weight="f16"),
    image(1, 3, 4, 6, 3, "last", depth=5, kd=2, dtype="bf16"),
]


@pytest.mark.turns(6)
@pytest.mark.parametrize(
    "p", PROBLEMS, ids=lambda p: f"{p.channels}-{p.filters}x{p.groups}-{p.kh}-{p.layout}-{p.dtype}"
)
def test_candidates_of_every_routine_give_the_convolution(p: Convolution) -> None:
    assert not wrong_candidates(CONVOLUTION, p, out=4)


@pytest.mark.parametrize(
    "blueprint", [Blocks(lines=1, finer=2.0), Blocks(parts=2, widen=True, transpose=True)], ids=repr
)
def test_other_blocks_give_the_same(blueprint: Blocks) -> None:
    p = image(1, 5, 40, 9, 3)
    args = CONVOLUTION.make(p, 1)
    Block().launch(blueprint, p, args)
    assert (
        difference(
            CONVOLUTION.results(p, args), CONVOLUTION.reference(p, args), *CONVOLUTION.tolerance(p)
        )
        is None
    )


@pytest.mark.parametrize(
    "p, name",
    [
        (image(1, 64, 64, 56, 3), "block"),
        (image(1, 64, 64, 56, 3, "last", packed=True), "block"),
        (image(1, 64, 256, 56), "points"),
        (image(1, 64, 256, 56, add=True), "points"),
        (image(1, 64, 256, 56, layout="last"), "block"),
        (image(1, 64, 256, 56, sh=2, sw=2), "block"),
        (image(1, 4096, 256, 56), "block"),  # more channels than a cube has memory for
        (image(1, 3, 4, 56, 3), "rows"),
        (
            image(1, 16, 8, 28, 3),
            "rows" if cb.device_properties_of("cpu").register_bytes <= 32 else "block",
        ),
        (image(1, 17, 8, 28, 3), "block"),
        (image(1, 16, 9, 28, 3), "block"),
        (image(1, 4, 4, 56, 3, groups=32), "rows"),
        (image(1, 32, 32, 14, 3, groups=32), "block"),
        (image(1, 1, 1, 56, 3, groups=128), "planes"),
        (image(1, 1, 1, 56, 3, "last", groups=128), "channels"),
        (
            image(1, 1, 1, 5, 3, groups=128, dd=1, ph=0, pw=0, sh=3, sw=3),
            "rows",
        ),  # rows shorter than a line
    ],
)
def test_the_guess(p: Convolution, name: str) -> None:
    found = CONVOLUTION.inferred(p)
    assert (found.routine.name, found.blueprint) == (
        name,
        next(iter(found.routine.blueprints(p, cb.device_properties_of("cpu")))),
    )


def test_without_a_measurement_nothing_is_changed_by_a_blueprint() -> None:
    for p in CONVOLUTION.typical("cpu"):
        assert all(not v or v == 1.0 for v in vars(CONVOLUTION.inferred(p).blueprint).values())


def test_images_are_turned_where_a_plane_has_few_places_or_a_stride_leaves_most_out() -> None:
    few = cb.device_properties_of("cpu").register_bytes <= 32
    found = [
        scattered(image(1, c, 64, size, sh=s, sw=s))
        for c, size, s in ((512, 7, 1), (512, 28, 2), (512, 28, 1))
    ]
    assert found == [few, few, False]
    assert not any(scattered(p) for p in (image(1, 64, 64, 7), image(1, 512, 512, 7, 3)))


@pytest.mark.parametrize("routine", ["block", "rows", "columns"])
def test_a_forced_routine_gives_the_same_result(routine: str) -> None:
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal((1, 5, 9, 8), np.float32),
        rng.standard_normal((6, 5, 3, 3), np.float32),
    )
    usual = K.conv2d(x, w, padding=1)
    with cb.tune.force("convolution", routine):
        np.testing.assert_allclose(K.conv2d(x, w, padding=1), usual, atol=1e-4)


def test_a_routine_that_cannot_do_what_is_asked_says_why() -> None:
    x, w = np.ones((1, 4, 6, 6), np.float32), np.ones((4, 4, 3, 3), np.float32)
    with (
        cb.tune.force("convolution", "planes"),
        pytest.raises(TuneError, match="depthwise, channels first"),
    ):
        K.conv2d(x, w)
    with (
        cb.tune.force("convolution", "columns"),
        pytest.raises(TuneError, match="filters are packed"),
    ):
        K.conv2d(x, K.prepack_filter(w))
    with cb.tune.force("convolution", "boxes"), pytest.raises(TuneError, match="for GPUs"):
        K.conv2d(x, w)


def test_a_problem_from_the_command_line_is_that_of_a_call() -> None:
    given = _problem_of(
        CONVOLUTION, "n=2,channels=5,filters=6,height=9,width=8,kh=3,kw=3,ph=1,pw=1", "cpu"
    )
    with cb.tune.record() as seen:
        K.conv2d(np.ones((2, 5, 9, 8), np.float32), np.ones((6, 5, 3, 3), np.float32), padding=1)
    assert (CONVOLUTION, given) in seen


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_tuned_choice_is_used_by_calls_that_were_repeated(
    packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = np.ones((1, 5, 9, 8), np.float32), np.ones((40, 5, 3, 3), np.float32)
    filters = K.prepack_filter(w) if packed else w
    used: list[object] = []
    launch = Block.launch
    monkeypatch.setattr(
        Block,
        "launch",
        lambda self, blueprint, *rest: (used.append(blueprint), launch(self, blueprint, *rest)),
    )
    with config.override(cache_dir=str(tmp_path), tune="none"), cb.tune.record() as seen:
        for _ in range(3):
            K.conv2d(x, filters, padding=1)
        ((_, p),) = seen
        assert (p.packed, p.channels, p.filters, p.height, p.kh, p.ph) == (packed, 5, 40, 9, 3, 1)
        guess, other = (
            c for c in CONVOLUTION.candidates(p) if c.blueprint in (Blocks(), Blocks(finer=2.0))
        )
        fields = {k: v for k, v in p._asdict().items() if k != "device"}
        trials = [
            Trial(c.routine.name, repr(c.blueprint), samples=[1.0], status="measured")
            for c in (guess, other)
        ]
        key, checksum = text_of(CONVOLUTION.key(p)), CONVOLUTION.checksum(p)
        Table("cpu").write(
            Decision("convolution", key, fields, "quick", checksum, other.name, trials)
        )
        cb.tune.TUNER.forget()
        for _ in range(3):
            K.conv2d(x, filters, padding=1)
        with cb.tune.force("convolution", "inferred"):
            K.conv2d(x, filters, padding=1)
    cb.tune.TUNER.forget()
    begin = used.index(other.blueprint)  # calls that are repeated launch without asking
    assert set(used[:begin]) == {guess.blueprint} and set(used[begin:-1]) == {other.blueprint}
    assert used[-1] == guess.blueprint


def test_one_convolution_is_measured_and_a_second_process_would_measure_nothing(
    tmp_path: Path,
) -> None:
    p = image(1, 1, 1, 9, 3, "last", groups=12, packed=True)
    with config.override(cache_dir=str(tmp_path), tune="quick"):
        tuner = cb.tune.Tuner()
        decision = tuner.tune(CONVOLUTION, p, "quick")
        other = cb.tune.Tuner()
        assert other.choose(CONVOLUTION, p).name == decision.winner and other.measured == 0
    assert [t.name for t in decision.excluded] == []
