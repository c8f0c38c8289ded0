"""Work that the memory limits: maps, movement, normalisation, reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.kernels import axpy_of, chain_of
from benchmarks.peers import Graph, Run, compiled, jax_module, jitted, node, torch_module
from benchmarks.work import Work, draw, placed
from cubepy import kernels as K
from cubepy.kernels.primitives.functions import add

SQUARE = ("4096x4096",)
BLOCK = ("32x512x2048",)
SUMS = ("32x512x4096",)


def f() -> Any:
    """torch.nn.functional"""
    return torch_module().nn.functional


def one(*shape: int) -> tuple[np.ndarray, ...]:
    return (draw(*shape),)


def two(*shape: int) -> tuple[np.ndarray, ...]:
    return draw(*shape), draw(*shape, seed=1)


def with_out(*shape: int) -> tuple[np.ndarray, ...]:
    """An array and one to write, both where NumPy's own begin."""
    return placed(draw(*shape), 16), placed(np.zeros(shape, np.float32), 16)


def odd(*shape: int) -> tuple[np.ndarray, ...]:
    """Arrays that begin inside of a line of the cache, as parts of others do."""
    return placed(draw(*shape), 4), placed(draw(*shape, seed=1), 36)


def once(*shape: int) -> float:
    """Bytes of an array that is read."""
    return 4.0 * math.prod(shape)


def twice(*shape: int) -> float:
    """Bytes of an array that is read and one that is written."""
    return 8.0 * math.prod(shape)


def thrice(*shape: int) -> float:
    """Bytes of two arrays that are read and one that is written."""
    return 12.0 * math.prod(shape)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def chain(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.exp(-x * x) + 0.5 * x)


def _torch_gelu(x: Any) -> Run:
    function = f().gelu
    return lambda: function(x)


def _torch_gelu_tanh(x: Any) -> Run:
    function = f().gelu
    return lambda: function(x, approximate="tanh")


def _torch_chain(x: Any) -> Run:
    torch = torch_module()
    return lambda: torch.tanh(torch.exp(-x * x) + 0.5 * x)


def _torch_softmax(x: Any) -> Run:
    return lambda: x.softmax(-1)


def _torch_layer_norm(x: Any) -> Run:
    function, shape = f().layer_norm, x.shape[-1:]
    return lambda: function(x, shape)


def _onnx_layer_norm(x: np.ndarray) -> Graph:
    ones, zeros = (np.full(x.shape[-1], value, np.float32) for value in (1, 0))
    return node("LayerNormalization", epsilon=1e-5)(x, ones, zeros)


def _torch_out(name: str, *options: Any) -> Any:
    """A function of torch that writes its second array."""
    return lambda x, out: lambda: getattr(torch_module(), name)(x, *options, out=out)


def _jax_chain(x: Any) -> Any:
    jnp = jax_module().numpy
    return jnp.tanh(jnp.exp(-x * x) + 0.5 * x)


def _jax_layer_norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax_module().lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)


