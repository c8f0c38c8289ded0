"""The emulator of AMD GPUs: single instructions with known results, and planted faults, which it has
to find.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy.backends.hip.codegen.architecture import KNOWN
from cubepy.backends.hip.offline import compile_for
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.layout import layout_of
from tests.backends.hip.emulator import Fault, Gpu, gpu
from tests.backends.hip.emulator.device import EmulatedBackend, block
from tests.backends.hip.emulator.memory import Shared

F = np.float32
HEAD = """
kernel:
{lines}
	s_endpgm
	.section .rodata
	.amdhsa_kernel kernel
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_user_sgpr_count 2
		.amdhsa_wavefront_size32 {narrow}
		.amdhsa_group_segment_fixed_size {shared}
	.end_amdhsa_kernel
"""


def run(
    lines: str, name: str, *arrays: np.ndarray, units: int = 0, shared: int = 0, cubes: int = 1
) -> None:
    """Run instructions: s[0:1] lead to the addresses of the arrays, v0 is the unit."""
    chip = Gpu(name)
    for a in arrays:
        chip.memory.add(a.ctypes.data, a.nbytes)
    narrow = int(name.startswith("gfx1"))
    body = "\n".join(
        f"\t{line.strip()}" if ":" not in line[-1:] else line for line in lines.split("\n")
    )
    text = HEAD.format(lines=body, narrow=narrow, shared=shared)
    words = [a.ctypes.data for a in arrays]
    chip.launch(text, words, (cubes,), (units or (32 if narrow else 64), 1, 1))


def given(line: str, *operands: int, name: str = "gfx1100", result: str = "v3") -> int:
    """What an instruction leaves in v3 of lane 5, v0 to v2 holding these words in every lane."""
    moves = "\n".join(f"v_mov_b32_e32 v{k}, {x:#x}" for k, x in enumerate(operands))
    out = np.zeros(64, np.uint32)
    run(
        f"""v_lshlrev_b32_e32 v9, 2, v0
        {moves}
        {line}
        s_load_b64 s[4:5], s[0:1], 0x0
        global_store_b32 v9, {result}, s[4:5]""",
        name,
        out,
    )
    return int(out[5])


def f32(x: float) -> int:
    return int(np.float32(x).view(np.uint32))


@pytest.mark.parametrize(
    ("line", "operands", "result"),
    [
        ("v_add_nc_u32_e32 v3, v0, v1", (0xFFFFFFFF, 2), 1),
        ("v_add_nc_u32_e64 v3, v0, v1 clamp", (0xFFFFFFFF, 2), 0xFFFFFFFF),
        ("v_sub_nc_u32_e64 v3, v0, v1 clamp", (1, 2), 0),
        ("v_add_nc_i32 v3, v0, v1 clamp", (0x7FFFFFFF, 2), 0x7FFFFFFF),
        ("v_add_nc_i32 v3, v0, v1 clamp", (0x80000000, 0xFFFFFFFF), 0x80000000),
        ("v_sub_nc_u32_e32 v3, v0, v1", (1, 2), 0xFFFFFFFF),
        ("v_mul_hi_u32 v3, v0, v1", (0x80000000, 6), 3),
        ("v_mul_hi_i32 v3, v0, v1", (0x80000000, 6), 0xFFFFFFFD),
        ("v_mul_hi_i32_i24_e32 v3, v0, v1", (0x00800000, 0x01000006), 0xFFFFFFFF),
        ("v_mul_hi_i32_i24_e32 v3, v0, v1", (0x00800000, 0x00800000), 0x4000),
        ("v_bfe_u32 v3, v0, 4, 8", (0x12345678,), 0x67),
        ("v_bfe_i32 v3, v0, 4, 8", (0xF80,), 0xFFFFFFF8),
        ("v_bfi_b32 v3, v0, v1, v2", (0xFF00, 0x1234, 0xABCD), 0x12CD),
        ("v_perm_b32 v3, v0, v1, v2", (0x44332211, 0x88776655, 0x0C050300), 0x00228855),
        ("v_alignbit_b32 v3, v0, v1, 8", (0x11223344, 0x55667788), 0x44556677),
        ("v_ashrrev_i32_e32 v3, 4, v0", (0x80000000,), 0xF8000000),
        ("v_lshl_add_u32 v3, v0, 3, v1", (5, 7), 47),
        ("v_med3_i32 v3, v0, v1, v2", (5, 0xFFFFFFFF, 3), 3),
        ("v_bcnt_u32_b32 v3, v0, v1", (0xF0F0, 1), 9),
        ("v_clz_i32_u32_e32 v3, v0", (0x00F00000,), 8),
        ("v_clz_i32_u32_e32 v3, v0", (0,), 0xFFFFFFFF),
        ("v_mad_u32_u24 v3, v0, v1, v2", (0xFF000003, 5, 1), 16),
        ("v_dot4_i32_iu8 v3, v0, v1, v2 neg_lo:[0,1,0]", (0xFF, 0xFF, 10), 10 - 255),
        ("v_add_f32_e32 v3, v0, v1", (f32(1.5), f32(-0.25)), f32(1.25)),
        ("v_add_f32_e64 v3, -v0, |v1|", (f32(1.5), f32(-0.25)), f32(-1.25)),
        ("v_fma_f32 v3, v0, v1, v2", (0x3F800001, 0x3F800002, f32(-1)), 0x34C00001),
        ("v_max_f32_e32 v3, v0, v1", (0x7FC00000, f32(2)), f32(2)),
        ("v_max_f32_e32 v3, v0, v1", (0x80000000, 0), 0),
        ("v_cvt_i32_f32_e32 v3, v0", (f32(-1e20),), 0x80000000),
        ("v_cvt_u32_f32_e32 v3, v0", (0x7FC00000,), 0),
        ("v_cvt_f16_f32_e32 v3, v0", (f32(1.0),), 0x3C00),
        ("v_ldexp_f32 v3, v0, -3", (f32(1.0),), f32(0.125)),
        ("v_rndne_f32_e32 v3, v0", (f32(2.5),), f32(2.0)),
        ("v_mov_b32_dpp v3, v0 row_ror:1 row_mask:0xf bank_mask:0xf", (7,), 7),
    ],
)
def test_known_results(line: str, operands: tuple[int, ...], result: int) -> None:
    if line.startswith("v_cvt_f16"):
        assert given(line, *operands) & 0xFFFF == result
    else:
        assert given(line, *operands) == result & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("v_mov_b32_dpp v3, v0 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf", 6),
        ("v_mov_b32_dpp v3, v0 row_mirror row_mask:0xf bank_mask:0xf", 10),
        ("v_mov_b32_dpp v3, v0 row_half_mirror row_mask:0xf bank_mask:0xf", 2),
        ("v_mov_b32_dpp v3, v0 row_shr:2 row_mask:0xf bank_mask:0xf", 3),
        ("v_mov_b32_dpp v3, v0 row_ror:6 row_mask:0xf bank_mask:0xf", 15),
        ("v_mov_b32_dpp v3, v0 row_xmask:3 row_mask:0xf bank_mask:0xf", 6),
        ("v_permlanex16_b32 v3, v0, 0, 0", 16),
        ("ds_swizzle_b32 v3, v0 offset:swizzle(SWAP,2)", 7),
        ("v_xor_b32_e32 v4, 0x24, v9\nds_bpermute_b32 v3, v4, v0", 12),
    ],
)
def test_lanes_read_each_other(line: str, source: int) -> None:
    """Lane 5 gets the number of the lane that it reads."""
    assert given(line) == source


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("v_cndmask_b32_sdwa v3, v1, v2, vcc dst_sel:DWORD src0_sel:DWORD src1_sel:WORD_1", 0xCCDD),
        ("v_cndmask_b32_sdwa v3, v1, v2, vcc dst_sel:DWORD src0_sel:DWORD src1_sel:BYTE_0", 0xFF),
        (
            "v_cndmask_b32_sdwa v3, v1, v2, vcc dst_sel:BYTE_1 src0_sel:DWORD src1_sel:BYTE_2",
            0xDD00,
        ),
        ("v_or_b32_sdwa v3, v1, v2 dst_sel:DWORD src0_sel:BYTE_3 src1_sel:BYTE_1", 0x11 | 0xEE),
        ("v_add_u16_sdwa v3, v1, v2 dst_sel:WORD_1 src0_sel:WORD_1 src1_sel:WORD_0", 0x210000),
        ("v_mov_b32_sdwa v3, sext(v2) dst_sel:DWORD src0_sel:BYTE_3", 0xFFFFFFCC),
    ],
)
def test_parts_of_registers(line: str, result: int) -> None:
    """CDNA's instructions may read and write a byte or a half of a register (SDWA)."""
    out = np.zeros(64, np.uint32)
    lines = f"""v_lshlrev_b32_e32 v9, 2, v0
        v_mov_b32_e32 v1, 0x11223344
        v_mov_b32_e32 v2, 0xccddeeff
        s_mov_b64 vcc, -1
        {line}
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        global_store_dword v9, v3, s[4:5]"""
    run(lines, "gfx942", out)
    assert out.tolist() == [result] * 64


