"""Kernels compiled for AMD GPUs where there is none: what comes out, is refused, and is kept."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import cubepy as cb
from cubepy import errors
from cubepy.backends.gpu.names import SHARED
from cubepy.backends.hip.codegen import machine
from cubepy.backends.hip.codegen.architecture import KNOWN, Architecture
from cubepy.backends.hip.codegen.compile import Code
from cubepy.backends.hip.offline import compile_for
from cubepy.runtime.stats import counters
from tests.backends.hip.emulator.device import emulated
from tests.staging import staged

F = np.float32


@cb.kernel
def axpy(a, x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS * 4
    out.store(i, a * x.load(i, 4) + y.load(i, 4))


@cb.kernel
def total(x: cb.Array, out: cb.Array):
    s = cb.plane_sum(x[cb.ABSOLUTE_POS])
    if cb.UNIT_POS_PLANE == 0:
        cb.atomic_add(out, 0, s)


@cb.kernel
def reversed_in_cube(x: cb.Array, out: cb.Array):
    tile = cb.shared(256, cb.f32)
    tile[cb.UNIT_POS] = x[cb.ABSOLUTE_POS]
    cb.sync_cube()
    out[cb.ABSOLUTE_POS] = tile[255 - cb.UNIT_POS]


@cb.kernel
def powers(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = x[i] ** x[i] + cb.sin(x[i]) + cb.lgamma(x[i]) + cb.tan(x[i])


@cb.kernel
def products(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out[i] = cb.ldexp(x[i], -140)


@cb.kernel
def product_lines(x: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS * 8
    out.store(i, cb.ldexp(x.load(i, 8), -140))


@cb.kernel
def angles(x: cb.Array, y: cb.Array, out: cb.Array):
    i = cb.ABSOLUTE_POS
    out.store(i, cb.atan2(x.load(i, 1), cb.splat(y[0], 1)))


@cb.kernel
def many_held(x: cb.Array, out: cb.Array, cubes: cb.Comptime[int]):
    if cubes:
        cb.resident(cubes)
    held = cb.local(96, cb.f32)
    for k in cb.unroll(range(96)):
        held[k] = x[cb.ABSOLUTE_POS + 256 * k]
    total = cb.f32(0)
    for k in cb.unroll(range(96)):
        total = total * held[95 - k] + held[k]
    out[cb.ABSOLUTE_POS] = total


X = np.zeros(1000, F)


def instructions(assembly: str) -> list[str]:
    """The names of a kernel's instructions."""
    return re.findall(r"^\t([a-z]\w+)", assembly, re.M)


@pytest.mark.parametrize("name", KNOWN)
def test_lines_take_the_widest_accesses(name: str) -> None:
    found = instructions(compile_for(name, axpy, 256, 2.0, X, X, X).assembly)
    wide = "b128" if Architecture(name).major >= 11 else "dwordx4"
    assert {f"global_load_{wide}", f"global_store_{wide}"} <= set(found)
    assert not [i for i in found if i.startswith(("flat_", "scratch_", "buffer_load"))]


@pytest.mark.parametrize("name", KNOWN)
def test_floats_are_added_by_one_instruction(name: str) -> None:
    found = instructions(compile_for(name, total, 256, X, X[:1]).assembly)
    assert "global_atomic_add_f32" in found and not [i for i in found if "cmpswap" in i]


@pytest.mark.parametrize("name", KNOWN)
def test_sums_of_planes_take_short_ways(name: str) -> None:
    """Within a row of 16 units an addition reads another lane itself."""
    assembly = compile_for(name, total, 256, X, X[:1], mode="unchecked").assembly
    assert re.search(r"v_add_f32_dpp .*quad_perm:\[1,0,3,2\]", assembly)
    rdna = Architecture(name).major >= 11
    assert "row_xmask:4" in assembly if rdna else "row_ror:8" in assembly
    assert ("v_permlanex16_b32" if rdna else "ds_swizzle_b32") in assembly


