"""Cubins and what decides them: they are kept on disk, and bounds of a launch are told to the code
generator.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="generating code for NVIDIA GPUs needs numba-cuda")
import cubepy as cb
from cubepy.backends.cuda.codegen import job
from cubepy.backends.cuda.offline import compile_for
from cubepy.errors import BackendCompileError
from cubepy.runtime import cache
from cubepy.runtime.stats import counters


@cb.kernel
def doubled(x: cb.Array, out: cb.Array):
    """out = 2 * x, by at least three cubes of a core at once."""
    cb.resident(3)
    out[cb.ABSOLUTE_POS] = x[cb.ABSOLUTE_POS] * 2


def test_a_cubin_is_made_once_for_each_architecture(tmp_path: Path) -> None:
    x = np.zeros(8, np.float32)
    with cb.config.override(cache_dir=str(tmp_path)):
        before = counters.compiled, counters.loaded
        first = compile_for("sm_90a", doubled, 96, x, x)
        made = first.cubin
        again = compile_for("sm_90a", doubled, 96, x, x)
        assert again.cubin == made and (counters.compiled, counters.loaded) == (
            before[0] + 1,
            before[1] + 1,
        )
        others = [compile_for("sm_80", doubled, 96, x, x), compile_for("sm_90a", doubled, 64, x, x)]
        assert len({first.key, *(code.key for code in others)}) == 3
        assert all(cache.read(code.key) is None for code in others)
    assert (
        ".maxntid 96" in first.ptx
        and ".minnctapersm 3" in first.ptx
        and ".target sm_90a" in first.ptx
    )


def test_an_architecture_that_the_compiler_does_not_know() -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(BackendCompileError, match="compiled for sm_999a") as caught:
        _ = compile_for("sm_999", doubled, 96, x, x).ptx
    assert "knows no sm_999;" in caught.value.hint and "sm_90a" in caught.value.hint


def test_without_its_compiler_even_the_ir_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.zeros(8, np.float32)
    code = compile_for("sm_90a", doubled, 96, x, x)
    assert "cubepy_doubled" in code.nvvm
    monkeypatch.setattr(job.importlib.util, "find_spec", lambda name: None)
    for what in ("nvvm", "ptx"):
        with pytest.raises(BackendCompileError, match="needs the package numba-cuda") as caught:
            getattr(code, what)
        assert 'pip install "cubepy[cuda13]"' in caught.value.hint


def test_what_the_compiler_does_not_take_is_said_in_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.zeros(8, np.float32)
    code = compile_for("sm_90a", doubled, 96, x, x)
    text = code.nvvm.replace("define void", "define nonsense void")
    monkeypatch.setattr(job.Job, "lowered", lambda self: text)
    with pytest.raises(BackendCompileError, match=r"ERROR_INVALID_IR.*expected type") as caught:
        code.translated()
    assert "defect of cubepy" in caught.value.hint
