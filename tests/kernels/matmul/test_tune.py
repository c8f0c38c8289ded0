"""Every routine of matmul, forced, gives the product; and the guess is what it should be."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.config import config
from cubepy.errors import TuneError
from cubepy.kernels.matmul.cpu.blocked import Tile
from cubepy.kernels.matmul.problem import Product
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.tune import Decision, Table, Trial
from cubepy.tune.keys import text_of
from tests.tune.agreement import wrong_candidates

PROBLEMS = [
    Product("cpu", 1, 100, 70, layout="columns"),
    Product("cpu", 7, 33, 70, layout="columns"),
    Product("cpu", 3, 100, 70),
    Product("cpu", 50, 600, 130),
    Product("cpu", 20, 30, 70, layout="strided"),
    Product("cpu", 20, 30, 70, packed=cb.device_properties_of().register_bytes),
    Product("cpu", 5, 30, 20, batch=3, a="f16", b="f16"),
    Product("cpu", 32, 600, 600),
    Product("cpu", 3, 50, 520),
    Product("cpu", 20, 31, 70, a="bf16", b="bf16"),
    Product("cpu", 20, 600, 64, batch=2, a="bf16", b="bf16", layout="columns", out="f32"),
    Product("cpu", 20, 33, 70, a="i8", b="i8", out="i32"),
    Product("cpu", 20, 30, 70),
    Product("cpu", 5, 30, 20, a="f64", b="f64"),
    Product("cpu", 50, 270, 130, a="f64", b="f64", layout="columns"),
    Product("cpu", 70, 600, 130, batch=2, a="f64", b="f64"),
    Product("cpu", 2, 600, 200, a="f64", b="f64"),
    Product("cpu", 1100, 30, 77, a="f64", b="f64"),
    Product("cpu", 90, 60, 3, a="f64", b="f64", layout="columns"),
    Product("cpu", 5, 30, 20, a="i32", b="i32"),
]


@pytest.mark.parametrize(
    "problem", PROBLEMS, ids=lambda p: f"{p.m}x{p.k}x{p.n}-{p.a}-{p.layout}-{p.packed}"
)
def test_candidates_of_every_routine_give_the_product(problem: Product) -> None:
    assert not wrong_candidates(MATMUL, problem, out=2)


WIDE = cb.device_properties_of("cpu").register_bytes >= 64
"""Whether this CPU has lines of 64 bytes; small products were measured on such ones, and on one with
lines of 32 and 16 registers.
"""


@pytest.mark.parametrize(
    "problem, name",
    [
        (Product("cpu", 1, 100, 70), "gemv"),
        (Product("cpu", 4, 100, 70), "gemv"),
        (Product("cpu", 5, 100, 70), "standing"),
        (Product("cpu", 64, 1000, 700, layout="columns"), "gemv" if WIDE else "tile"),
        (Product("cpu", 65, 1000, 700, layout="columns"), "tile"),
        (Product("cpu", 8, 100, 70, layout="columns"), "gemv"),
        (Product("cpu", 3, 10, 1788, layout="columns"), "gemv"),
        (Product("cpu", 16, 10, 1788, layout="columns"), "tile"),
        (Product("cpu", 16, 100, 70, layout="columns"), "tile"),
        (Product("cpu", 32, 500, 70, layout="columns"), "tile" if WIDE else "gemv"),
        (Product("cpu", 49, 100, 70, layout="columns"), "tile"),
        (Product("cpu", 8, 24, 96, layout="columns"), "tile"),
        (Product("cpu", 32, 100, 4096), "tile"),
        (Product("cpu", 97, 100, 4096), "tile"),
        (Product("cpu", 32, 100, 4096, a="bf16", b="bf16"), "tile"),
        (Product("cpu", 1, 100, 70, batch=2), "gemv"),
        (Product("cpu", 1, 100, 70, layout="strided"), "tile"),
        (Product("cpu", 1, 100, 70, packed=64), "tile"),
        (Product("cpu", 9, 9, 9, a="f64"), "plain"),  # of another dtype than b
        (Product("cpu", 9, 9, 9, a="f64", b="f64"), "standing"),
        (Product("cpu", 99, 99, 99, a="f64", b="f64"), "tile"),
        (Product("cpu", 9, 9, 9, a="u8", b="i8"), "standing"),
        (Product("cpu", 1, 99, 99, a="i32", b="i32"), "gemv"),
        (Product("cpu", 99, 99, 1, a="i8", b="i8"), "turned"),
        (Product("cpu", 99, 99, 99, a="i8", b="i8"), "plain"),
    ],
)
def test_the_guess(problem: Product, name: str) -> None:
    assert MATMUL.inferred(problem).routine.name == name


@pytest.mark.parametrize("routine", ["gemv", "tile", "plain"])
def test_a_forced_routine_gives_the_same_result(routine: str) -> None:
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((3, 50), np.float32), rng.standard_normal((40, 50), np.float32)
    with cb.tune.force("matmul", routine):
        np.testing.assert_allclose(
            K.matmul(a, w.T), a.astype(np.float64) @ w.T, rtol=1e-4, atol=1e-4
        )


def test_a_routine_that_cannot_do_what_is_asked_says_why() -> None:
    x = np.ones((4, 4), np.float32)
    with cb.tune.force("matmul", "plain"), pytest.raises(TuneError, match="no epilogue"):
        K.matmul(x, x, bias=x[0])
    with cb.tune.force("matmul", "gemv"), pytest.raises(TuneError, match="at most 4 rows"):
        K.matmul(np.ones((9, 4), np.float32), x)


def test_a_tuned_choice_is_used_by_matmul(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((100, 300), np.float32)
    used: list[object] = []
    launch = Tile.launch
    monkeypatch.setattr(
        Tile,
        "launch",
        lambda self, blueprint, *rest: (used.append(blueprint), launch(self, blueprint, *rest)),
    )
    with config.override(cache_dir=str(tmp_path), tune="none"), cb.tune.record() as seen:
        K.matmul(x, x.T.copy())
        ((op, problem),) = seen
        assert op is MATMUL and (problem.m, problem.k, problem.n, problem.layout) == (
            100,
            300,
            100,
            "rows",
        )
        guess, *_, third = list(islice(MATMUL.candidates(problem), 3))
        fields = {k: v for k, v in problem._asdict().items() if k != "device"}
        trials = [
            Trial(c.routine.name, repr(c.blueprint), samples=[1.0], status="measured")
            for c in (guess, third)
        ]
        checksum = MATMUL.checksum(problem)
        Table("cpu").write(
            Decision(
                "matmul",
                text_of(MATMUL.key(problem)),
                fields,
                "quick",
                checksum,
                third.name,
                trials,
            )
        )
        cb.tune.TUNER.forget()
        K.matmul(x, x.T.copy())
        with cb.tune.force("matmul", "inferred"):
            K.matmul(x, x.T.copy())
    cb.tune.TUNER.forget()
    assert used == [guess.blueprint, third.blueprint, guess.blueprint]
