"""Plans for all lengths: for lengths that none of them was made of, they do what the call does.

The library runs on a pretended H200 whose kernels do nothing. Calls go the long way, and whatever
plans for other lengths say about theirs is compared with what was recorded.
"""

from __future__ import annotations

import gc
import hashlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.kernels as K
from cubepy.backends.cuda.native import module
from cubepy.backends.cuda.run import CudaRunner
from cubepy.backends.gpu.replay import SymbolicTable
from cubepy.lang.dtypes import as_dtype
from cubepy.nn import functional as F
from cubepy.runtime import recording
from cubepy.runtime.memory.device_array import DeviceArray, upload
from cubepy.runtime.replay import generic
from cubepy.runtime.replay.arguments import REFUSED
from cubepy.runtime.symbolic.number import Symbol, plain
from tests.backends.gpu import fake_driver as fakes
from tests.nn.modules.test_planned import GPU, idle_h200
from tests.runtime.replay import gpu_calls
from tests.runtime.replay.gpu_calls import Repetitions, here, much, new, same, some, start


@cb.func
def total(a: Any, b: Any) -> Any:
    return a + b


def array(*shape: int, dtype: str = "f32") -> DeviceArray:
    return upload(np.zeros(shape, as_dtype(dtype).numpy), cb.Device(GPU, 0))


def tensor(*shape: int, dtype: str = "f32") -> Any:
    return cb.tensor(array(*shape, dtype=dtype))


Call = Callable[[], Any]
CALLS: dict[str, Callable[[int], Call]] = {}


def call(make: Callable[[int], Call]) -> Callable[[int], Call]:
    CALLS[make.__name__] = make
    return make


def of(
    name: str, function: Callable[..., Any], *shapes: Any, dtype: str = "f32", **options: Any
) -> None:
    """A function of arrays whose shapes have n in them."""

    def make(n: int) -> Call:
        given = [
            array(*[n if v == "n" else v for v in shape], dtype=dtype)
            if isinstance(shape, tuple)
            else shape
            for shape in shapes
        ]
        return lambda: function(*given, **options)

    CALLS[name] = make


of("gelu", K.gelu, ("n", 256))
of("gelu_f16", K.gelu, ("n", 25), dtype="f16")
of("map", lambda x, y: K.map(total, x, y), ("n", 96), (96,))
of("map_columns", lambda x, y: K.map(total, x, y), (5, "n"), (5, 1))
of("softmax", K.softmax, ("n", 512))
of("softmax_of_n", K.softmax, (12, "n"))
of("log_softmax", K.log_softmax, ("n", 100))
of("layer_norm", lambda x, w: K.layer_norm(x, 768, w, w), (2, "n", 768), (768,), dtype="f16")
of("rms_norm", lambda x, w: K.rms_norm(x, 512, w), ("n", 512), (512,))
of("group_norm", lambda x: K.group_norm(x, 4), (2, 16, "n"))
of("sum", K.sum, ("n", 300), axis=-1)
of("sum_of_n", K.sum, (7, "n"), axis=-1)
of("sum_down", K.sum, ("n", 300), axis=0)
of("mean", K.mean, ("n", 64), axis=0)
of("max_of_all", K.max, ("n", 33))
of("var", K.var, ("n", 512), axis=-1)
of("argmax", K.argmax, ("n", 128), axis=-1)
of("cumsum", K.cumsum, (3, "n"), axis=-1)
of("sort", K.sort, (3, "n"))
of("topk", lambda x: K.topk(x, 1), (4, "n"))
of("copy_across", lambda x: K.copy(x.T), ("n", 130))
of("matmul", K.matmul, ("n", 256), (256, 96))
of("matmul_f16", K.matmul, ("n", 256), (256, 512), dtype="f16")
of(
    "matmul_bf16_bias",
    lambda a, b, c: K.matmul(a, b.T, bias=c),
    ("n", 256),
    (512, 256),
    (512,),
    dtype="bf16",
)
of("matmul_of_n", K.matmul, (64, "n"), ("n", 64), dtype="f16")
of("matmul_batched", lambda x: K.matmul(x, x.transpose(0, 2, 1)), (4, "n", 64), dtype="f16")
of("attention", lambda q: K.attention(q, q, q), (1, 4, "n", 64), dtype="f16")
of(
    "attention_causal",
    lambda q: K.attention(q, q, q, is_causal=True),
    (2, 4, "n", 64),
    dtype="bf16",
)
of(
    "attention_decoding",
    lambda q, k: K.attention(q, k, k),
    (1, 8, 1, 64),
    (1, 2, "n", 64),
    dtype="f16",
)
of("conv2d_f16", lambda x, w: K.conv2d(x, w), ("n", 8, 6, 6), (16, 8, 3, 3), dtype="f16")
of(
    "conv2d_last",
    lambda x, w: K.conv2d(x, w, padding=1, layout="NHWC"),
    ("n", 14, 14, 64),
    (128, 64, 3, 3),
    dtype="f16",
)
of("conv1d", lambda x, w: K.conv1d(x, w, padding=1), (1, 80, "n"), (96, 80, 3))
of("conv2d_1x1", lambda x, w, b: K.conv2d(x, w, b), (1, 64, "n", 20), (64, 64, 1, 1), (64,))
of(
    "conv2d_depthwise",
    lambda x, w: K.conv2d(x, w, padding=1, groups=64),
    ("n", 64, 8, 8),
    (64, 1, 3, 3),
    dtype="f16",
)
of("max_pool2d", lambda x: K.max_pool2d(x, 3, 2, 1), (1, 8, "n", "n"), dtype="f16")
of("batch_norm", lambda x, w: K.batch_norm(x, w, w, w, w), (2, 64, "n"), (64,))


