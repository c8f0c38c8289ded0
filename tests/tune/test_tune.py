"""Choosing between routines: by guess, by measurement, by force. Clocks are made up, so nothing
here is timed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from cubepy.config import config
from cubepy.errors import TuneError, TuneWarning
from cubepy.tune import Decision, Trial, TunedOp, TunedRoutine, Tuner, Work, force
from cubepy.tune.race import LIMITS, Limits, winner
from cubepy.tune.roofline import Peaks
from cubepy.tune.routine import OPS
from cubepy.tune.table import Table


class Problem(NamedTuple):
    device: str
    n: int
    dtype: str = "f32"


@dataclass(frozen=True)
class Plan:
    width: int


class Fake(TunedRoutine):
    """out = 2 x; each blueprint 'takes' as many seconds as `cost` says."""

    def __init__(
        self,
        name: str,
        cost: dict[int, float],
        group: int = 0,
        spoil: Callable[..., Any] | None = None,
    ) -> None:
        self.name, self.cost, self._group, self.spoil = name, cost, group, spoil
        self.launches: list[int] = []

    def group(self, key: Problem) -> int:
        return self._group

    def supports(self, problem: Problem, properties: Any) -> str | None:
        return "only f32" if problem.dtype != "f32" else None

    def blueprints(self, problem: Problem, properties: Any) -> list[Plan]:
        return [Plan(width) for width in self.cost]

    def launch(self, blueprint: Plan, problem: Problem, args: tuple[Any, ...]) -> None:
        CLOCK.seconds += self.cost[blueprint.width]
        self.launches.append(blueprint.width)
        args[1][...] = 2 * args[0]
        if self.spoil is not None:
            self.spoil(blueprint, args)


class Clock:
    """Time that passes only when a fake routine says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def time(self, run: Callable[[int], Any], count: int) -> float:
        start = self.seconds
        for i in range(count):
            run(i)
        return (self.seconds - start) / count

    def rest(self, spent: float) -> None:
        pass


CLOCK = Clock()


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path) -> Iterator[None]:
    """An empty table, and no operation left behind."""
    before = dict(OPS)
    with config.override(cache_dir=str(tmp_path / "cache"), cache=True, tune="none"):
        yield
    OPS.clear()
    OPS.update(before)


def tuner(peak: float = 0.0) -> Tuner:
    return Tuner(stopwatch=lambda device: CLOCK, peaks=lambda device, watch: Peaks(bytes=peak))


class Double(TunedOp):
    """Twice an array; what an option names is used in place of the method."""

    problem = Problem

    def __init__(self, name: str, routines: Sequence[TunedRoutine], **options: Any) -> None:
        super().__init__(name, routines)
        vars(self).update(options)

    def make(self, problem: Problem, seed: int) -> tuple[np.ndarray, ...]:
        x = np.random.default_rng(seed).standard_normal(problem.n).astype(np.float32)
        return x, np.zeros_like(x)

    def reference(self, problem: Problem, args: tuple[Any, ...]) -> list[np.ndarray] | None:
        return [2.0 * args[0].astype(np.float64)]


def double(*routines: TunedRoutine, **options: Any) -> TunedOp:
    return Double("double", routines, **options)


HERE = Problem("cpu", 100)


def plan(t: Tuner, op: TunedOp, problem: Problem = HERE) -> tuple[str, int]:
    found = t.choose(op, problem)
    return found.routine.name, found.blueprint.width


def trial(decision: Decision, width: int) -> Any:
    return next(t for t in decision.trials if t.blueprint == repr(Plan(width)))


# Without measuring


def test_without_tuning_the_first_guess_is_used_and_nothing_runs() -> None:
    slow, fast = Fake("slow", {1: 5.0, 2: 1.0}), Fake("fast", {3: 0.1})
    t = tuner()
    assert plan(t, double(slow, fast)) == ("slow", 1)
    assert not slow.launches and not fast.launches and t.measured == 0


