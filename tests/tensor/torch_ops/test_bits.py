"""What torch's samples in f64 do not show: integers, bits of elements, equality as one boolean, and
tensors of no axes. NumPy says what is right.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cb
import cubepy.tensor as xp
from cubepy.errors import ArgumentError, DTypeError, ShapeError
from cubepy.nn import functional as F
from tests.backends.hip.emulator.device import emulated
from tests.pretend import NAME, pretend

INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]


def drawn(rng: np.random.Generator, dtype: Any, shape: Any) -> np.ndarray:
    """Integers of all sizes of a dtype; many are 0, some its extremes."""
    info = np.iinfo(dtype)
    full = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    some = full >> rng.integers(0, info.bits, shape).astype(dtype)
    ends = np.array([info.min, info.max], dtype)[rng.integers(0, 2, shape)]
    return np.where(rng.random(shape) < 0.05, ends, some).astype(dtype)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_divisors_and_multiples_are_those_of_numpy(dtype: Any) -> None:
    rng = np.random.default_rng(np.dtype(dtype).num)
    for shapes in (((50,), (50,)), ((4, 1), (3,)), ((), (7,)), ((2, 0), (2, 1)), ((1,), (1,))):
        a, b = (drawn(rng, dtype, s) for s in shapes)
        x, y = cb.tensor(a), cb.tensor(b)
        program = cb.jit(lambda x, y: ((x + 0).gcd(y), x.lcm(y) * 1))
        with np.errstate(over="ignore"):
            want = np.gcd(a, b), np.lcm(a, b)
        for found in ((x.gcd(y), x.lcm(y)), program(x, y), program(x, y)):
            for one, right in zip(found, want, strict=True):
                assert one.numpy().dtype == dtype
                np.testing.assert_array_equal(one.numpy(), right)
    assert cb.tensor(np.array([12, 18], dtype)).gcd(8).tolist() == [4, 2]
    assert cb.tensor(np.array([4], dtype)).clone().lcm_(6).tolist() == [12]


def test_divisors_are_of_integers() -> None:
    for wrong in (lambda: cb.tensor([1.0]).gcd(1), lambda: cb.tensor([True]).lcm(True)):
        with pytest.raises(DTypeError, match="gcd and lcm work on integers"):
            wrong()


def test_shifts_have_names() -> None:
    x = cb.tensor([1, -8, 5])
    assert x.bitwise_left_shift(2).tolist() == [4, -32, 20]
    assert x.bitwise_right_shift(cb.tensor([0, 1, 2])).tolist() == [1, -4, 1]
    assert x.clone().bitwise_left_shift_(1).tolist() == [2, -16, 10]
    with pytest.raises(DTypeError):
        cb.tensor([1.0]).bitwise_left_shift(1)


@pytest.mark.parametrize("seed", range(40))
def test_views_as_other_dtypes_are_those_of_numpy(seed: int) -> None:
    """Also of what lies in another order, in programs, and back again."""
    rng = np.random.default_rng(seed)
    mine, theirs = (rng.choice([*INTEGERS, *FLOATS]) for _ in range(2))
    shape = rng.integers(1, 4, rng.integers(1, 4)).tolist()
    shape[-1] *= int(rng.choice([1, 8]))
    a = drawn(rng, np.int16, shape).astype(mine)
    if seed % 3 == 0 and a.ndim > 1:
        a = np.swapaxes(np.swapaxes(a, 0, 1).copy(), 0, 1)
    x, old, new = cb.tensor(a), np.dtype(mine).itemsize, np.dtype(theirs).itemsize
    if shape[-1] * old % new:
        with pytest.raises(ShapeError, match="is no multiple of"):
            x.view(theirs)
        return
    want = np.ascontiguousarray(a).view(theirs)
    program = cb.jit(lambda x: x.clone().view(theirs))
    for found in (x.view(theirs), x.view(cb.as_dtype(theirs).name), program(x), program(x)):
        assert found.numpy().dtype == theirs
        np.testing.assert_array_equal(found.numpy().view(np.uint8), want.view(np.uint8))
    assert x.view(theirs).view(mine).equal(x) or np.isnan(a).any()
    assert x.view(cb.as_dtype(mine)).shape == x.shape


def test_views_as_other_dtypes_keep_to_the_rules_of_torch() -> None:
    assert cb.tensor(1.0).view(cb.i32).item() == 0x3F800000
    with pytest.raises(ShapeError, match="rank 0 of f32 has no view as i16"):
        cb.tensor(1.0).view(cb.i16)
    with pytest.raises(DTypeError, match="bits are packed"):
        cb.tensor([1, 2]).view("int4")
    x = cb.tensor([1.0, 2.0], requires_grad=True)
    assert not x.view(cb.i32).requires_grad  # bits have no gradients
    assert x.view(2, 1).requires_grad and x.view([1, 2]).shape == (1, 2)
    assert x.view(np.int64(2), 1).shape == (2, 1) and x.view(torch_like("int32")).dtype is cb.i32


def torch_like(name: str) -> Any:
    """What stands for a dtype of torch: its text is its name."""
    kind = type("dtype", (), {"__module__": "torch", "__repr__": lambda self: f"torch.{name}"})
    return kind()


def test_equal_is_one_boolean() -> None:
    x = cb.tensor([[1.0, 2.0]])
    assert x.equal(cb.tensor([[1, 2]])) is True and x.equal(x + 1) is False
    assert x.equal(x.reshape(2)) is False and cb.tensor([]).equal(cb.tensor([])) is True
    assert cb.tensor([math.nan]).equal(cb.tensor([math.nan])) is False
    assert xp.equal(x, x).tolist() == [[True, True]]  # the array API


@pytest.mark.parametrize("seed", range(20))
def test_histograms_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, bins = int(rng.integers(1, 200)), int(rng.integers(1, 12))
    dtype = [np.float64, np.float32, np.float16, np.int64][seed % 4]
    a = (rng.integers(-40, 40, n) / (4 if seed % 4 < 3 else 1)).astype(dtype)
    low, high = sorted((rng.integers(-30, 30, 2) / 2).tolist())
    for ends in ((0, 0), (low, high + 1), (-1e3, 1e3)):
        edges = (float(a.min()), float(a.max())) if ends == (0, 0) else ends
        edges = (edges[0] - 1, edges[1] + 1) if edges[0] == edges[1] else edges
        want = np.histogram(a.astype(np.float64), bins, edges)[0]
        found = cb.tensor(a).histc(bins, *ends)
        assert found.numpy().dtype == dtype and found.sum().item() == want.sum()
        borders = (a.astype(float) - edges[0]) * bins / (edges[1] - edges[0])
        if np.abs(borders - np.round(borders)).min() > 1e-5 or bins == 1:
            np.testing.assert_array_equal(found.numpy(), want)


def test_a_histogram_leaves_out_what_is_outside() -> None:
    x = cb.tensor([1.0, math.nan, 5.0, 9.0, -3.0, math.inf])
    assert x.histc(3, 0, 9).tolist() == [1, 1, 1]
    assert cb.tensor(np.zeros(0)).histc(2).tolist() == [0, 0]
    for wrong in ({"bins": 0}, {"min": 2, "max": 1}, {"max": math.inf}):
        with pytest.raises(ArgumentError, match="histc"):
            x.histc(**wrong)


def test_a_histogram_is_an_op_of_programs() -> None:
    program = cb.jit(lambda x: x.histc(4))
    for seed in range(4):
        a = np.random.default_rng(seed).normal(size=50)
        assert program(cb.tensor(a)).tolist() == np.histogram(a, 4)[0].tolist()


def test_parts_that_another_tensor_gives() -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    want = a.copy()
    want[:, :, 1:4:2] = 9
    found = cb.tensor(a).slice_scatter(cb.tensor(np.full((2, 3, 2), 9.0)), 2, 1, 4, 2)
    np.testing.assert_array_equal(found.numpy(), want)
    with pytest.raises(ShapeError, match="is not given by one of"):
        cb.tensor(a).slice_scatter(cb.tensor([1.0]), 2, 1, 4, 2)


ALONG: dict[str, Any] = {
    **{
        n: lambda x, d, n=n: getattr(x, n)(d)
        for n in """sum prod mean max min argmax argmin any all var std logsumexp softmax log_softmax
        cumsum cumprod sort argsort median nanmedian mode squeeze flip amax amin count_nonzero
        cummax cummin logcumsumexp nansum nanmean""".split()
    },
    "keepdims": lambda x, d: x.sum(d, keepdims=True),
    "several": lambda x, d: x.sum((d,)),
    "topk": lambda x, d: x.topk(1, d),
    "kthvalue": lambda x, d: x.kthvalue(1, d),
    "transpose": lambda x, d: x.transpose(d, 0),
    "movedim": lambda x, d: x.movedim(d, -1),
    "norm": lambda x, d: x.norm(3, d),
    "norm of 0": lambda x, d: x.norm(0, d),
    "quantile": lambda x, d: x.quantile(0.5, d),
    "gather": lambda x, d: x.gather(d, cb.tensor(0)),
    "index_select": lambda x, d: x.index_select(d, cb.tensor([0])),
    "index_add": lambda x, d: x.index_add(d, cb.tensor([0]), x * 0),
    "index_fill": lambda x, d: x.index_fill(d, cb.tensor([0]), 7.5),
    "scatter": lambda x, d: x.scatter(d, cb.tensor(0), x),
    "scatter a number": lambda x, d: x.scatter(d, cb.tensor(0), value=7.5),
    "scatter_add": lambda x, d: x.scatter_add(d, cb.tensor(0), x * 0),
}


@pytest.mark.parametrize("name", ALONG)
def test_a_tensor_of_no_axes_is_a_line_of_one(name: str) -> None:
    """As in torch: axes 0 and -1 are there, others are not; alone, in programs, with gradients."""
    call = ALONG[name]
    for dtype in (np.float64, np.float32):
        x = cb.tensor(np.array(7.5, dtype))
        for axis in (0, -1):
            want = call(x.reshape(1), axis)
            for found in (call(x, axis), cb.jit(lambda x, axis=axis: call(x, axis))(x)):
                both = zip(*(y if isinstance(y, tuple) else (y,) for y in (found, want)))
                for one, line in both:
                    assert one.shape == () and one.dtype is line.dtype
                    np.testing.assert_array_equal(one.numpy(), line.numpy().reshape(()))
        for axis in (1, -2):
            with pytest.raises(ShapeError, match="out of range"):
                call(x, axis)
    y = cb.tensor(np.array(7.5), requires_grad=True)
    made = call(y, 0)
    made = made[0] if isinstance(made, tuple) else made
    if made.requires_grad:
        made.backward()
        assert y.grad.shape == () and np.isfinite(y.grad.item()) or name == "std"


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64])
@pytest.mark.parametrize("p", [-math.inf, -2, -0.5, 0, 0.5, 1, 2, 3, math.inf, "fro"])
def test_norms_of_any_order(p: Any, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    a = (rng.integers(1, 9, (3, 4)) * rng.choice([-1, 1], (3, 4))).astype(dtype)
    if dtype is not np.int64:
        a = (a / 4).astype(dtype)
    wide = np.abs(a.astype(np.float64))
    order = 2 if p == "fro" else p
    for dim in (None, 0, (0, 1), -1):
        want = {
            0: lambda: (wide != 0).sum(dim),
            math.inf: lambda: wide.max(dim),
            -math.inf: lambda: wide.min(dim),
        }.get(order, lambda: (wide**order).sum(dim) ** (1 / order))()
        for keep in (False, True):
            found = cb.tensor(a).norm(p, dim, keep)
            assert not keep or found.ndim == 2
            assert found.dtype is (cb.f32 if dtype is np.int64 else cb.as_dtype(dtype))
            near = 1e-12 if dtype is np.float64 else 2e-3 if dtype == np.float16 else 1e-5
            np.testing.assert_allclose(found.numpy().reshape(np.shape(want)), want, near)


@pytest.mark.parametrize("seed", range(12))
def test_rows_are_searched_as_numpy_searches_a_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lead, n, m = tuple(rng.integers(1, 4, rng.integers(1, 3))), int(rng.integers(1, 9)), 5
    a, b = (rng.integers(0, 6, (*lead, k)).astype([float, int][seed % 2]) for k in (n, m))
    order = np.argsort(a, -1, kind="stable")
    rows = np.sort(a, -1).reshape(-1, n), b.reshape(-1, m)
    for side in ("left", "right"):
        want = np.stack([np.searchsorted(r, q, side) for r, q in zip(*rows, strict=True)])
        for found in (
            xp.searchsorted(cb.tensor(np.sort(a, -1)), cb.tensor(b), side=side),
            xp.searchsorted(cb.tensor(a), cb.tensor(b), side=side, sorter=cb.tensor(order)),
        ):
            assert found.dtype is cb.i64
            np.testing.assert_array_equal(found.numpy(), want.reshape(*lead, m))


def test_nothing_goes_before_anything() -> None:
    """A list that begins with an empty tensor, as code for torch has it."""
    x = cb.tensor(np.ones((2, 3)))
    for parts in ([cb.tensor([]), x], [x, cb.tensor([]), x]):
        found = xp.concat(parts, axis=1)
        assert found.shape == (2, 3 * (len(parts) - 1)) and found.dtype is cb.f64
    assert xp.concat([cb.tensor([1, 2], cb.i32).reshape(2, 1), cb.tensor([])]).dtype is cb.f32
    assert xp.concat([cb.tensor([]), cb.tensor([])]).shape == (0,)


@pytest.mark.parametrize(
    ("dtype", "name", "args"),
    [
        ("bool_", "add_", (2,)),
        ("bool_", "mul_", (2,)),
        ("bool_", "clamp_", (0, 1)),
        ("bool_", "cumsum_", (0,)),
        ("bool_", "__ior__", (2,)),
        ("bool_", "__iadd__", (0.5,)),
        ("i32", "mul_", (2.5,)),
        ("i64", "div_", (2,)),
    ],
)
def test_nothing_wider_goes_into_a_tensor_in_place(dtype: str, name: str, args: Any) -> None:
    x = cb.tensor([1, 0]).to(dtype)
    with pytest.raises(DTypeError, match="in place a tensor keeps its dtype"):
        getattr(x, name)(*args)
    assert x.tolist() == [1, 0]


def test_booleans_in_place() -> None:
    x = cb.tensor([True, False])
    assert x.add_(True).tolist() == [True, True]
    assert x.mul_(cb.tensor([False, True])).tolist() == [False, True]
    assert x.fill_(2).tolist() == [True, True]
    assert x.masked_fill_(cb.tensor([True, False]), 0).tolist() == [False, True]
    assert cb.tensor([1.0, 2.0]).eq_(1).tolist() == [1.0, 0.0]
    y = cb.tensor([1.0, 2.0])
    assert y.scatter_(0, cb.tensor([1]), value=5) is y and y.tolist() == [1.0, 5.0]
    assert y.scatter_(0, cb.tensor([1]), 2.0, reduce="multiply").tolist() == [1.0, 10.0]
    assert cb.tensor([3, 4]).gt_(3).tolist() == [0, 1]


@pytest.mark.parametrize("name", ["std", "norm of 0", "norm of -1", "norm of -2.5"])
def test_gradients_at_the_edges_are_zero(name: str) -> None:
    """As in torch: of deviations where all is the same, of how many are not 0, and of norms of
    negative orders where an element is 0; in the rows beside, they are what they are.
    """
    a = np.array([[2.0, 2, 2], [1, 2, 4], [0, 3, 1], [0, 0, 0]])
    x = cb.tensor(a, requires_grad=True)
    y = x.std(1) if name == "std" else x.norm(float(name[8:]), 1)
    y.sum().backward()
    assert np.isfinite(x.grad.numpy()).all() and y.dtype is cb.f64
    flat = {"std": [0, 3], "norm of 0": [0, 1, 2, 3]}.get(name, [2, 3])
    for row in range(4):
        assert x.grad[row].any().item() is (row not in flat)
    if "-" in name:
        assert y[2:].tolist() == [0, 0]


@pytest.mark.parametrize("dtype", FLOATS)
def test_mantissas_and_exponents_are_those_of_numpy(dtype: Any) -> None:
    """Of numbers of all sizes, the smallest ones among them, too."""
    info, rng = np.finfo(dtype), np.random.default_rng(6)
    ends = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2, info.max, info.tiny, -info.tiny]
    sizes = rng.integers(info.minexp - info.nmant, info.maxexp, 300)
    a = np.concatenate([ends, np.ldexp(rng.uniform(-1, 1, 300), sizes)]).astype(dtype)
    a = np.append(a, info.smallest_subnormal)
    mantissas, exponents = np.frexp(a)
    found, powers = cb.tensor(a).frexp()
    assert found.numpy().dtype == dtype and powers.dtype is cb.i32
    np.testing.assert_array_equal(found.numpy(), mantissas)
    np.testing.assert_array_equal(powers.numpy(), np.where(np.isfinite(a), exponents, 0))


def test_decompositions_have_methods() -> None:
    a = np.random.default_rng(2).normal(size=(5, 3))
    for some in (True, False):
        u, s, v = cb.tensor(a).svd(some)
        q, r = cb.tensor(a).qr(some)
        assert u.shape == q.shape == (5, 3 if some else 5) and v.shape == (3, 3)
        full = u[:, :3] @ s.diag() @ v.mT
        np.testing.assert_allclose(full.numpy(), a, 1e-12, 1e-12)
        np.testing.assert_allclose((q @ r).numpy(), a, 1e-12, 1e-12)
    square = cb.tensor(a[:3])
    sign, size = square.slogdet()
    np.testing.assert_allclose((sign * size.exp()).item(), np.linalg.det(a[:3]))
    made = (square @ square.T).cholesky()
    np.testing.assert_allclose((made @ made.T).numpy(), a[:3] @ a[:3].T, 1e-9)


def test_what_a_tensor_is() -> None:
    x = cb.tensor([1.0, 2.0], device="cpu")
    assert x.is_cpu and not x.is_cuda and x.get_device() == -1 and x.itemsize == 4
    assert x.device.type == "cpu" and x.device.index is None
    assert cb.Device("cuda", 1).type == "cuda" and cb.Device("cuda", 1).index == 1
    assert x.is_signed() and not cb.tensor([1], "u8").is_signed() and not x.is_complex()
    assert x.isreal().tolist() == [True, True] and x[:1].is_nonzero() and x.is_same_size(x + 1)


OF_ELEMENTS = """exp log1p expm1 sqrt sin cos tanh erf silu sigmoid atan asinh log10 cbrt lgamma log2
    reciprocal gelu rsqrt isnan isinf isfinite deg2rad""".split()
ACTIVATIONS = """elu selu celu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish
    relu6 sigmoid silu softplus softshrink softsign tanhshrink softmin softmax""".split()


@pytest.mark.turns(6)
@pytest.mark.parametrize("dtype", [np.bool_, *INTEGERS])
def test_functions_of_integers_are_those_of_floats(dtype: Any) -> None:
    """Also where -x or x + 1 is beyond their dtype; at once and in programs."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, 40) > 0 if dtype is np.bool_ else drawn(rng, dtype, 40)
    if dtype not in (np.bool_, np.int8, np.uint8):  # what f32 holds
        a = a.clip(-(2**10) if np.iinfo(dtype).min else 0, 2**10)
    for name in [*OF_ELEMENTS, *(f"F.{n}" for n in ACTIVATIONS)]:
        if name == "F.softmax" and dtype is np.bool_:
            continue
        function = getattr(F if name[:2] == "F." else cb.Tensor, name.removeprefix("F."))
        want = function(cb.tensor(a.astype(np.float64))).numpy()
        x = cb.tensor(a)
        for found in (function(x), cb.jit(lambda x, f=function: f(x))(x)):
            least = 0 if want.dtype == bool else np.finfo(np.float32).max
            given, right = found.numpy().astype(np.float64), want.astype(np.float64)
            known = np.abs(right) <= least if least else right == right
            np.testing.assert_allclose(given[known], right[known], 2e-5, 2e-6, err_msg=name)