@call
def transposed_convolution(n: int) -> Call:
    x, w = array(1, 64, n % 40 + 1, 12, dtype="f16"), array(64, 32, 2, 2, dtype="f16")
    return lambda: K.conv_transpose2d(x, w, stride=2)


@call
def embedding(n: int) -> Call:
    indices, table = array(n, dtype="i32"), array(100, 64)
    return lambda: K.embedding(indices, table)


@call
def softmax_into(n: int) -> Call:
    x, out = array(n, 64), array(n, 64)
    return lambda: K.softmax(x, out=out)


@call
def gaps(n: int) -> Call:
    x = array(n, 64)[:, :48]
    return lambda: K.softmax(x)


@call
def tensors(n: int) -> Call:
    x, w, b = tensor(n, 64), tensor(32, 64), tensor(32)
    return lambda: (F.gelu(F.linear(x, w, b)) * 2.0 + b).sum(-1)


@call
def tensor_views(n: int) -> Call:
    x = tensor(n, 64)
    return lambda: x.reshape(-1, 4, 16).permute(1, 0, 2)[:, 1:] + 1.0


@call
def tensor_losses(n: int) -> Call:
    x, y = tensor(n, 50), tensor(n, dtype="i32")
    return lambda: F.cross_entropy(x, y)


def encoded(address: int, *description: Any, **options: Any) -> bytes:
    """What stands for the bytes of a tensor map: the address first, and what says the rest."""
    known = repr((description, options)).encode()
    return address.to_bytes(8, "little") + hashlib.sha512(known).digest() + bytes(56)


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "tensor_map", encoded)
    with idle_h200(monkeypatch):
        yield