def test_a_higher_group_comes_first_and_a_negative_one_only_when_forced() -> None:
    a, b, c = Fake("a", {1: 1.0}), Fake("b", {2: 1.0}, group=1), Fake("c", {3: 1.0}, group=-1)
    op = double(a, b, c)
    assert [x.routine.name for x in op.candidates(HERE)] == ["b", "a"]
    with force("double", "c"):
        assert plan(tuner(), op) == ("c", 3)


def test_an_unsuitable_problem_names_every_routine_and_its_reason() -> None:
    op = double(Fake("a", {1: 1.0}), Fake("b", {}, group=-1))
    with pytest.raises(TuneError, match="no routine of double") as info:
        tuner().choose(op, Problem("cpu", 4, "f64"))
    assert "a: only f32" in str(info.value)


def test_a_problem_must_say_its_device() -> None:
    class Bare(NamedTuple):
        n: int

    with pytest.raises(TuneError, match="field 'device'"):
        type("BareOp", (TunedOp,), {"problem": Bare})("bare", [])


# Measuring


def test_the_fastest_candidate_wins_and_is_remembered() -> None:
    op = double(Fake("a", {1: 4e-3, 2: 2e-3}), Fake("b", {3: 1e-3, 4: 3e-3}))
    t = tuner()
    with config.override(tune="quick"):
        assert plan(t, op) == ("b", 3)
        assert plan(t, op) == ("b", 3)
        assert plan(t, op, Problem("cpu", 128)) == ("b", 3), "100 and 128 share a key"
    assert t.measured == 1
    assert plan(tuner(), op) == ("b", 3), (
        "another process finds it on disk, without leave to measure"
    )
    assert plan(tuner(), op, Problem("cpu", 129)) == ("a", 1), "another key is not tuned"


def test_slow_candidates_drop_out_early() -> None:
    a = Fake("a", {1: 1e-3, 2: 20e-3, 3: 1.7e-3})
    d = tuner().tune(double(a), HERE, "quick")
    assert [t.status for t in d.trials] == ["measured", "slow", "slow"]
    assert len(trial(d, 2).samples) == 1 and len(trial(d, 3).samples) == 3
    assert d.stopped == "alone" and len(trial(d, 1).samples) == 3


def test_candidates_take_turns_on_different_arguments() -> None:
    used: list[tuple[int, int]] = []
    a = Fake(
        "a",
        {1: 1e-3, 2: 1e-3},
        spoil=lambda blueprint, args: used.append((blueprint.width, id(args[0]))),
    )
    limits = Limits(seconds=100.0, sample=0.0, least=3, most=3)
    tuner().tune(double(a), HERE, "quick", limits)
    turns = [
        w for w, _ in used[8::3]
    ]  # after one checked and three timed first runs each; three runs are a sample
    assert turns == [1, 2, 2, 1, 1, 2]
    used.clear()
    tuner().tune(double(a), HERE, "quick", Limits(seconds=100.0, sample=2e-3, least=3, most=3))
    assert len({x for _, x in used}) > 1


def test_a_race_ends_at_the_roofline() -> None:
    op = double(Fake("a", {1: 1e-3, 2: 1.1e-3}), work=lambda problem: Work(bytes=1000))
    d = tuner(peak=1e6 / 0.9).tune(op, HERE, "quick")
    assert d.stopped == "roofline" and len(trial(d, 1).samples) == 2
    assert d.bound == pytest.approx(0.9e-3) and "90% of the roofline" in str(d)
    for share in (0.5, 1.5):
        d = tuner(peak=1e6 / share).tune(op, HERE, "quick")
        assert d.stopped == "samples", (
            "far from the bound, or beyond it, which shows that the bound is wrong"
        )
        assert len(trial(d, 1).samples) == LIMITS["quick"].most


