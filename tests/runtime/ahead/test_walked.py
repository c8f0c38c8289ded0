"""Walks of other processes: what is kept of them is what a walk gives, and every doubt walks again."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cubepy as cb
import cubepy.kernels as K
from cubepy.backends.cpu.backend import CpuExecutable
from cubepy.backends.cpu.compile import numba_version
from cubepy.compiler.specialise import specialise
from cubepy.kernels.primitives.functions import gelu_tanh, relu
from cubepy.runtime import cache
from cubepy.runtime.ahead import described as text_of
from cubepy.runtime.ahead import walked
from cubepy.runtime.ahead.described import Unknown, described

RNG = np.random.default_rng(0)
PROCESS = """
import sys
import cubepy as cb, numpy as np
from cubepy import nn
from cubepy.runtime.ahead import described, walked
described.MARGIN = -1e9
walks = []
one = walked.specialise
walked.specialise = lambda kernel, *given: walks.append(kernel.__name__) or one(kernel, *given)
model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3))
with cb.no_grad():
    for n, p in enumerate(model.parameters()):
        p.assign_(np.cos(np.arange(p.size, dtype=np.float32) + n).reshape(p.shape))
rule = nn.optim.AdamW(model.parameters(), lr=0.01)
@cb.jit
def step(x):
    rule.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    rule.step()
    return loss
x = cb.tensor(np.sin(np.arange(30, dtype=np.float32)).reshape(5, 6))
losses = [step(x).item().hex() for _ in range(5)]
heavy = [n for n in ("numba", "numpy.ma", "cubepy.compiler.specialise") if n in sys.modules]
print(losses, len(walks), cb.stats().compiled, heavy, sep="|")
"""


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A cache of its own, and files that were written long ago."""
    monkeypatch.setattr(text_of, "MARGIN", -1e9)
    text_of.sources.cache_clear()
    text_of._later.cache_clear()
    with cb.config.override(cache_dir=str(tmp_path)):
        yield
    text_of.sources.cache_clear()
    text_of._later.cache_clear()