def test_two_at_once_read_before_they_write() -> None:
    out = np.zeros(64, np.uint32)
    lines = """v_lshlrev_b32_e32 v9, 3, v0
        v_mov_b32_e32 v2, 2
        v_mov_b32_e32 v3, 3
        v_dual_mov_b32 v2, v3 :: v_dual_mov_b32 v3, v2
        s_load_b64 s[4:5], s[0:1], 0x0
        global_store_b64 v9, v[2:3], s[4:5]"""
    run(lines, "gfx1100", out)
    assert out.tolist() == [3, 2] * 32


def test_short_constants_have_signs() -> None:
    """RDNA 4 adds floats and compares them in scalar registers, too."""
    out = np.zeros(4, np.uint32)
    lines = """s_load_b64 s[4:5], s[0:1], 0x0
        s_movk_i32 s6, 0x10
        s_addk_co_i32 s6, 0xfff8
        s_mov_b32 s7, 0x7fc00000
        s_cmp_o_f32 s7, s7
        s_cselect_b32 s7, 3, 4
        s_add_f32 s8, 1.0, 2.0
        v_mov_b32_e32 v1, s6
        v_mov_b32_e32 v2, s7
        v_mov_b32_e32 v3, s8
        v_mov_b32_e32 v9, 0
        global_store_b96 v9, v[1:3], s[4:5]"""
    run(lines, "gfx1201", out)
    assert out.tolist() == [8, 4, f32(3.0), 0]