def test_a_race_ends_with_its_time_and_the_first_guess_is_always_sampled() -> None:
    a = Fake("a", {1: 1.0, 2: 0.9, 3: 0.1})
    d = tuner().tune(double(a), HERE, "quick")
    assert d.stopped == "budget" and trial(d, 1).samples
    assert trial(d, 3).status == "untried" and trial(d, 3).reason == "no time left"
    assert d.spent < 2 * LIMITS["quick"].seconds


def test_quick_stops_at_the_first_group_that_works_and_full_tries_all() -> None:
    op = double(Fake("a", {1: 1e-3}), Fake("b", {2: 2e-3}, group=5))
    assert tuner().tune(op, HERE, "quick").winner == "b Plan(width=2)"
    assert tuner().tune(op, HERE, "full").winner == "a Plan(width=1)"

    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    op = double(Fake("a", {1: 1e-3}), Fake("b", {2: 1e-6}, group=5, spoil=fail))
    assert tuner().tune(op, HERE, "quick").winner == "a Plan(width=1)", (
        "a group that fails is passed over"
    )


def test_equal_times_go_to_the_preferred_candidate() -> None:
    d = tuner().tune(double(Fake("a", {1: 1.01e-3, 2: 1e-3})), HERE, "quick")
    assert d.winner == "a Plan(width=1)"


def test_where_noise_hides_the_difference_the_first_guess_stays() -> None:
    trials = [
        Trial("a", "Plan(1)", samples=[1.0, 5.0, 9.0], status="measured"),
        Trial("a", "Plan(2)", samples=[1.1, 2.0, 8.0], status="measured"),
    ]
    assert winner(trials) is trials[0]
    trials[0].samples = [3.0, 5.0, 9.0]
    assert winner(trials) is trials[1]
    trials.append(Trial("a", "Plan(3)", samples=[1.5, 1.5, 1.6], status="measured"))
    assert winner(trials) is trials[2]  # one lucky sample of the second does not count
    assert winner([Trial("a", "Plan(1)")]) is None


def test_full_measures_again_what_quick_has_found_but_not_the_other_way() -> None:
    op, t = double(Fake("a", {1: 2e-3, 2: 1e-3})), tuner()
    for level, races in (("quick", 1), ("full", 2), ("quick", 2), ("none", 2)):
        with config.override(tune=level):
            assert plan(t, op) == ("a", 2)
        assert t.measured == races


# Candidates that do not work


def test_failing_and_wrong_candidates_are_excluded_and_reported() -> None:
    def spoil(blueprint: Plan, args: Any) -> None:
        if blueprint.width == 1:
            raise MemoryError("too many registers\nmore text")
        if blueprint.width == 2:
            args[1][7] += 1

    op = double(Fake("a", {1: 1e-6, 2: 1e-6, 3: 1e-3}, spoil=spoil))
    with pytest.warns(TuneWarning, match="1 candidates give other results"):
        d = tuner().tune(op, HERE, "quick")
    assert d.winner == "a Plan(width=3)"
    assert [(t.status, t.blueprint) for t in d.excluded] == [
        ("failed", "Plan(width=1)"),
        ("wrong", "Plan(width=2)"),
    ]
    assert d.excluded[0].reason == "MemoryError: too many registers"
    assert (
        d.excluded[1].reason.startswith("element (7,) is")
        and "1 of 100 differ" in d.excluded[1].reason
    )
    assert "failed" in str(d) and "wrong" in str(d)
    assert plan(tuner(), op) == ("a", 3), "the first guess is known to fail here"


def test_a_candidate_that_writes_nothing_is_wrong() -> None:
    class Lazy(Fake):
        def launch(self, blueprint: Plan, problem: Problem, args: tuple[Any, ...]) -> None:
            CLOCK.seconds += 1e-9

    with pytest.warns(TuneWarning, match="is nan"):
        d = tuner().tune(double(Fake("a", {1: 1e-3}), Lazy("lazy", {2: 0.0})), HERE, "quick")
    assert d.winner == "a Plan(width=1)" and d.excluded[0].routine == "lazy"