def process(folder: Path) -> list[str]:
    environment = os.environ | {"CUBEPY_CACHE_DIR": str(folder), "CUBEPY_CACHE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROCESS], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().split("|")


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A cache with what the first process left, and what that printed."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, process(folder)


def test_a_second_process_walks_and_compiles_nothing(left: tuple[Path, list[str]]) -> None:
    folder, first = left
    assert int(first[1]) > 5 and int(first[2]) > 5
    assert process(folder) == [first[0], "0", "0", "[]"]


def test_damaged_records_and_code_that_is_gone_are_made_anew(
    left: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, first = left
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for n, path in enumerate(sorted((tmp_path / "code").glob("*/*.walk"))):
        data = path.read_bytes()
        if n % 3 == 0:
            path.write_bytes(data[:-3])
        elif n % 3 == 1:
            cache.write_atomically(path, bytes([data[0] ^ 1]) + data[1:])
    for n, path in enumerate(sorted((tmp_path / "code").glob("*/*.bin"))):
        if n % 2:
            path.unlink()
    again = process(tmp_path)
    assert again[0] == first[0] and int(again[1]) > 0 and int(again[2]) > 0
    assert process(tmp_path) == [first[0], "0", "0", "[]"]


def test_the_version_of_numba_is_the_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = importlib.metadata.version("numba")
    assert numba_version() == installed
    monkeypatch.setattr("pathlib.Path.glob", lambda *given: iter(()))  # as of a checkout
    assert numba_version() == installed


def specialised(call: Callable[[], Any]) -> list[tuple[Any, Any, Any]]:
    """The kernels of the library that a call launches, with their specs and targets."""
    modules = [m for n, m in sys.modules.items() if n.startswith("cubepy.kernels.")]
    kernels = {
        id(v): v for m in modules for v in vars(m).values() if type(v).__name__ == "Kernel"
    }.values()
    before = {id(k): set(k.launches.programs) for k in kernels if k._launcher is not None}
    call()
    return [
        (k, *key)
        for k in kernels
        if k._launcher is not None
        for key in k.launches.programs
        if key not in before.get(id(k), ())
    ]


@cb.func
def of_a_user(x: Any) -> Any:
    return x * 2.5


CALLS: list[Callable[[Any], Any]] = [
    lambda x: K.softmax(x, axis=-1),
    lambda x: K.layer_norm(x, x.shape[-1:]),
    lambda x: K.matmul(x, x.T.copy()),
    lambda x: K.matmul(np.float32(x), np.float32(x.T.copy()), activation=relu),
    lambda x: K.sum(x, axis=0),
    lambda x: K.sum(x),
    lambda x: K.argmax(x, axis=1),
    lambda x: K.map(gelu_tanh, x),
    lambda x: K.sort(x, axis=-1),
    lambda x: K.cumsum(x, axis=1),
    lambda x: K.copy(x.T),
    lambda x: (cb.tensor(x).exp() * 2 - cb.tensor(x[:1])).relu().sum(-1),
    lambda x: cb.jit(lambda t: ((t - t.mean(-1, keepdim=True)).exp() + 1).sum(-1))(cb.tensor(x)),
]


@given(
    st.sampled_from(range(len(CALLS))),
    st.sampled_from([(3, 5), (8, 64), (17, 33), (64, 64), (2, 1000)]),
    st.sampled_from([np.float32, np.float64]),
)
def test_what_is_kept_is_what_a_walk_gives(which: int, shape: Any, dtype: Any) -> None:
    x = np.asarray(RNG.standard_normal(shape), dtype)
    kept: dict[str, bytes] = {}
    for kernel, specs, target in specialised(lambda: CALLS[which](x)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_of, "MARGIN", -1e9)
            text_of.sources.cache_clear()
            text_of._later.cache_clear()
            patch.setattr(cache, "read", lambda key, suffix=".bin": kept.get(key + suffix))
            patch.setattr(
                cache, "write", lambda key, data, suffix=".bin": kept.update({key + suffix: data})
            )
            name = walked.name_of(kernel, specs, target)
            plain = specialise(kernel, specs, target)
            assert name == walked.name_of(kernel, specs, target)
            made = [walked.program_of(kernel, specs, target) for _ in range(2)]
            text_of.sources.cache_clear()
            text_of._later.cache_clear()
            if name is None or plain.guard is not None:
                assert not any(isinstance(p, walked.Walked) for p in made)
                continue
            assert [type(p) for p in made] == [type(plain), walked.Walked]
            for in_place in (False, True):
                codes = [CpuExecutable(p, in_place) for p in (plain, *made)]
                known = [(c.key, c.symbol, c.sites, c.assumes) for c in codes]
                assert known[0] == known[1] == known[2]
                assert "body" not in vars(made[1]) and "emitted" not in vars(codes[2])
            assert codes[2].emitted == codes[0].emitted
            for field in dataclasses.fields(plain):
                if field.name != "kept":
                    both = [repr(getattr(p, field.name)) for p in (made[1], plain)]
                    assert both[0] == both[1], field.name  # as texts, since NaN is not NaN


def test_kernels_and_functions_of_users_are_walked(settled: None) -> None:
    @cb.kernel
    def double(x: cb.Array, out: cb.Array) -> None:
        if cb.ABSOLUTE_POS < out.size:
            out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 2

    x = np.ones((4, 8), np.float32)
    double[cb.over(8)](x[0], x[1])
    (own,) = double.launches.programs
    assert walked.name_of(double, *own) is None
    found = specialised(lambda: K.map(of_a_user, x))
    assert found and all(walked.name_of(*one) is None for one in found)


def test_a_changed_file_is_another_name(
    settled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(text_of, "_folders", lambda: (str(folder),))
    state = text_of.scanned()
    assert state is not None and state == text_of.scanned()
    os.utime(folder / "a.py", ns=(1, 1))
    assert text_of.scanned() not in (None, state)
    state = text_of.scanned()
    (folder / "b.py").write_text("")
    assert text_of.scanned() not in (None, state)
    assert text_of.sources() is not None and text_of.unchanged()
    (folder / "b.py").write_text("y")
    text_of.sources.cache_clear()
    text_of._later.cache_clear()
    monkeypatch.setattr(text_of, "MARGIN", 10.0)
    assert text_of.scanned() is None and not text_of.unchanged()  # written a moment ago
    text_of.sources.cache_clear()
    text_of._later.cache_clear()


def test_files_of_one_time_are_told_by_what_is_in_them(
    settled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(text_of, "_folders", lambda: (str(tmp_path),))
    states = set()
    for text in ("x = 1", "x = 2"):
        for name in ("a.py", "b.py"):
            (tmp_path / name).write_text(text)
            os.utime(tmp_path / name, ns=(1, 1))
        states.add(text_of.scanned())
    assert len(states) == 2 and None not in states


def test_debug_and_no_cache_walk(settled: None) -> None:
    from cubepy.kernels.elementwise.map_cpu import map_flat

    K.map(relu, np.ones(12, np.float32))
    specs, target = next(key for key in map_flat.launches.programs if not key[1].debug)
    assert walked.name_of(map_flat, specs, target) is not None
    assert walked.name_of(map_flat, specs, dataclasses.replace(target, debug=True)) is None
    assert walked.name_of(map_flat, specs, dataclasses.replace(target, backend="python")) is None
    with cb.config.override(cache=False):
        assert walked.name_of(map_flat, specs, target) is None
    other = dataclasses.replace(target, properties=dataclasses.replace(target.properties, cores=99))
    names = {walked.name_of(map_flat, specs, t) for t in (target, other)}
    assert len(names) == 2


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, float("inf")]),
    st.text("a:,()'\"", max_size=4),
    st.sampled_from([cb.f32, cb.i32, relu, gelu_tanh, cb.exp, cb.tanh, np.dtype("f4"), int]),
)
TREES = st.recursive(LEAVES, lambda t: st.lists(t, max_size=3).map(tuple), max_leaves=6)


def meaning(value: Any) -> Any:
    """What tells values apart: 1 is not True, 0.0 is not -0.0."""
    if type(value) is tuple:
        return (tuple, *map(meaning, value))
    return type(value), value.hex() if type(value) is float else value


@given(st.lists(TREES, min_size=2, max_size=8))
def test_texts_are_equal_for_equal_values_alone(values: list[Any]) -> None:
    found = []
    for value in values:
        try:
            found.append((meaning(value), described(value)))
        except Unknown as unknown:
            assert unknown.args[0] is int  # what Python holds is not cubepy's
    for one, text in found:
        for other, another in found:
            assert (one == other) == (text == another)


@pytest.mark.parametrize(
    "value",
    [lambda x: x, of_a_user, object(), [1], {1: 2}, np.float32(1), K, len, dataclasses.field],
)
def test_what_nobody_can_tell_has_no_text(value: Any) -> None:
    with pytest.raises(Unknown):
        described((1, value))


def test_a_program_that_is_loaded_keeps_what_launches_need(settled: None) -> None:
    """All else is found again when somebody asks."""
    import gc

    from cubepy.backends.cpu.backend import CpuExecutable

    x = np.linspace(-1, 1, 40, dtype=np.float32)
    before = {id(e) for e in gc.get_objects() if type(e) is CpuExecutable}
    graphs = [lambda t, n=n: (t * float(n) + 1).exp().sum(-1) for n in range(3, 6)]
    for function in graphs:
        cb.jit(function)(cb.tensor(x))
    made = [e for e in gc.get_objects() if type(e) is CpuExecutable and id(e) not in before]
    kept = [e for e in made if e._laid is not None and e.program.kept is not None]
    assert kept
    for executable in kept:
        assert not walked.LEFT_OUT & vars(executable.program).keys()
        assert "emitted" not in vars(executable)
    name = kept[0].key
    kept[0].write_text()
    assert kept[0].key == name and kept[0].program.body
    assert "define" in kept[0].inspect().llvm
    want = np.exp(x.astype(np.float64) * 3 + 1).sum()
    np.testing.assert_allclose(cb.jit(graphs[0])(cb.tensor(x)).numpy(), want, rtol=1e-6)
