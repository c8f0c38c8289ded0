"""Complex numbers of graphs against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.errors import ModelError
from cubepy.models.exported import targets
from cubepy.models.exported.complexes import is_complex, run_of_complex
from cubepy.models.exported.model import TorchModel
from cubepy.models.exported.program import Exported, Input, Node, Ref, Tree
from cubepy.models.exported.records import run_of

assert targets.__all__  # imported for its records


def run(name: str, *args: Any, **said: Any) -> Any:
    """An operator, as a graph calls it."""
    found = run_of_complex(f"aten.{name}") if is_complex([*args, *said.values()]) else None
    found = found or run_of(f"aten.{name}")
    assert found is not None
    return found(*args, **said)


def ours(x: np.ndarray) -> Any:
    return run("view_as_complex.default", cb.tensor(np.stack([x.real, x.imag], -1)))


def theirs(x: Any) -> np.ndarray:
    if not is_complex(x):
        return x.numpy()  # type: ignore[no-any-return]
    pairs = run("view_as_real.default", x).numpy()
    return pairs[..., 0] + 1j * pairs[..., 1]


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


ONE: dict[str, Any] = {
    "conj.default": np.conj,
    "neg.default": np.negative,
    "exp.default": np.exp,
    "reciprocal.default": np.reciprocal,
    "square.default": np.square,
    "transpose.int 0 1": lambda x: x.swapaxes(0, 1),
    "reshape.default [-1]": lambda x: x.reshape(-1),
    "unsqueeze.default 1": lambda x: x[:, None],
    "slice.Tensor 1 1 3": lambda x: x[:, 1:3],
    "select.int 0 1": lambda x: x[1],
    "flip.default [1]": lambda x: x[:, ::-1],
    "sum.dim_IntList [0]": lambda x: x.sum(0),
    "mean.dim [1] True": lambda x: x.mean(1, keepdims=True),
    "cumsum.default 1": lambda x: x.cumsum(1),
    "expand.default [2,3,4]": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "pow.Tensor_Scalar 3": lambda x: x**3,
    "mul.Scalar 2": lambda x: x * 2,
    "add.Tensor 1j": lambda x: x + 1j,
    "sub.Tensor 2": lambda x: x - 2,
    "rsub.Scalar 1j": lambda x: 1j - x,
    "div.Tensor 2-1j": lambda x: x / (2 - 1j),
    "to.dtype 'complex128'": lambda x: x,
    "zeros_like.default": np.zeros_like,
    "fft_fft.default": np.fft.fft,
    "fft_ifft.default 6 0 'ortho'": lambda x: np.fft.ifft(x, 6, 0, "ortho"),
    "fft_fft2.default": np.fft.fft2,
    "fft_ifftn.default None None 'forward'": lambda x: np.fft.ifftn(x, norm="forward"),
    "fft_fftshift.default": np.fft.fftshift,
    "fft_ifftshift.default [1]": lambda x: np.fft.ifftshift(x, 1),
    "mT.default": lambda x: x.T,
    "adjoint.default": lambda x: x.conj().T,
    "abs.default": np.abs,
    "angle.default": np.angle,
    "real.default": np.real,
    "imag.default": np.imag,
    "fft_irfft.default": np.fft.irfft,
    "fft_irfft2.default [3,5]": lambda x: np.fft.irfft2(x, (3, 5)),
}


@pytest.mark.parametrize("name", ONE)
def test_operators_of_one_are_numpys(name: str) -> None:
    rng = np.random.default_rng(len(name))
    x = drawn(rng, 3, 4)
    what, *args = name.split()
    found = run(what, ours(x), *map(eval, args))
    np.testing.assert_allclose(theirs(found), ONE[name](x), rtol=1e-10, atol=1e-12)


TWO = {
    "add.Tensor": np.add,
    "sub.Tensor": np.subtract,
    "mul.Tensor": np.multiply,
    "div.Tensor": np.divide,
    "matmul.default": np.matmul,
}


@pytest.mark.parametrize("name", TWO)
def test_operators_of_two_mix_with_real_numbers(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for n in range(3):
        x, y = drawn(rng, 3, 3), drawn(rng, 3, 3)
        given: list[Any] = [ours(x), ours(y)]
        if n:
            x, y = (x.real, y) if n == 1 else (x, y.real)
            given[n - 1] = cb.tensor(np.ascontiguousarray((x, y)[n - 1]))
        np.testing.assert_allclose(theirs(run(name, *given)), TWO[name](x, y), rtol=1e-10)


def test_arrays_of_both_kinds_are_put_together() -> None:
    rng = np.random.default_rng(0)
    x, real = drawn(rng, 2, 3), rng.standard_normal((2, 3))
    parts = [ours(x), cb.tensor(real)]
    for name, right in (
        ("cat.default", np.concatenate([x, real])),
        ("stack.default", np.stack([x, real])),
    ):
        np.testing.assert_array_equal(theirs(run(name, parts)), right)
    halves = run("split.Tensor", ours(x), 2, 1)
    assert [h.shape for h in halves] == [(2, 2), (2, 1)]
    mask = cb.tensor(real > 0)
    found = run("where.self", mask, ours(x), 2.0)
    np.testing.assert_array_equal(theirs(found), np.where(real > 0, x, 2))
    found = run("masked_fill.Scalar", ours(x), mask, 1j)
    np.testing.assert_array_equal(theirs(found), np.where(real > 0, 1j, x))
    copied = run("copy.default", cb.tensor(real), ours(x[:1]))
    np.testing.assert_array_equal(theirs(copied), np.broadcast_to(x[:1], (2, 3)))
    right = x.copy()
    right[:, 1:3] = real[:, :2]
    found = run("slice_scatter.default", ours(x), cb.tensor(real[:, :2].copy()), 1, 1, 3)
    np.testing.assert_array_equal(theirs(found), right)
    right = x.copy()
    right[[1, 0], [2, 2]] = 3j
    at = [cb.tensor([1, 0]), cb.tensor([2, 2])]
    found = run("index_put.default", ours(x), at, ours(np.full(2, 3j)))
    np.testing.assert_array_equal(theirs(found), right)
    w = drawn(rng, 4, 3)
    found = run("einsum.default", "bi,oi->bo", [ours(x), ours(w)])
    np.testing.assert_allclose(theirs(found), x @ w.T, rtol=1e-10)
    np.testing.assert_allclose(theirs(run("linear.default", ours(x), ours(w))), x @ w.T, rtol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_halves_of_transforms_come_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, norm = int(rng.integers(2, 12)), (None, "ortho", "forward")[seed % 3]
    x = rng.standard_normal((3, n))
    found = run("fft_rfft.default", cb.tensor(x), None, -1, norm)
    np.testing.assert_allclose(theirs(found), np.fft.rfft(x, norm=norm), rtol=1e-9, atol=1e-12)
    back = run("fft_irfft.default", found, n, -1, norm)
    np.testing.assert_allclose(back.numpy(), x, rtol=1e-9, atol=1e-12)
    both = run("fft_rfft2.default", cb.tensor(x), None, [-2, -1], norm)
    np.testing.assert_allclose(theirs(both), np.fft.rfft2(x, norm=norm), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 4, 6, 8, 12, 15, 16, 100])
def test_real_signals_have_real_numbers_where_theirs_are(n: int) -> None:
    """The angle of a negative one is pi and not -pi, as it is where a sine of pi is not zero."""
    x = np.random.default_rng(n).standard_normal((40, n)).astype(np.float32)
    found = run("fft_rfft.default", cb.tensor(x))
    real = [0] if n % 2 else [0, n // 2]
    assert not found.imaginary.numpy()[:, real].any()
    angle = run("angle.default", found).numpy()[:, real]
    np.testing.assert_allclose(angle, np.angle(np.fft.rfft(x)[:, real]), atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_frames_and_what_they_were_cut_from(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, hop = int(rng.integers(4, 17)), int(rng.integers(1, 4))
    width = int(rng.integers(max(2, n // 2), n + 1))
    x, window = rng.standard_normal((2, 60)), rng.uniform(0.5, 1, width)
    given = cb.tensor(window)
    found = run(
        "stft.center", cb.tensor(x), n, hop, width, given, True, "reflect", False, True, True
    )
    padded = np.pad(x, ((0, 0), (n // 2, n // 2)), "reflect")
    left = (n - width) // 2
    shape = np.pad(window, (left, n - width - left))
    frames = np.lib.stride_tricks.sliding_window_view(padded, n, 1)[:, ::hop] * shape
    right = np.fft.rfft(frames).swapaxes(1, 2)
    np.testing.assert_allclose(theirs(found), right, rtol=1e-9, atol=1e-12)
    back = run("istft.default", found, n, hop, width, given, True, False, None, 50)
    np.testing.assert_allclose(back.numpy(), x[:, :50], rtol=1e-9, atol=1e-9)


def exported(nodes: list[Node], output: str, **weights: Any) -> Exported:
    leaf = Tree("leaf")
    inputs = [Input(k, "weight", k.removesuffix(".pairs")) for k in weights]
    inputs.append(Input("x", "tensor", dtype=cb.f32, shape=(2, "n", 4)))
    takes = Tree("tuple", (Tree("tuple", (leaf,)), Tree("dict")))
    held = {k.removesuffix(".pairs"): cb.tensor(v) for k, v in weights.items()}
    return Exported(nodes, inputs, [Ref(output)], takes, leaf, held)


def test_a_rotary_embedding_of_complex_numbers_is_a_program() -> None:
    angle = np.arange(30.0).reshape(15, 2)
    table = np.stack([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
    nodes = [
        Node("table", "aten.view_as_complex.default", (Ref("table.pairs"),)),
        Node("n", "aten.sym_size.int", (Ref("x"), 1)),
        Node("rows", "aten.slice.Tensor", (Ref("table"), 0, 0, Ref("n"))),
        Node("pairs", "aten.reshape.default", (Ref("x"), [2, Ref("n"), 2, 2])),
        Node("z", "aten.view_as_complex.default", (Ref("pairs"),)),
        Node("turned", "aten.mul.Tensor", (Ref("z"), Ref("rows"))),
        Node("real", "aten.view_as_real.default", (Ref("turned"),)),
        Node("y", "aten.flatten.using_ints", (Ref("real"), 2)),
    ]
    net = TorchModel(exported(nodes, "y", **{"table.pairs": table}))
    assert list(net.state_dict()) == ["table"]
    for n in (3, 7, 7, 15):
        x = np.random.default_rng(n).standard_normal((2, n, 4)).astype(np.float32)
        z = x[..., 0::2] + 1j * x[..., 1::2]
        z = z * np.exp(1j * angle[:n])
        right = np.stack([z.real, z.imag], -1).reshape(2, n, 4)
        np.testing.assert_allclose(net(x).numpy(), right, rtol=1e-5, atol=1e-5)


def test_what_has_no_complex_form_is_refused_with_its_line() -> None:
    z = Node("z", "aten.fft_fft.default", (Ref("x"),))
    x = np.ones((2, 3, 4), np.float32)
    with pytest.raises(ModelError, match="gives complex numbers"):
        TorchModel(exported([z], "z"))(x)
    line = "net.py:3: y = x.sinh()"
    nodes = [z, Node("y", "aten.sinh.default", (Ref("z"),), line=line)]
    with pytest.raises(ModelError, match=r"sinh.*net\.py:3.*no form for complex numbers"):
        TorchModel(exported(nodes, "y"))(x)
    with pytest.raises(ModelError, match="powers"):
        run("pow.Tensor_Scalar", ours(np.ones(2)), 0.5)


def test_what_a_module_asserts_of_elements_is_passed_over() -> None:
    """Of lengths it is looked at."""
    nodes = [
        Node("most", "aten.max.default", (Ref("x"),)),
        Node("number", "aten.item.default", (Ref("most"),)),
        Node("small", "_operator.lt", (Ref("number"), 9)),
        Node("said", "aten._assert_scalar.default", (Ref("small"), "small")),
        Node("n", "aten.sym_size.int", (Ref("x"), 1)),
        Node("short", "_operator.lt", (Ref("n"), 9)),
        Node("also", "aten._assert_scalar.default", (Ref("short"), "short")),
        Node("y", "aten.neg.default", (Ref("x"),)),
    ]
    net = TorchModel(exported(nodes, "y"))
    x = np.full((2, 3, 4), 100, np.float32)
    np.testing.assert_array_equal(net(x).numpy(), -x)
    with pytest.raises(ModelError, match="short"):
        net(np.ones((2, 9, 4), np.float32))
