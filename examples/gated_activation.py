"""An activation of two inputs as kernels, with its gradient: silu(gate) * up in one pass each way.

Written in ops the gradient is seven passes op by op; `cb.custom_vjp` says what it is, in a kernel
with two results. Programs run both kernels as steps of their own call of machine code.
"""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F


@cb.kernel
def gated_forward(gate: cb.Array, up: cb.Array, out: cb.Array):
    """out = gate * sigmoid(gate) * up"""
    i = cb.ABSOLUTE_POS
    if i < out.size:
        out[i] = gate[i] / (1.0 + cb.exp(-gate[i])) * up[i]


@cb.kernel
def gated_backward(
    gate: cb.Array, up: cb.Array, grad: cb.Array, by_gate: cb.Array, by_up: cb.Array
):
    """The gradients by both inputs, of the gradient by the result."""
    i = cb.ABSOLUTE_POS
    if i < grad.size:
        s = 1.0 / (1.0 + cb.exp(-gate[i]))
        by_gate[i] = grad[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s))
        by_up[i] = grad[i] * gate[i] * s


@cb.custom_vjp
def gated(gate, up):
    """silu(gate) * up"""
    flat = cb.TensorSpec((gate.size,), gate.dtype)
    out = cb.kernel_call(gated_forward[cb.over(gate.size)], gate.reshape(-1), up.reshape(-1), flat)
    return out.reshape(gate.shape)


def forward(gate, up):
    """The result, and what the gradient needs."""
    return gated(gate, up), (gate, up)


def backward(saved, grad):
    """The gradients by `gate` and `up`."""
    flat = [t.reshape(-1) for t in (*saved, grad)]
    wanted = cb.TensorSpec((grad.size,), grad.dtype)
    made = cb.kernel_call(gated_backward[cb.over(grad.size)], *flat, wanted, wanted)
    return tuple(t.reshape(grad.shape) for t in made)


gated.defvjp(forward, backward)


class GatedMLP(nn.Module):
    """The feed-forward block of a Llama."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner), nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        return self.down(gated(self.gate(x), self.up(x)))


def main() -> None:
    """Compare the gradients with those of ops, and train a small block as a program."""
    rng = np.random.default_rng(0)
    gate, up = (cb.tensor(rng.standard_normal((8, 33)).astype(np.float32)) for _ in range(2))
    ours = cb.grad(lambda a, b: (gated(a, b) ** 2).sum(), (0, 1))(gate, up)
    ops = cb.grad(lambda a, b: ((F.silu(a) * b) ** 2).sum(), (0, 1))(gate, up)
    for one, other in zip(ours, ops, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5)

    nn.init.manual_seed(0)
    net = GatedMLP(8, 32)
    optimizer = nn.optim.Adam(net.parameters(), lr=0.01)

    @cb.jit
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x = cb.tensor(rng.standard_normal((64, 8)).astype(np.float32))
    y = x.flip(1) * 0.5
    losses = [step(x, y).item() for _ in range(200)]
    assert losses[-1] < losses[0] / 20
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.4f}; {sum(step.traces.values())} traces")


if __name__ == "__main__":
    main()