OF_FLOATS = np.random.default_rng(7).standard_normal((3, 4)).astype(np.float32)
OF_INTEGERS = np.random.default_rng(8).integers(-50, 50, (3, 4))
ON_A_GPU: dict[str, Any] = {
    "gcd": lambda x, i: i.gcd(12) + i.gcd(i.flip(0)),
    "lcm": lambda x, i: i.astype("i32").lcm(i.astype("i32").flip(1)),
    "view": lambda x, i: x.T.view("i32"),
    "view as narrow ones": lambda x, i: x.view("u8"),
    "histc": lambda x, i: x.histc(5),
    "equal": lambda x, i: cb.tensor([x.equal(x), x.equal(x * 2)]),
    "shift": lambda x, i: i.bitwise_left_shift(2),
    "norm": lambda x, i: x.norm(-math.inf, 1) + x.norm(0, 1) + x.norm(-1, 1),
    "no axes": lambda x, i: x[0, 0].softmax(0) + x[0, 0].sum(-1) + x[0, 0].cumsum(0),
    "scatter": lambda x, i: x.scatter(1, i.clip(0, 3), value=2),
    "mode": lambda x, i: i.mode(1)[0],
    "rows": lambda x, i: xp.searchsorted(x.sort(1)[0], x),
    "index_reduce": lambda x, i: x.index_reduce(0, x.new_tensor([1, 1, 0], "i64"), x, "mean"),
    "unique_consecutive": lambda x, i: x.unique_consecutive(),
    "diagonal_scatter": lambda x, i: x.diagonal_scatter(x[0, :3]),
    "mean": lambda x, i: x.mean(1) + x.mean(),
}


