"""The texts that we write of instructions are llvmlite's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubepy.backends.cpu import lowering
from cubepy.backends.hip.codegen import lowering as hip_lowering
from cubepy.backends.llvm import passes
from cubepy.config import config
from tests.backends.hip.emulator.device import emulated
from tests.conformance.random_kernels.compare import check, load, random_case
from tests.conformance.random_kernels.typed_compare import check as check_typed
from tests.conformance.random_kernels.typed_compare import typed_case
from tests.staging import staged


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> set[type]:
    """The kinds of instructions whose texts were compared, in all that is compiled meanwhile."""
    seen: set[type] = set()

    def compared(module: Any) -> str:
        whole = str(module)
        seen.update(
            type(i) for f in module.functions for block in f.blocks for i in block.instructions
        )
        text = passes.last_text_of(module)
        assert text == whole
        return text

    for by in (lowering, hip_lowering):
        monkeypatch.setattr(by, "last_text_of", compared)
    return seen


@pytest.mark.parametrize("seed", [201, 202, 203])
def test_random_kernels_have_the_same_text(seed: int, kinds: set[type], tmp_path: Path) -> None:
    source, shape = random_case(seed)
    with config.override(cache=False):
        check(load(source, tmp_path, f"kernel_{seed}"), "cpu", shape, levels=(2,))
    assert len(kinds & passes.WRITTEN.keys()) > 5


@pytest.mark.parametrize("seed", [204, 205, 206])
def test_so_have_kernels_over_every_dtype(seed: int, kinds: set[type], tmp_path: Path) -> None:
    case = typed_case(seed)
    with config.override(cache=False):
        check_typed(load(case.source, tmp_path, f"kernel_{seed}"), "cpu", case)
    assert len(kinds & passes.WRITTEN.keys()) > 5


def test_so_have_kernels_for_gpus(kinds: set[type], tmp_path: Path) -> None:
    case = typed_case(207)
    with emulated("gfx942"), pytest.MonkeyPatch.context() as patch, staged(patch):
        with config.override(cache=False):
            check_typed(load(case.source, tmp_path, "kernel_207"), "gfx942", case)
    assert len(kinds & passes.WRITTEN.keys()) > 5