def test_masks_of_lanes() -> None:
    out = np.zeros(64, np.uint32)
    lines = """v_lshlrev_b32_e32 v9, 2, v0
        v_cmp_gt_u32_e64 s[6:7], v0, 61
        v_cndmask_b32_e64 v1, 1, 2, s[6:7]
        s_bcnt1_i32_b64 s8, s[6:7]
        v_add_u32_e32 v1, s8, v1
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        s_and_saveexec_b64 s[10:11], s[6:7]
        v_mov_b32_e32 v1, 9
        s_mov_b64 exec, s[10:11]
        global_store_dword v9, v1, s[4:5]"""
    run(lines, "gfx942", out)
    assert out.tolist() == [3] * 62 + [9, 9]


def test_an_unknown_instruction_is_refused() -> None:
    for line in (
        "v_bogus_u32 v0, v1",
        "s_bogus_b32 s0, s1",
        "ds_bogus_b32 v0, v1",
        "image_load v0",
    ):
        with pytest.raises(NotImplementedError, match="bogus|image"):
            run(line, "gfx1100")


def test_an_access_beyond_an_array_is_a_fault() -> None:
    out = np.zeros(32, F)
    store = "s_load_b64 s[4:5], s[0:1], 0x0\nv_lshlrev_b32_e32 v9, 2, v0\n"
    run(store + "global_store_b32 v9, v0, s[4:5]", "gfx1100", out)
    with pytest.raises(Fault, match="no allocation"):
        run(store + "global_store_b32 v9, v0, s[4:5] offset:4", "gfx1100", out)
    with pytest.raises(Fault, match="no allocation"):
        run(store + "global_load_b128 v[4:7], v9, s[4:5]", "gfx1100", out)


def test_memory_that_was_freed_is_no_memory() -> None:
    backend = EmulatedBackend("gfx942")
    memory = backend.gpu.allocate(0, 256)
    address, known = memory.address, backend.chip.memory
    assert known.whole(address, address + 256) and not known.whole(address, address + 257)
    del memory
    assert not known.whole(address, address + 1)


def test_shared_memory_has_an_end() -> None:
    lines = "v_lshlrev_b32_e32 v9, 2, v0\nds_store_b32 v9, v0"
    run(lines, "gfx1100", shared=128)
    with pytest.raises(Fault, match="of 124 bytes of shared memory"):
        run(lines, "gfx1100", shared=124)


def test_an_unaligned_atomic_is_a_fault() -> None:
    out = np.zeros(4, np.uint32)
    lines = (
        "s_load_b64 s[4:5], s[0:1], 0x0\nv_mov_b32_e32 v9, {}\nglobal_atomic_add_u32 v9, v9, s[4:5]"
    )
    run(lines.format(4), "gfx1100", out)
    assert out.tolist() == [0, 128, 0, 0]
    with pytest.raises(Fault, match="not a multiple of 4"):
        run(lines.format(2), "gfx1100", out)


