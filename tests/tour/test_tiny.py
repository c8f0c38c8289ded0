"""The whole promise on one page, on every backend: kernels, library calls, a quantized model, an
error.

Read it first, run it before every commit (pre-commit does): `pytest tests/tour` takes seconds.
Where there is no GPU, its kernels are compiled for one all the same, and their code is emulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors, nn
from cubepy import kernels as K
from cubepy.config import config
from tests.staging import gpu_missing

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((8, 32), np.float32), RNG.standard_normal((32, 16), np.float32)


@cb.func
def swish(x):
    return x / (1 + cb.exp(-x))


@cb.kernel
def axpy(alpha, x: cb.Array, y: cb.Array, out: cb.Array, *, lanes: cb.Comptime[int] = 4):
    """out = alpha * x + y; a unit does `lanes` neighbours, and the last line hangs over the end."""
    i = cb.ABSOLUTE_POS * lanes
    if i < out.size:
        out.store(i, cb.fma(cb.splat(alpha, lanes), x.load(i, lanes), y.load(i, lanes)))


@cb.kernel
def cube_sums(x: cb.Array, out: cb.Array):
    """out[c] = the sum of cube c's part of x, through memory that its units share."""
    tree = cb.shared(cb.CUBE_DIM, cb.i32)
    tree[cb.UNIT_POS] = x[cb.ABSOLUTE_POS]
    cb.sync_cube()
    half = cb.CUBE_DIM // 2
    while half > 0:
        if cb.UNIT_POS < half:
            tree[cb.UNIT_POS] += tree[cb.UNIT_POS + half]
        cb.sync_cube()
        half //= 2
    if cb.UNIT_POS == 0:
        out[cb.CUBE_POS] = tree[0]


@cb.kernel
def wrong(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = x[i] @ 2


@pytest.fixture(params=["cpu", "python", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the tensors of a test live: a GPU that is there, or else one in the emulator."""
    if request.param != "cuda":
        with config.override(backend=request.param):
            yield request.param
    elif gpu_missing():
        pytest.importorskip("numba_cuda", reason="code for NVIDIA GPUs is made by numba-cuda")
        from tests.backends.cuda.emulator.device import emulated

        with emulated() as gpu:
            yield str(gpu)
    else:
        with cb.use("cuda"):
            yield "cuda"


def near(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance)


def test_a_kernel_runs_where_its_tensors_are(device: str) -> None:
    x, y, out = (cb.tensor(a.ravel()[:50], device=device) for a in (A, B, np.zeros(50, np.float32)))
    axpy[cb.over(out, lanes=4)](2.0, x, y, out)
    near(out, 2 * A.ravel()[:50] + B.ravel()[:50])


def test_units_of_a_cube_share_memory_and_meet_at_barriers(device: str) -> None:
    whole = np.arange(64, dtype=np.int32)
    x, out = cb.tensor(whole, device=device), cb.tensor(np.zeros(4, np.int32), device=device)
    cube_sums[4, 16](x, out)
    near(out, whole.reshape(4, 16).sum(1))


def test_the_library_is_called_like_numpy_and_takes_functions_of_yours(device: str) -> None:
    a, b = cb.tensor(A, device=device), cb.tensor(B, device=device)
    exact = A.astype(np.float64) @ B
    product = K.matmul(a, b, activation=swish)
    near(product, exact / (1 + np.exp(-exact)), 2e-5)
    e = np.exp(A - A.max(1, keepdims=True))
    near(K.softmax(a), e / e.sum(1, keepdims=True))
    assert (K.argmax(a, axis=1).numpy() == A.argmax(1)).all()


def test_a_model_is_quantized_with_one_call(device: str) -> None:
    rng = np.random.default_rng(1)
    with nn.init.skip():
        layers = nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 16)
    for layer in layers[::2]:
        weight = rng.standard_normal(tuple(layer.weight.shape), np.float32) / 8
        layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(weight[:, 0].copy())
    model = nn.Sequential(*layers).eval()
    packed = cb.quant.quantize(model, "int4", measure_speed=False).model
    x = rng.standard_normal((3, 64), np.float32)
    want = model(x).numpy()
    got = packed.to(device)(cb.tensor(x, device=device)).numpy()
    assert np.linalg.norm(got - want) < 0.15 * np.linalg.norm(want)


def test_an_error_points_at_the_word_and_says_what_to_do(device: str) -> None:
    x = cb.tensor(A.ravel(), device=device)
    with pytest.raises(errors.KernelTypeError) as info:
        wrong[cb.over(x)](x, x)
    rule, place, line, caret, hint = str(info.value).splitlines()
    assert rule == "a kernel has no operator @" and 'test_tiny.py", line ' in place
    assert line.index("x[i] @ 2") == caret.index("^") and hint.lstrip().startswith("Hint: ")
