"""Indices outside on an emulated GPU: they read zero and write nothing, and validate mode names
them.
"""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cb
from cubepy import kernels as K
from cubepy.errors import OutOfBoundsError
from cubepy.runtime.memory.device_array import upload

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
from tests.backends.cuda.emulator.device import emulated
from tests.kernels.indexing.test_bounds import check_reads_and_writes


def test_what_is_outside_reads_zero_and_is_not_written() -> None:
    with emulated() as gpu:
        check_reads_and_writes(gpu, ("assign", "add"))


def test_validate_mode_names_function_index_and_length() -> None:
    with emulated() as gpu:
        table, index = upload(np.ones((7, 4), np.float32), gpu), upload(np.array([1, 9]), gpu)
        assert K.embedding(index, table).numpy().tolist() == [[1] * 4, [0] * 4]
        with cb.config.override(mode="validate"):
            with pytest.raises(
                OutOfBoundsError, match="embedding: the index 9 is outside an axis of length 7"
            ):
                K.embedding(index, table)
        with (
            pytest.raises(OutOfBoundsError, match="embedding: the index 9"),
            cb.config.override(debug=1),
        ):
            cb.nn.functional.embedding(cb.tensor(index), cb.tensor(table))