def test_without_a_reference_the_first_that_works_is_the_reference() -> None:
    def spoil(blueprint: Plan, args: Any) -> None:
        args[1][...] += blueprint.width - 1

    op = double(Fake("a", {1: 1e-3, 2: 1e-6}, spoil=spoil), reference=lambda problem, args: None)
    with pytest.warns(TuneWarning):
        assert tuner().tune(op, HERE, "quick").winner == "a Plan(width=1)"


def test_a_candidate_that_fails_while_it_is_timed_is_excluded() -> None:
    runs = {1: 0, 2: 0}

    def spoil(blueprint: Plan, args: Any) -> None:
        runs[blueprint.width] += 1
        if blueprint.width == 2 and runs[2] > 5:
            raise RuntimeError("worn out")

    d = tuner().tune(double(Fake("a", {1: 2e-3, 2: 1e-3}, spoil=spoil)), HERE, "quick")
    assert d.winner == "a Plan(width=1)" and d.excluded[0].reason == "RuntimeError: worn out"


def test_when_nothing_works_tuning_says_why_and_work_goes_on_with_the_guess() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no such instruction")

    op, t = double(Fake("a", {1: 1e-3}, spoil=fail)), tuner()
    with pytest.raises(TuneError, match="no candidate of double works") as info:
        t.tune(op, HERE, "quick")
    assert "no such instruction" in str(info.value)
    with config.override(tune="quick"), pytest.warns(TuneWarning, match="was not tuned"):
        assert plan(t, op) == ("a", 1)


def test_outputs_that_are_inputs_start_afresh_for_every_check() -> None:
    class Add(Fake):
        def launch(self, blueprint: Plan, problem: Problem, args: tuple[Any, ...]) -> None:
            CLOCK.seconds += self.cost[blueprint.width]
            args[0][...] += 1

    class Increment(TunedOp):
        problem = Problem
        in_place = True

        def make(self, problem: Problem, seed: int) -> tuple[np.ndarray, ...]:
            return (np.zeros(problem.n),)

        def reference(self, problem: Problem, args: tuple[Any, ...]) -> list[np.ndarray]:
            return [args[0] + 1]

    op = Increment("increment", [Add("a", {1: 2e-3, 2: 1e-3})])
    assert tuner().tune(op, HERE, "quick").winner == "a Plan(width=2)"


# Force, record, threads


def test_force_picks_routine_blueprint_and_fields_for_a_block() -> None:
    op = double(Fake("a", {1: 1.0}), Fake("b", {2: 1.0, 3: 1.0}))
    t = tuner()
    assert plan(t, op) == ("a", 1)
    with force("double", "b"):
        assert plan(t, op) == ("b", 2)
        with force("double", "b", width=9):
            assert plan(t, op) == ("b", 9)
        with force("double", "b", Plan(3)):
            assert plan(t, op) == ("b", 3)
        with force("double", "inferred"):
            assert plan(t, op) == ("a", 1)
        assert plan(t, op) == ("b", 2)
    assert plan(t, op) == ("a", 1)


def test_force_leaves_other_operations_alone() -> None:
    op, t = double(Fake("a", {1: 1.0, 2: 1.0})), tuner()
    with force("matmul", "inferred"), t.record() as seen:
        assert t.choose(op, HERE) is t.choose(op, HERE), "the second time from memory"
    assert len(seen) == 1


def test_force_refuses_what_does_not_exist_or_fit() -> None:
    op, t = double(Fake("a", {1: 1.0})), tuner()
    with pytest.raises(TuneError, match="no routine 'z'"):
        force("double", "z")
    with pytest.raises(TuneError, match="no operation 'triple'"):
        force("triple", "a")
    with force("double", "a"), pytest.raises(TuneError, match="only f32"):
        t.choose(op, Problem("cpu", 4, "f64"))
    with force("double", "a", depth=3), pytest.raises(TuneError, match="depth"):
        t.choose(op, HERE)


