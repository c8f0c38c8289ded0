"""What programs make of weights alone is made once, and again when a weight has other elements:
however it was given them.
"""

from __future__ import annotations

import gc
import mmap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from cubepy import tensor as T
from cubepy.nn import functional as F
from cubepy.tensor import apply, copysign
from cubepy.tensor.fusion.prepared import NEVER
from cubepy.tensor.program.program import Program

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(24, 80), nn.Linear(80, 24)

    def forward(self, x: Any) -> Any:
        return x + self.down(F.gelu(self.up(x)))


def inference(net: Any) -> Any:
    @cb.jit
    def run(x: Any) -> Any:
        with cb.no_grad():
            return net(x)

    return run


def warmed() -> tuple[Net, Any, cb.Tensor]:
    net, x = Net().eval(), cb.tensor(numbers(40, 24))
    run = inference(net)
    for _ in range(4):
        run(x)
    return net, run, x


def program_of(run: Any) -> Program:
    (found,) = (p for programs in run.programs.values() for p in programs)
    return found


def expected(net: Net, x: cb.Tensor) -> np.ndarray:
    up, down, given = net.up, net.down, np.asarray(x.numpy(), np.float64)
    with cb.no_grad():
        h = given @ up.weight.detach().astype("f64").numpy().T + up.bias.astype("f64").numpy()
        h = F.gelu(cb.tensor(h)).numpy()
    return given + h @ down.weight.astype("f64").numpy().T + down.bias.astype("f64").numpy()


def assert_right(net: Net, run: Any, x: cb.Tensor) -> None:
    np.testing.assert_allclose(run(x).numpy(), expected(net, x), rtol=1e-5, atol=1e-4)


def test_weights_are_laid_out_once() -> None:
    net, run, x = warmed()
    program = program_of(run)
    assert [n.op for n in program.graph.nodes if n.op != "input"] == ["fused_linear"] * 2
    assert program.plan is not None and program.plan.launches == 2
    before = program.writer.prepared.state
    for _ in range(3):
        assert_right(net, run, x)
    assert program.writer.prepared.state is before and before[1] != NEVER


def test_few_rows_read_the_weights_as_they_are() -> None:
    net = Net().eval()
    run, x = inference(net), cb.tensor(numbers(2, 24))
    for _ in range(4):
        run(x)
    assert program_of(run).writer.prepared is None
    assert_right(net, run, x)


def by_state(net: Net) -> None:
    net.load_state_dict({k: cb.tensor(numbers(*v.shape)) for k, v in net.state_dict().items()})


def by_assignment(net: Net) -> None:
    net.up.weight.assign_(net.up.weight.detach() * 2)


def by_writing_its_memory(net: Net) -> None:
    net.up.weight.numpy()[3:] *= -1


def by_writing_a_view(net: Net) -> None:
    net.down.weight.detach().T.reshape(80, 24).numpy()[5] = 3


def by_training(net: Net) -> None:
    optimizer = nn.optim.SGD(net.parameters(), lr=0.1)
    (net(cb.tensor(numbers(40, 24))) ** 2).mean().backward()
    optimizer.step()


def by_array_protocol(net: Net) -> None:
    np.asarray(net.up.weight)[...] = 0.25


@cb.kernel
def doubled(x: cb.Array):
    i = cb.ABSOLUTE_POS
    if i < x.size:
        x[i] = x[i] * 2


def by_a_kernel(net: Net) -> None:
    with cb.no_grad():
        doubled[1, 80](net.up.bias), doubled[1, 24](net.down.weight[0, :24])


CHANGES = [by_state, by_assignment, by_writing_its_memory, by_writing_a_view, by_training,
           by_array_protocol, by_a_kernel]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_seen(change: Callable[[Net], None]) -> None:
    net, run, x = warmed()
    old = run(x).numpy().copy()
    change(net)
    assert np.abs(run(x).numpy() - old).max() > 1e-3
    assert_right(net, run, x)
    assert sum(run.traces.values()) == 1


def test_an_array_that_somebody_still_has() -> None:
    """What was given to `cb.tensor` may be written at any time, and so may what `numpy` gave."""
    net, _, x = warmed()
    weight = numbers(80, 24)
    net.up.weight.take_over_(cb.tensor(weight))
    run = inference(net)
    for k in range(6):
        weight[k] = k
        assert_right(net, run, x)
    out = net.down.weight.numpy()
    for k in range(4):
        out[k] = k
        assert_right(net, run, x)
    assert program_of(run).writer.prepared.state[1] == NEVER
    del weight, out
    assert_right(net, run, x)
    run(x)
    assert program_of(run).writer.prepared.state[1] != NEVER


def mapped(path: Path, data: bytes) -> memoryview:
    path.write_bytes(data)
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@pytest.mark.parametrize("kind", ["bytes", "view of bytes", "view of a file", "view of a buffer"])
def test_memory_that_nobody_can_write(kind: str, tmp_path: Path) -> None:
    net, _, x = warmed()
    data: Any = numbers(80, 24).tobytes()
    if kind == "view of a file":
        data = mapped(tmp_path / "weight", data)
    elif kind != "bytes":
        data = memoryview(data if kind == "view of bytes" else bytearray(data))
    fixed = np.frombuffer(data, np.float32).reshape(80, 24)
    net.up.weight.take_over_(cb.tensor(fixed))
    run = inference(net)
    for _ in range(4):
        assert_right(net, run, x)
    run(x), run(x)
    lasting = program_of(run).writer.prepared.state[1] != NEVER
    assert lasting == (kind != "view of a buffer")