def test_a_wave_that_leaves_while_others_wait_is_a_fault() -> None:
    lines = """v_readfirstlane_b32 s6, v0
        s_cmp_lg_u32 s6, 0
        s_cbranch_scc1 .LAWAY
        s_barrier
.LAWAY:
        s_nop 0"""
    run(lines, "gfx1100", units=32)
    with pytest.raises(Fault, match="wait at a barrier"):
        run(lines, "gfx1100", units=64)


def test_a_wave_that_never_ends_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "LONGEST", 1000)
    with pytest.raises(Fault, match="on and on"):
        run(".LLOOP:\n\ts_branch .LLOOP", "gfx942")


def test_a_missing_barrier_is_a_fault() -> None:
    lines = """v_lshlrev_b32_e32 v9, 2, v0
        v_xor_b32_e32 v8, 0x80, v9
        ds_store_b32 v9, v0
        {}
        ds_load_b32 v3, v8"""
    run(lines.format("s_barrier"), "gfx1100", units=64, shared=256)
    with pytest.raises(Fault, match="since the barrier"):
        run(lines.format("s_nop 0"), "gfx1100", units=64, shared=256)


@cb.kernel
def half_filled(x: cb.Array, out: cb.Array):
    tile = cb.shared(64, cb.f32)
    if cb.UNIT_POS < 32:
        tile[cb.UNIT_POS] = x[cb.UNIT_POS]
    cb.sync_cube()
    out[cb.UNIT_POS] = tile[cb.UNIT_POS]


def launch(name: str, kernel: Any, units: int, *args: Any, seed: int = 0, **comptime: Any) -> str:
    """Run a kernel of cubepy on arrays of the host; gives its assembly."""
    code = compile_for(name, kernel, units, *args, mode="unchecked", **comptime)
    chip = Gpu(name, seed)
    here = cb.Device("python")
    operands = []
    for a in args:
        chip.memory.add(a.ctypes.data, a.nbytes)
        layout = layout_of(a.shape, a.strides, a.dtype, here)
        operands.append(DeviceArray(a.ctypes.data, layout, None))
    chip.launch(code.assembly, block(code, operands), (1,), code.units, code.text.shared_bytes)
    return code.assembly


@pytest.mark.parametrize("name", KNOWN)
def test_shared_memory_that_nobody_wrote_is_garbage(name: str) -> None:
    x, results = np.arange(1, 65, dtype=F), []
    for seed in (1, 2):
        out = np.zeros(64, F)
        launch(name, half_filled, 64, x, out, seed=seed)
        np.testing.assert_array_equal(out[:32], x[:32])
        results.append(out[32:].tobytes())
    assert results[0] != results[1]


@cb.kernel
def own_places(x: cb.Array, out: cb.Array, n: cb.Comptime[int]):
    mine = cb.local(n, cb.f32)
    for k in range(n):
        mine[(k * 7) % n] = x[cb.UNIT_POS] + k
    at = cb.i32(x[cb.UNIT_POS]) % n
    out[cb.UNIT_POS] = mine[at]


@pytest.mark.parametrize("name", KNOWN)
def test_private_memory(name: str) -> None:
    """An array of a unit with an index of its own: scratch_ on most processors, buffer_ on gfx90a."""
    n = 33
    x, out = np.arange(64, dtype=F), np.zeros(64, F)
    assembly = launch(name, own_places, 64, x, out, n=n)
    assert "scratch_store" in assembly or "buffer_store" in assembly
    written = {(k * 7) % n: k for k in range(n)}
    np.testing.assert_array_equal(out, [v + written[int(v) % n] for v in x])


@pytest.mark.parametrize("size", [2, 4, 16])
def test_what_several_waves_read_none_of_them_may_write(size: int) -> None:
    """By words or by bytes: that another wave reads it too is not forgotten."""
    at = np.arange(4, dtype=np.int64) * size
    shared = Shared(bytes(64), 3)
    for wave in (0, 1, 0):
        shared.reads(wave, at, size, "a load")
    with pytest.raises(Fault, match="another wave uses"):
        shared.writes(0, at, size, "a store")
    shared.barrier()
    shared.writes(0, at, size, "a store")
    with pytest.raises(Fault, match="another wave wrote"):
        shared.reads(1, at, size, "a load")
