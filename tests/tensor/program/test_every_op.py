"""Every op inside a program: its launches are a plan, and give what the op gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.tensor import Tensor, apply
from cubepy.tensor.ops import OPS

RNG = np.random.default_rng(5)


def some(*shape: int, low: float = -2.0, high: float = 2.0) -> Tensor:
    return cb.tensor(RNG.uniform(low, high, shape).astype(np.float32))


def ints(*shape: int, below: int = 5) -> Tensor:
    return cb.tensor(RNG.integers(0, below, shape))


def bools(*shape: int) -> Tensor:
    return cb.tensor(RNG.random(shape) > 0.5)


POSITIVE = "add sub mul pow minimum maximum floordiv mod div eq ne lt le gt ge".split()
NUMBERS: dict[str, Any] = {"axis": None, "keepdims": False}
SAMPLES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    **{n: ((some(4, 6, low=0.1), some(4, 6, low=0.1)), {}) for n in POSITIVE},
    **{n: ((ints(4, 6), ints(4, 6)), {}) for n in ("and", "or", "xor")},
    **{n: ((some(4, 6),), NUMBERS) for n in ("sum", "prod", "mean", "max", "min")},
    **{n: ((some(4, 6),), {"axis": 1, "keepdims": False}) for n in ("argmax", "argmin")},
    "where": ((bools(4, 6), some(4, 6), some(4, 6)), {}),
    "not": ((bools(4, 6),), {}),
    "gelu": ((some(4, 6),), {"approximate": "tanh"}),
    "cast": ((some(4, 6),), {"dtype": "f64"}),
    "embedding": ((ints(3, 4), some(5, 7)), {}),
    "embedding_gradient": ((some(3, 4, 7), ints(3, 4)), {"rows": 5}),
    "reshape": ((some(4, 6),), {"shape": (3, 8)}),
    "contiguous": ((some(4, 6).T,), {}),
    "permute": ((some(4, 6),), {"axes": (1, 0)}),
    "expand": ((some(4, 1),), {"shape": (4, 6)}),
    "slice": ((some(4, 6),), {"index": ((1, 3, None), 2)}),
    "unslice": ((some(2),), {"shape": (4, 6), "index": ((1, 3, None), 2)}),
    "concat": ((some(4, 6), some(4, 2)), {"axis": 1}),
    "softmax": ((some(4, 6),), {"axis": -1}),
    "layer_norm": ((some(4, 6), some(6), some(6)), {"normalized_shape": (6,), "eps": 1e-5}),
    "matmul": ((some(4, 6), some(6, 3)), {}),
    "linear": ((some(4, 6), some(3, 6), some(3), some(4, 3)), {"activation": "relu"}),
    "attention": (
        (some(1, 2, 4, 8), some(1, 2, 5, 8), some(1, 2, 5, 8), None),
        {"is_causal": False, "scale": None},
    ),
}
_ROW = {"axis": -1, "descending": False}
_SPREAD = {"axis": 1, "correction": 1, "keepdims": False}
SAMPLES |= {
    "full": ((), {"shape": (4, 6), "value": 2.5, "dtype": "f32"}),
    "arange": ((), {"start": 0, "step": 2, "count": 24, "dtype": "i64"}),
    "invert": ((ints(4, 6),), {}),
    "clip": ((some(4, 6), some(6), some(4, 6, low=2.0, high=3.0)), {}),
    "flat_index": ((ints(4, below=4), ints(4, below=6)), {"lengths": (4, 6)}),
    "take": ((some(4, 6), ints(3, below=6)), {"axis": 1}),
    "put": ((some(4, 6), ints(3, below=6), some(4, 3)), {"axis": 1, "update": "add"}),
    "gather": ((some(4, 6), ints(3, 6, below=4)), {"axis": 0}),
    "scatter": ((some(4, 6), ints(3, 6, below=4), some(3, 6)), {"axis": 0, "update": "add"}),
    "take_along_axis": ((some(4, 6), ints(3, 6, below=4)), {"axis": 0}),
    "slice_put": ((some(4, 6), some(2)), {"index": ((1, 3, None), (0, 2, None))}),
    "pad": ((some(4, 6),), {"widths": (1, 2, 0, 1), "mode": "constant", "value": 3.0}),
    **{n: ((some(4, 6),), _ROW) for n in ("sort", "argsort")},
    "topk": ((some(4, 6),), {"k": 2, "axis": 1, "largest": True}),
    **{n: ((some(4, 6),), {"axis": 1, "exclusive": False}) for n in ("cumsum", "cumprod")},
    **{n: ((some(4, 6),), {"axis": 1}) for n in ("cummax", "cummin")},
    **{n: ((some(4, 6),), _SPREAD) for n in ("var", "std")},
    "logsumexp": ((some(4, 6),), NUMBERS),
    "norm": ((some(4, 6),), {"ord": 2, **NUMBERS}),
    **{n: ((bools(4, 6),), NUMBERS) for n in ("any", "all")},
}
_RULES: dict[str, tuple[Any, ...]] = {
    "_float_unary": (some(4, 6, low=0.1, high=0.9),),
    "_same_unary": (some(4, 6),),
    "_sign": (some(4, 6),),
    "_float_binary": (some(4, 6), some(4, 6)),
    "_float_test": (some(4, 6),),
    "_signbit": (some(4, 6),),
    "_nextafter": (some(4, 6), some(4, 6)),
    "_shift": (ints(4, 6), ints(4, 6)),
}
for _name, _op in OPS.items():
    if _name not in SAMPLES and _op.rule.__name__ in _RULES:
        SAMPLES[_name] = _RULES[_op.rule.__name__], {}


@pytest.mark.parametrize("op", sorted(SAMPLES))
def test_an_op_between_others_is_a_step_of_a_plan(op: str) -> None:
    given, attrs = SAMPLES[op]

    def function(*tensors: Tensor) -> list[Tensor]:
        rest = iter([t * 1 if t.dtype.is_float else t for t in tensors])
        made = apply(op, *[None if t is None else next(rest) for t in given], **attrs)
        return [y * 1 if y.dtype.is_float else y for y in (made if type(made) is list else [made])]

    tensors = [t for t in given if t is not None]
    program = cb.jit(function)
    wanted = function(*tensors)
    for _ in range(5):
        found = program(*tensors)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype is other.dtype
            np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert "one call of machine code" in program.explain()