@pytest.mark.parametrize("name", KNOWN)
def test_what_llvm_has_no_correct_function_for_is_ours(name: str) -> None:
    for dtype in (np.float32, np.float64):
        x = np.zeros(8, dtype)
        assert compile_for(name, powers, 64, x, x).binary


@pytest.mark.parametrize("name", KNOWN)
def test_products_are_not_rounded_to_f16_at_once(name: str) -> None:
    """`v_fma_mixlo_f16 x, y, 0` gives 0 for -0."""
    x = np.zeros(64, np.float16)
    for kernel in (products, product_lines):
        found = instructions(compile_for(name, kernel, 64, x, x).assembly)
        assert [i for i in found if i.startswith("v_cvt_f16_f32") or "cvt_pk" in i]
        assert not [i for i in found if "mix" in i]


@pytest.mark.parametrize("name", KNOWN)
def test_signs_of_lines_of_one_are_those_of_numbers(name: str) -> None:
    """LLVM ends the process on a sign out of a vector of one that was widened."""
    code = compile_for(name, angles, 64, X, X, X)
    assert (
        "@llvm.copysign.f64(" in code.llvm and "call <1 x double> @llvm.copysign" not in code.llvm
    )
    assert code.binary


@cb.kernel
def halves_of_a_register(x: cb.Array, out: cb.Array):
    """What one branch loads and what all units compute may lie in one register."""
    i = cb.ABSOLUTE_POS
    t = cb.UNIT_POS
    kept = cb.local(2, cb.u16)
    kept[0] = cb.u16(x[2])
    kept[1] = cb.cast(cb.cast(i > 3, cb.u32) * 2654435761, cb.u16)
    for _ in range(3):
        kept[t & 1] *= 1
    out[i] = kept[t & 1]


@pytest.mark.parametrize("name", ["gfx942", "gfx1100", "gfx1201"])
def test_what_was_loaded_stays_beside_what_is_computed(name: str) -> None:
    """With halves of registers, LLVM 22 dropped the load."""
    x, out = np.array([1, 5, 77, 9], np.int16), np.zeros(10, np.uint16)
    with emulated(name), pytest.MonkeyPatch.context() as patch, staged(patch):
        halves_of_a_register[2, 5](x, out, device=name)
        cb.sync(name)
    assert out.tolist() == [77, 0, 77, 0, 77, 77, 31153, 77, 31153, 77]
    assert not re.search(
        r"v\d+\.[hl]\b", compile_for(name, halves_of_a_register, 5, x, out).assembly
    )


def test_shared_memory_is_taken_where_it_is() -> None:
    found = instructions(compile_for("gfx942", reversed_in_cube, 256, X, X).assembly)
    assert {"ds_write_b32", "ds_read_b32", "s_barrier"} <= set(found)