def compare(monkeypatch: pytest.MonkeyPatch, name: str, more: int = 0) -> None:
    """Make calls of many lengths, from 1 or more on. No plan is used; each is compared with what
    calls of other lengths do.
    """
    draw = np.random.default_rng(int(time.time() // 86400))
    fit: list[bool] = []
    learn = generic.Kinds.learn

    def look(self: Any, key: Any, values: Any, plan: Any, *rest: Any) -> None:
        kind, lengths = generic.kind_of(key)
        known = self.known.get(kind)
        plans = generic.Plans(0) if known is None else known.plans(lengths)
        for found in plans.generics:
            if found.again(lengths) is not None:
                assert generic.compared(found, lengths, plan), lengths
                fit.append(True)
                plans.idle = 0
        learn(self, key, values, plan, *rest)
        assert not self.known[kind].reason, "no code on the way is taken aback by symbols"

    monkeypatch.setattr(generic.Kinds, "repeat", lambda *_: (None, REFUSED))
    monkeypatch.setattr(generic.Kinds, "learn", look)
    for n in [40, 41, *draw.integers(2, 80, 16), 64, *draw.integers(2, 700, 20), 128, 1]:
        CALLS[name](int(n) + more)()
    assert len(fit) >= 3, "plans for all lengths are used"


@pytest.mark.parametrize("name", CALLS)
def test_other_lengths_are_launched_as_by_the_call(
    h200: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    compare(monkeypatch, name)


@pytest.mark.parametrize("name", ["softmax", "matmul_f16", "attention"])
def test_launches_by_configuration_are_those_of_the_call(
    h200: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Launches that may overlap are described in words of the table, cubes among them."""
    described = []
    configuration = SymbolicTable.configuration
    monkeypatch.setattr(
        CudaRunner,
        "configuration",
        lambda self, cubes: module.launch_config(
            tuple(map(plain, cubes)), self.exe.units, 0, module.Wish(overlap=True)
        ),
    )
    monkeypatch.setattr(
        SymbolicTable,
        "configuration",
        lambda self, runner: described.append(runner) or configuration(self, runner),
    )
    compare(monkeypatch, name, 1000)  # lengths whose launches are prepared anew
    assert described


def test_a_new_length_is_not_recorded(h200: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20, 30):
        CALLS["softmax"](n)()
    seen = Repetitions(monkeypatch)
    for n in range(30, 90):
        found = CALLS["softmax"](n)()
        assert found.shape == (n, 512)
    assert seen.long == 0


@pytest.fixture(params=range(4))
def fake(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[fakes.FakeDriver]:
    yield from start(monkeypatch, request.param)


@gpu_calls.repeated
def tripled(x: Any, *, out: Any = None) -> Any:
    """3 x, by cubes of one size; lengths of 77 and more have another way."""
    a = gpu_calls.array_of(x)
    result = gpu_calls.output(out, a.shape, a.dtype)
    twice = gpu_calls.memory.empty(a.shape, a.dtype)
    gpu_calls.add_arrays[math.ceil(a.size / 32), 32](a, a, twice)
    if a.size >= 77:
        gpu_calls.add_arrays[1, 128](twice, a, result)
    else:
        gpu_calls.add_arrays[1, 96](a, twice, result)
    return result if out is None else out


def test_results_are_right_for_all_lengths(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that adds: new arrays, and arrays that are given."""
    seen = Repetitions(monkeypatch)
    for n in [5, 6, *range(7, 100)]:
        x = some(n)
        same(tripled(new(x)), 3 * x)
        a, out = new(x), new(x)
        assert tripled(a, out=out) is out
        same(out, 3 * x)
    assert seen.long <= 2 * 2 * 2 + 2, "both ways with and without `out`"


def test_lengths_come_on_any_stream(fake: Any) -> None:
    """Work goes by the order of memory, whichever stream it is on."""
    streams = [cb.Stream(here()) for _ in range(3)]
    for n in range(5, 90):
        x = some(n)
        with streams[n % 3]:
            y = tripled(new(x))
        with streams[n % 2]:
            z, again = tripled(y), tripled(y)
        with streams[n // 7 % 3]:
            w = tripled(z)
        triple = lambda v: v + v + v
        same(w, triple(triple(triple(x))))
        same(again, triple(triple(x)))


def test_a_call_within_its_argument_is_seen(fake: Any) -> None:
    """Arrays that share memory have plans of their own."""
    for n in range(8, 24):
        x = some(n)
        both = new(x)
        same(tripled(both, out=both), 3 * x)
        base = new(x)
        same(tripled(base[2:]), 3 * x[2:])


def test_code_that_needs_a_number_fixes_it(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """`much` launches cubes of as many units as there are elements: each length has its code."""
    for n in range(5, 12):
        x, y = some(n), some(n)
        same(much(new(x), new(y)), (((x + y) + y) + y) + 2)


def test_no_symbol_outlives_its_call(h200: None) -> None:
    """What a function remembers by other things than lengths has none within."""
    for name, make in CALLS.items():
        if name in (
            "softmax_of_n",
            "matmul_f16",
            "attention",
            "attention_decoding",
            "tensors",
            "gaps",
        ):
            for n in (40, 41, 56, 64, 70):
                make(n)()
    gc.collect()
    assert not [v for v in gc.get_objects() if type(v) is Symbol]


def test_settings_forget_plans(h200: None) -> None:
    for n in range(20, 26):
        CALLS["softmax"](n)()
    assert any(getattr(calls, "kinds", None) for calls in recording.tables)
    recording.forget()
    assert all(getattr(calls, "kinds", None) is None for calls in recording.tables)
