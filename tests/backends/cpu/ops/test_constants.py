"""Constants of LLVM IR are made once, and are still what they were made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from cubepy.backends.llvm.ops.values import const

F64, I64 = ir.DoubleType(), ir.IntType(64)


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
@pytest.mark.parametrize("ty", [F64, ir.VectorType(F64, 4)], ids=str)
def test_zeros_keep_their_signs(ty: Any, kind: Any) -> None:
    for _ in range(2):
        assert "8000000000000000" not in str(const(ty, kind(0.0)))
        assert "8000000000000000" in str(const(ty, kind(-0.0)))


def test_numbers_that_are_equal_are_constants_of_their_types() -> None:
    assert const(I64, 1) is const(I64, 1)
    assert (str(const(F64, 1.0)), str(const(I64, 1))) == ("double 0x3ff0000000000000", "i64 1")
    assert str(const(ir.VectorType(I64, 2), 7)) == "<2 x i64> <i64 7, i64 7>"