@pytest.mark.parametrize("name", KNOWN)
def test_registers_are_given_out_for_resident_cubes(name: str) -> None:
    """A core has four SIMD units, which keep registers for 8 planes (CDNA) or 16 (RDNA): of 512 and
    1536. Eight cubes of 256 units are all of them.
    """

    def registers(cubes: int) -> int:
        code = compile_for(name, many_held, 256, X, X, cubes, mode="unchecked")
        promised = re.findall(r'"amdgpu-waves-per-eu"="(\d+)"', code.llvm)
        planes = 32 if Architecture(name).major == 9 else 64
        assert promised == ([str(cubes * planes // 32)] if cubes else [])
        found = re.search(r"\.vgpr_count: *(\d+)", code.assembly)
        assert found is not None
        return int(found[1])

    most = 512 // 8 if Architecture(name).major == 9 else 1536 // 16
    assert registers(8) <= most < registers(0)


def test_no_more_cubes_are_promised_than_have_registers() -> None:
    for name, most in (("gfx942", 8), ("gfx1201", 16)):
        assert Architecture(name).planes_per_simd(1024, 32) == most
    assert Architecture("gfx942").planes_per_simd(96, 3) == 2  # planes are whole: 6 for 4 units


def test_code_is_kept_on_disk() -> None:
    first = compile_for("gfx1100", axpy, 128, 2.0, X, X, X)
    code, before = first.binary, counters.compiled
    again = compile_for("gfx1100", axpy, 128, 2.0, X, X, X)
    assert again.binary == code and counters.compiled == before
    assert compile_for("gfx1201", axpy, 128, 2.0, X, X, X).key != first.key


def test_another_process_can_compile() -> None:
    job = compile_for("gfx950", axpy, 64, 2.0, X, X, X).job
    assert type(job).of_line(job.as_line()) == job


@pytest.mark.parametrize("name", ["gfx906", "gfx1030", "sm_90a", "", "gfx"])
def test_unknown_processors_are_refused(name: str) -> None:
    with pytest.raises(errors.BackendCompileError, match="no code is made for the processor"):
        compile_for(name, axpy, 64, 2.0, X, X, X)


def test_settings_of_a_processor_do_not_change_its_code() -> None:
    assert Architecture.of("gfx942:sramecc+:xnack-") == Architecture("gfx942")


@pytest.mark.parametrize(
    "call", ["llvm.pow.f64(double %x, double %x)", "sin(double %x)", "llvm.sin.f64(double %x)"]
)
def test_what_would_end_the_process_is_refused(call: str) -> None:
    """LLVM aborts on these; the processor has no such instruction."""
    name, arguments = call.split("(")[0], call.split("(")[1].count("%x")
    types = ", ".join(["double"] * arguments)
    text = (
        f"declare double @{name}({types})\n"
        "define amdgpu_kernel void @k(ptr addrspace(1) %p, double %x) {\n"
        f"  %y = call double @{call}\n  store double %y, ptr addrspace(1) %p\n  ret void\n}}\n"
    )
    with pytest.raises(errors.BackendCompileError, match=re.escape(name)):
        machine.optimised(text, Architecture("gfx942"))


def test_inline_assembly_is_refused() -> None:
    text = (
        "define amdgpu_kernel void @k(ptr addrspace(1) %p) {\n"
        '  %y = call i32 asm sideeffect "s_nop 0", "=v"()\n'
        "  store i32 %y, ptr addrspace(1) %p\n  ret void\n}\n"
    )
    with pytest.raises(errors.BackendCompileError, match="inline assembly"):
        machine.optimised(text, Architecture("gfx1100"))


def test_reserved_names_are_those_of_the_ops() -> None:
    from cubepy.backends.hip.ops import OPS

    assert set(OPS) <= SHARED == Code.reserved


def test_describing_code_imports_no_compiler() -> None:
    text = (
        "import sys; import cubepy.backends.hip.codegen.compile, cubepy.backends.hip.backend; "
        "assert not {'numba', 'llvmlite'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_an_old_llvm_works_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine code comes out."""
    code = compile_for("gfx942", reversed_in_cube, 256, X, X)
    binary, assembly = code.job.binary(), code.job.assembly()
    monkeypatch.setattr(machine, "PROVEN", 1000)
    assert (code.job.binary(), code.job.assembly()) == (binary, assembly)


def test_what_ends_that_process_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as ll

    text = (
        "define amdgpu_kernel void @k(ptr addrspace(1) %p, double %x) {\n"
        "  %y = call double @llvm.pow.f64(double %x, double %x)\n"
        "  store double %y, ptr addrspace(1) %p\n  ret void\n}\n"
        "declare double @llvm.pow.f64(double, double)\n"
    )
    monkeypatch.setattr(machine, "PROVEN", 1000)
    with pytest.raises(errors.BackendCompileError, match=r"for gfx942; it ended .*LLVM ERROR"):
        machine.emitted("object", ll.parse_assembly(text), Architecture("gfx942"))


def test_an_llvm_without_the_processors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "OLDEST", 1000)
    with pytest.raises(errors.BackendCompileError, match="needs LLVM 1000 or newer"):
        machine.machine.__wrapped__(Architecture("gfx950"))