WORKS = {
    "copy": Work(SQUARE, one, lambda x: lambda: K.copy(x), lambda x: lambda: x.copy(), lambda x: x.clone, bytes=twice),
    "axpy": Work(
        ("2048x2048", "8192x4096"), lambda *n: (draw(*n), draw(*n, seed=1)),
        lambda x, y: lambda: K.map(axpy_of, x, y), lambda x, y: lambda: 2 * x + y,
        lambda x, y: lambda: torch_module().add(y, x, alpha=2), bytes=lambda *n: 12.0 * math.prod(n),
    ),
    "gelu": Work(
        BLOCK, one, lambda x: lambda: K.gelu(x), None, _torch_gelu, node("Gelu"), gelu,
        bytes=twice, quick="4x512x256", compiled=compiled(_torch_gelu),
        jax=jitted(lambda x: jax_module().nn.gelu(x, approximate=False)),
    ),
    "gelu_tanh": Work(
        BLOCK, one, lambda x: lambda: K.gelu(x, "tanh"), lambda x: lambda: gelu_tanh(x),
        _torch_gelu_tanh, node("Gelu", approximate="tanh"), gelu_tanh, bytes=twice, quick="4x512x256",
        compiled=compiled(_torch_gelu_tanh), jax=jitted(lambda x: jax_module().nn.gelu(x, approximate=True)),
    ),
    "exp_tanh_chain": Work(
        BLOCK, one, lambda x: lambda: K.map(chain_of, x), lambda x: lambda: chain(x), _torch_chain, bytes=twice,
        quick="4x512x256", compiled=compiled(_torch_chain), jax=jitted(_jax_chain),
    ),
    "softmax": Work(
        SQUARE, one, lambda x: lambda: K.softmax(x), lambda x: lambda: softmax(x), _torch_softmax,
        node("Softmax", axis=-1), bytes=twice, compiled=compiled(_torch_softmax),
        jax=jitted(lambda x: jax_module().nn.softmax(x)),
    ),
    "layer_norm": Work(
        SQUARE, one, lambda x: lambda: K.layer_norm(x, x.shape[-1]), lambda x: lambda: layer_norm(x),
        _torch_layer_norm, _onnx_layer_norm, bytes=twice, compiled=compiled(_torch_layer_norm),
        jax=jitted(_jax_layer_norm),
    ),
    "add": Work(
        ("8192x4096",), two, lambda x, y: lambda: K.map(add, x, y), lambda x, y: lambda: x + y,
        lambda x, y: lambda: torch_module().add(x, y), bytes=thrice, jax=jitted(lambda x, y: x + y),
    ),
    "add_odd": Work(
        ("8192x4096",), odd, lambda x, y: lambda: K.map(add, x, y), lambda x, y: lambda: x + y,
        lambda x, y: lambda: torch_module().add(x, y), bytes=thrice,
    ),
    "softmax_odd": Work(
        SQUARE, lambda *n: odd(*n)[:1], lambda x: lambda: K.softmax(x), lambda x: lambda: softmax(x), _torch_softmax,
        bytes=twice,
    ),
    "layer_norm_odd": Work(
        SQUARE, lambda *n: odd(*n)[:1], lambda x: lambda: K.layer_norm(x, x.shape[-1]), lambda x: lambda: layer_norm(x),
        _torch_layer_norm, bytes=twice,
    ),
    "copy_out": Work(
        SQUARE, with_out, lambda x, out: lambda: K.copy(x, out=out), lambda x, out: lambda: np.copyto(out, x) or out,
        lambda x, out: lambda: out.copy_(x), exact=lambda x, out: x, bytes=twice,
    ),
    "gelu_out": Work(
        BLOCK, with_out, lambda x, out: lambda: K.gelu(x, out=out), None, lambda x, out: _torch_gelu(x),
        exact=lambda x, out: gelu(x), bytes=twice, quick="4x512x256",
    ),
    "softmax_out": Work(
        SQUARE, with_out, lambda x, out: lambda: K.softmax(x, out=out), None, _torch_out("softmax", -1),
        exact=lambda x, out: softmax(x), bytes=twice,
    ),
    "layer_norm_out": Work(
        SQUARE, with_out, lambda x, out: lambda: K.layer_norm(x, x.shape[-1], out=out), None,
        lambda x, out: _torch_layer_norm(x), exact=lambda x, out: layer_norm(x), bytes=twice,
    ),
    "transpose_out": Work(
        SQUARE, with_out, lambda x, out: lambda: K.transpose(x, out=out), None, lambda x, out: lambda: out.copy_(x.T),
        exact=lambda x, out: x.T, bytes=twice,
    ),
    "transpose": Work(
        SQUARE, one, lambda x: lambda: K.transpose(x), lambda x: lambda: np.ascontiguousarray(x.T),
        lambda x: lambda: x.T.contiguous(), node("Transpose", perm=[1, 0]), bytes=twice, jax=jitted(lambda x: x.T),
    ),
    "sum": Work(
        SQUARE, one, lambda x: lambda: K.sum(x), lambda x: x.sum, lambda x: x.sum, bytes=once, reads=True,
        jax=jitted(lambda x: x.sum()),
    ),
    "sum_rows": Work(
        SQUARE, one, lambda x: lambda: K.sum(x, 1), lambda x: lambda: x.sum(1), lambda x: lambda: x.sum(1), bytes=once,
        reads=True, jax=jitted(lambda x: x.sum(1)),
    ),
    "sum_columns": Work(
        SQUARE, one, lambda x: lambda: K.sum(x, 0), lambda x: lambda: x.sum(0), lambda x: lambda: x.sum(0), bytes=once,
        reads=True, jax=jitted(lambda x: x.sum(0)),
    ),
    "sum_axis0": Work(
        SUMS, one, lambda x: lambda: K.sum(x, 0), lambda x: lambda: x.sum(0), lambda x: lambda: x.sum(0), bytes=once,
        reads=True, jax=jitted(lambda x: x.sum(0)),
    ),
    "sum_axis1": Work(
        SUMS, one, lambda x: lambda: K.sum(x, 1), lambda x: lambda: x.sum(1), lambda x: lambda: x.sum(1), bytes=once,
        reads=True, jax=jitted(lambda x: x.sum(1)),
    ),
    "sum_axis2": Work(
        SUMS, one, lambda x: lambda: K.sum(x, 2), lambda x: lambda: x.sum(2), lambda x: lambda: x.sum(2), bytes=once,
        reads=True, jax=jitted(lambda x: x.sum(2)),
    ),
    "max_rows": Work(
        SQUARE, one, lambda x: lambda: K.max(x, 1), lambda x: lambda: x.max(1), lambda x: lambda: x.amax(1), bytes=once,
        reads=True, jax=jitted(lambda x: x.max(1)),
    ),
    "max_columns": Work(
        SQUARE, one, lambda x: lambda: K.max(x, 0), lambda x: lambda: x.max(0), lambda x: lambda: x.amax(0), bytes=once,
        reads=True, jax=jitted(lambda x: x.max(0)),
    ),
    "argmax_rows": Work(
        SQUARE, one, lambda x: lambda: K.argmax(x, 1), lambda x: lambda: x.argmax(1), lambda x: lambda: x.argmax(1),
        node("ArgMax", axis=1, keepdims=0, result=np.int64), bytes=once, reads=True, jax=jitted(lambda x: x.argmax(1)),
    ),
    "argmax_columns": Work(
        SQUARE, one, lambda x: lambda: K.argmax(x, 0), lambda x: lambda: x.argmax(0), lambda x: lambda: x.argmax(0),
        node("ArgMax", axis=0, keepdims=0, result=np.int64), bytes=once, reads=True, jax=jitted(lambda x: x.argmax(0)),
    ),
}  # fmt: skip