def test_record_collects_what_is_asked_for_even_when_it_is_remembered() -> None:
    op, t = double(Fake("a", {1: 1.0})), tuner()
    t.choose(op, HERE)
    with t.record() as seen:
        for n in (100, 7, 100):
            t.choose(op, Problem("cpu", n))
    assert [p.n for _, p in seen] == [100, 7]


def test_a_routine_that_chooses_while_it_is_measured_measures_nothing_itself() -> None:
    t = tuner()
    inner = double(Fake("a", {1: 2e-3, 2: 1e-3}))
    chosen: list[int] = []
    asks = Fake("o", {1: 1e-3}, spoil=lambda blueprint, args: chosen.append(plan(t, inner)[1]))
    outer = Double("outer", [asks])
    with config.override(tune="quick"):
        t.choose(outer, HERE)
    assert set(chosen) == {1} and t.measured == 1


def test_other_threads_do_not_wait_for_a_measurement() -> None:
    t, seen = tuner(), []

    def elsewhere(blueprint: Plan, args: Any) -> None:
        thread = threading.Thread(target=lambda: seen.append(plan(t, op)))
        thread.start()
        thread.join(10)

    op = double(Fake("a", {1: 2e-3, 2: 1e-3}, spoil=elsewhere))
    with config.override(tune="quick"):
        assert plan(t, op) == ("a", 2)
    assert seen and set(seen) == {("a", 1)}
    assert t.measured == 1


def test_changed_candidates_make_old_results_void() -> None:
    t = tuner()
    t.tune(double(Fake("a", {1: 2e-3, 2: 1e-3})), HERE, "quick")
    assert plan(t, double(Fake("a", {1: 2e-3, 2: 1e-3}))) == ("a", 2)
    assert plan(t, double(Fake("a", {1: 2e-3, 2: 1e-3, 3: 1.0}))) == ("a", 1), "another candidate"
    newer = Fake("a", {1: 2e-3, 2: 1e-3})
    newer.version = 2
    assert plan(t, double(newer)) == ("a", 1), "another version of a routine"


def test_a_winner_that_does_not_fit_a_problem_of_its_key_gives_way_to_the_next() -> None:
    class Picky(Fake):
        def blueprints(self, problem: Problem, properties: Any) -> list[Plan]:
            return [Plan(w) for w in self.cost if problem.n % w == 0]

    op, t = double(Picky("a", {1: 3e-3, 4: 1e-3, 2: 2e-3})), tuner()
    assert t.tune(op, HERE, "quick").winner == "a Plan(width=4)"
    assert plan(t, op, HERE) == ("a", 4)
    assert plan(t, op, Problem("cpu", 98)) == ("a", 2)
    assert plan(t, op, Problem("cpu", 99)) == ("a", 1)


def test_a_key_whose_candidates_do_not_fit_a_problem_is_not_measured_again() -> None:
    class Odd(Fake):
        def blueprints(self, problem: Problem, properties: Any) -> list[Plan]:
            return [Plan(problem.n)]

    t = tuner()
    op = double(Odd("a", dict.fromkeys((97, 98, 99), 1e-3)))
    with config.override(tune="quick"):
        assert [plan(t, op, Problem("cpu", n)) for n in (97, 98, 99)] == [
            ("a", 97),
            ("a", 98),
            ("a", 99),
        ]
    assert t.measured == 1


def test_a_decision_survives_the_disk_whole() -> None:
    d = tuner().tune(double(Fake("a", {1: 2e-3, 2: 1e-3})), HERE, "quick")
    assert Table("cpu").read("double", d.key) == d
    assert list(Table("cpu")) == [d]


def test_what_another_process_has_found_meanwhile_is_taken_unless_it_is_asked_for_again() -> None:
    op = double(Fake("a", {1: 2e-3, 2: 1e-3}))
    first = tuner().tune(op, HERE, "quick")
    t = tuner()
    assert t.tune(op, HERE, "quick", again=False) == first and t.measured == 0
    t.tune(op, HERE, "quick")
    assert t.measured == 1