@pytest.mark.parametrize("name", ON_A_GPU)
def test_a_gpu_gives_what_the_host_gives(name: str) -> None:
    call = ON_A_GPU[name]
    with cb.use("cpu"):
        want = call(cb.tensor(OF_FLOATS), cb.tensor(OF_INTEGERS)).numpy()
    with emulated("gfx1100"):
        given = (cb.tensor(a, device="gfx1100") for a in (OF_FLOATS, OF_INTEGERS))
        found = call(*given)
        assert name == "equal" or str(found.device).startswith("gfx1100")
        np.testing.assert_allclose(found.numpy(), want, 1e-5, 1e-5)


@pytest.mark.parametrize("name", sorted(set(ON_A_GPU) - {"equal"}))
def test_what_is_given_goes_where_the_tensor_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is put into the memory of the current device on the way."""
    with pretend(monkeypatch) as backend, cb.use(f"{NAME}:0"):
        given = [cb.tensor(a, device=f"{NAME}:1") for a in (OF_FLOATS, OF_INTEGERS)]
        taken, allocate, upload = [], backend.gpu.allocate, backend.gpu.upload_new

        def noted(make: Any) -> Any:
            return lambda ordinal, what: (taken.append(ordinal), make(ordinal, what))[1]

        monkeypatch.setattr(backend.gpu, "allocate", noted(allocate))
        monkeypatch.setattr(backend.gpu, "upload_new", noted(upload))
        assert str(ON_A_GPU[name](*given).device) == f"{NAME}:1"
        assert 0 not in taken and (taken or "view" in name)