def test_programs_of_all_shapes_have_the_same_panels() -> None:
    net, run, _ = warmed()
    other = cb.tensor(numbers(3, 17, 24))
    for _ in range(4):
        run(other)
    states = [p.writer.prepared.state for ps in run.programs.values() for p in ps]
    assert len(states) == 2
    assert all(a is b for a, b in zip(states[0][2], states[1][2], strict=True))
    np.testing.assert_allclose(run(other).numpy(), expected(net, other), rtol=1e-5, atol=1e-4)


def test_panels_go_with_the_weights() -> None:
    net, run, x = warmed()
    panels = weakref.ref(program_of(run).writer.prepared.state[2][0])
    by_state(net)
    assert_right(net, run, x)
    gc.collect()
    assert panels() is None


def test_what_is_differentiated_keeps_its_weights() -> None:
    net, x = Net(), cb.tensor(numbers(40, 24))
    run = cb.jit(net)
    for _ in range(4):
        y = run(x)
    assert program_of(run).writer.prepared is None
    (y * y).sum().backward()
    assert net.up.weight.grad is not None


def test_weights_that_the_program_changes_are_read_anew() -> None:
    w, x = cb.tensor(numbers(24, 24)), cb.tensor(numbers(32, 24))

    @cb.jit
    def run(x: Any) -> Any:
        y = F.linear(x, w)
        w.assign_(w * 1.5)
        return y

    for k in range(6):
        want = F.linear(x, w).numpy()
        np.testing.assert_allclose(run(x).numpy(), want, rtol=1e-5, atol=1e-5 * 1.5**k)


def test_a_weight_of_another_shape_is_another_program() -> None:
    table = {"w": cb.tensor(numbers(24, 24))}
    held = nn.Parameter(table["w"], requires_grad=False)
    run, x = cb.jit(lambda x: F.linear(x, held)), cb.tensor(numbers(32, 24))
    for _ in range(4):
        run(x)
    held.take_over_(cb.tensor(numbers(40, 24)))
    np.testing.assert_allclose(run(x).numpy(), x.numpy() @ held.numpy().T, rtol=1e-5, atol=1e-5)
    held.take_over_(cb.tensor(numbers(40, 24).astype(np.float16)))
    assert run(x).shape == (32, 40)


def test_several_threads_see_changes() -> None:
    net, run, x = warmed()
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(50):
            y = run(x).numpy()
            if not any(np.allclose(y, want, rtol=1e-4, atol=1e-4) for want in wants):
                wrong.append(y)

    weights = [cb.tensor(numbers(80, 24)) for _ in range(3)]
    wants = [expected(net, x)]
    for weight in weights:
        net.up.weight.take_over_(weight)
        wants.append(expected(net, x))
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for k in range(30):
        net.up.weight.take_over_(weights[k % 3])
    for t in threads:
        t.join()
    assert not wrong


def test_what_is_made_of_weights_by_numbers_of_either_zero_is_told_apart() -> None:
    """0.0 and -0.0 are equal, and what programs made of one weight by them is not."""
    weight, x = cb.tensor(np.asarray([1.0, 2.0], np.float32)), cb.tensor(np.ones(2, np.float32))
    for zero in (0.0, -0.0):
        program = cb.jit(lambda x, zero=zero: copysign(x, weight * zero * 2))
        with cb.no_grad():
            for _ in range(3):
                np.testing.assert_array_equal(program(x).numpy(), [np.copysign(1, zero)] * 2)


@pytest.mark.parametrize(
    "made",
    [
        lambda w: T.concat([w[:, 12:], w[:, :12]], axis=1),
        lambda w: w.T.reshape(12, 48)[:, :24],
        lambda w: w[:, :22:2].reshape(11, 24),
        lambda w: T.concat([w[3:5], w[:2]])[1:3],
        lambda w: apply("pad", w[:10], widths=(0, 0, 0, 2), mode="constant", value=1.0),
        lambda w: w.T.contiguous(),
        lambda w: (w * 2).T[3],
    ],
)
def test_weights_put_in_another_order_are_copied_once(made: Callable[[Any], Any]) -> None:
    w, x = cb.tensor(numbers(24, 24)), cb.tensor(numbers(24))
    run = cb.jit(lambda x: x * made(w))
    for k in range(6):
        np.testing.assert_array_equal(run(x).numpy(), (x * made(w)).numpy())
        if k == 4:
            program = program_of(run)
            assert program.plan is not None and program.plan.launches == 1
            assert len(program.writer.prepared.state[2]) == 1
            w.assign_(w + 1)


@pytest.mark.parametrize(
    "made", [lambda w: w[4], lambda w: w.T[:, 2:3].T, lambda w: w.reshape(-1)[5:29]]
)
def test_looks_at_weights_are_not_kept(made: Callable[[Any], Any]) -> None:
    w, x = cb.tensor(numbers(24, 24)), cb.tensor(numbers(24))
    run = cb.jit(lambda x: x + made(w))
    for _ in range(4):
        np.testing.assert_array_equal(run(x).numpy(), (x + made(w)).numpy())
    assert program_of(run).writer.prepared is None


def test_arrays_of_one_number_are_read_as_numbers() -> None:
    x = cb.tensor(numbers(6, 5))
    run = cb.jit(lambda x: T.where(x > 0, T.ones_like(x), x))
    for _ in range(4):
        y = run(x)
    np.testing.assert_array_equal(y.numpy(), np.where(x.numpy() > 0, 1, x.numpy()))
    assert program_of(run).plan.launches == 1
