"""Routines of `K.matmul` on a GPU: which kernel fits a product, and how large its tiles are."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import cubepy as cb
from cubepy.kernels.elementwise import copy
from cubepy.kernels.functions_narrow import NARROW
from cubepy.kernels.matmul_few import MOST_DOT_ROWS, MOST_ROWS, PLANES, Few, dot_rows, few_rows
from cubepy.kernels.matmul_few import UNITS as FEW_UNITS
from cubepy.kernels.matmul_hopper import BLOCK, PLANE_ROWS, ROW_BYTES, Hopper, hopper_product
from cubepy.kernels.matmul_hopper import UNITS as HOPPER_UNITS
from cubepy.kernels.matmul_mma import DEPTH_BYTES, Mma, mma_product
from cubepy.kernels.matmul_mma import UNITS as MMA_UNITS
from cubepy.kernels.matmul_problem import Product, result_dtype
from cubepy.kernels.matmul_simt import UNITS as SIMT_UNITS
from cubepy.kernels.matmul_simt import Simt, simt_product
from cubepy.kernels.shapes import strided
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime.device_array import DeviceArray
from cubepy.runtime.pointers import address
from cubepy.tune import Routine

ALIGNMENT = 16
"""Bytes by which the copy engine and asynchronous copies want rows to be aligned."""
NARROW_FLOATS = ("f16", "bf16")
HOPPER_TILES = {
    Hopper(128, 256, 4, turns=False): (1.57, 0.26, 0.20), Hopper(128, 128, 6): (0.87, 0.015, 0.13),
    Hopper(64, 128, 8): (0.48, 0.015, 0.22), Hopper(64, 64, 10): (0.34, 0.015, 0.28),
}  # fmt: skip
"""What tiles cost, in parts of a launch of one round of 128 x 128: a round of them, its end where K is 2 KiB long, and
the launch (measured on an H200)."""
FUSED_END = 4
"""How much more a round's end costs with an epilogue, where nothing hides it."""


def aligned(a: Any) -> bool:
    """Whether neighbours lie along the last axis of (batch, rows, columns), and every row starts at 16 bytes."""
    if a.strides[2] != a.itemsize and a.shape[2] != 1:
        return False
    steps = (s for n, s in zip(a.shape[:2], a.strides[:2], strict=True) if n != 1)
    return place_of(a) % ALIGNMENT == 0 and all(s > 0 and s % ALIGNMENT == 0 for s in steps)


def place_of(a: Any) -> int:
    """The address of an array's data."""
    return a.address if isinstance(a, DeviceArray) else address(a)


def suits_copy_engine(x: Any, y: Any, out: Any, residual: Any) -> bool:
    """Whether tensor maps can be made of all matrices of a product; only 16-bit operands may lie across K."""
    narrow = x.itemsize == 2
    a, b = once(x), once(y)
    a_fits = aligned(a) or (narrow and aligned(a.transpose(0, 2, 1)))
    b_fits = aligned(b.transpose(0, 2, 1)) or (narrow and aligned(b))
    r_fits = residual is None or (residual.dtype == out.dtype and aligned(residual))
    return a_fits and b_fits and aligned(out) and r_fits


def oriented(a: Any) -> tuple[Any, bool]:
    """An operand (batch, own axis, K) with its contiguous axis last, and whether that is K."""
    swapped = a.transpose(0, 2, 1)
    if not aligned(a) and (aligned(swapped) or (a.strides[2] != a.itemsize and a.strides[1] == a.itemsize)):
        return swapped, False
    return a, True


def once(a: Any) -> Any:
    """The first batch alone where all batches are the same memory."""
    return a[:1] if a.strides[0] == 0 else a


def map_of(a: Any, rows: int, columns: int) -> Any:
    """A tensor map with boxes of one batch; axes of length 1 get strides that maps allow."""
    step = -(-a.shape[2] * a.itemsize // ALIGNMENT) * ALIGNMENT
    row = a.strides[1] if a.shape[1] != 1 else step
    batch = a.strides[0] if a.shape[0] != 1 else row * a.shape[1]
    return cb.tensor_map(strided(a, a.shape, (batch, row, a.itemsize)), (1, rows, columns))


def activation_for(function: Any, dtype: DType) -> Any:
    """An activation as good as the result's dtype can show."""
    return NARROW.get(function, function) if dtype.bits == 16 else function


@cache
def extras(bias: bool, residual: bool, activation: Any, alpha: float) -> dict[str, Any]:
    """The epilogue's part of a blueprint."""
    return {"bias": bias, "residual": residual, "activation": activation, "scaled": alpha != 1.0}


class HopperRoutine(Routine):
    """16-bit floats, 8-bit integers and tf32 by `cb.wgmma`, with operands that the copy engine can take."""

    name = "hopper"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 3

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has wgmma, the dtypes are those of its matrix units, and rows are aligned."""
        if not {"wgmma", "tma"} <= properties.features:
            return "the device has no wgmma"
        out = result_dtype(problem)
        fits = (
            problem.a in NARROW_FLOATS and out.name in (problem.a, "f32")
            or problem.a == "i8" and out.name == "i32"
            or problem.a == "f32" and problem.tf32
        )  # fmt: skip
        if problem.a != problem.b or not fits:
            return f"matrix units do not take {problem.a} and {problem.b} for {out.name}"
        if problem.epilogue and not out.is_float:
            return "there is no epilogue for integers"
        if not problem.aligned:
            return "the copy engine wants neighbours along K (of 16 bits: along any axis), and rows aligned to 16 bytes"
        return None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Hopper]:
        """Tiles by what all rounds of them cost."""
        depth = max(problem.k, 1) * as_dtype(problem.a).itemsize / 2048

        def cost(tile: Hopper) -> float:
            each, end, start = HOPPER_TILES[tile]
            if problem.epilogue and not tile.turns:
                end *= FUSED_END
            tiles = problem.batch * -(-problem.m // tile.rows) * -(-problem.n // tile.columns)
            return (each + end / depth) * -(-tiles // properties.cores) + start

        yield from sorted(HOPPER_TILES, key=cost)

    def launch(self, blueprint: Hopper, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, function, alpha = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        plan = _hopper_plan(
            blueprint, not a_along_k, not b_along_k, bias is not None, residual is not None,
            activation_for(function, as_dtype(out.dtype)), float(alpha),
        )  # fmt: skip
        depth, width = ROW_BYTES // x.itemsize, ROW_BYTES // out.itemsize
        batch, m, n = out.shape
        row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
        cores = cb.device_properties_of().cores
        hopper_product[min(batch * row_tiles * column_tiles, cores), HOPPER_UNITS](
            map_of(a, plan.rows, depth) if a_along_k else map_of(a, depth, BLOCK),
            map_of(b, plan.columns, depth) if b_along_k else map_of(b, depth, BLOCK),
            map_of(out, PLANE_ROWS, width), bias, None if residual is None else map_of(residual, PLANE_ROWS, width),
            float(alpha), batch, row_tiles, column_tiles, -(-x.shape[2] // depth), a.shape[0], b.shape[0], plan,
            mode="unchecked",
        )  # fmt: skip


@cache
def _hopper_plan(
    plan: Hopper, transpose_a: bool, transpose_b: bool, bias: bool, residual: bool, activation: Any, alpha: float
) -> Hopper:
    return Hopper(
        plan.rows, plan.columns, plan.stages, plan.band, plan.turns, transpose_a, transpose_b,
        **extras(bias, residual, activation, alpha),
    )  # fmt: skip


class MmaRoutine(Routine):
    """16-bit floats, 8-bit integers and tf32 by `cb.mma`, of any strides."""

    name = "mma"

    def group(self, key: Product) -> int:
        """After wgmma, before plain arithmetic."""
        return 2

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """The device has mma, and both operands have one of its dtypes."""
        if not {"mma", "copy_async"} <= properties.features:
            return "the device has no matrix units"
        fits = problem.a in NARROW_FLOATS or problem.a in ("i8", "u8") or (problem.a == "f32" and problem.tf32)
        if problem.a != problem.b or not fits:
            return f"matrix units do not take {problem.a} and {problem.b}"
        out = result_dtype(problem)
        if out.is_int and out.bits > 32:
            return "sums are in 32 bits"
        return "there is no epilogue for integers" if problem.epilogue and not out.is_float else None

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Mma]:
        """Large tiles where they fill the device."""
        tiles = problem.batch * -(-problem.m // 128) * -(-problem.n // 128)
        sizes = [Mma(128, 128, 3), Mma(64, 64, 4)]
        yield from sizes if tiles >= properties.cores else sizes[::-1]

    def launch(self, blueprint: Mma, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, function, alpha = args
        narrow = x.itemsize == 2
        a, a_along_k = oriented(once(x)) if narrow else (once(x), True)
        b, b_along_k = oriented(once(y).transpose(0, 2, 1)) if narrow else (once(y).transpose(0, 2, 1), True)
        plan = _mma_plan(
            blueprint, a_along_k, b_along_k, copies(a), copies(b), bias is not None, residual is not None,
            activation_for(function, as_dtype(out.dtype)), float(alpha),
        )  # fmt: skip
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        steps = -(-x.shape[2] // (DEPTH_BYTES // x.itemsize))
        mma_product[cubes, MMA_UNITS](a, b, out, bias, residual, float(alpha), steps, plan, mode="unchecked")


def copies(a: Any) -> bool:
    """Whether copies of 16 bytes suit an operand: aligned rows that are whole numbers of them."""
    return aligned(a) and a.shape[2] * a.itemsize % ALIGNMENT == 0


@cache
def _mma_plan(
    plan: Mma, a_along_k: bool, b_along_k: bool, a_async: bool, b_async: bool, bias: bool, residual: bool,
    activation: Any, alpha: float,
) -> Mma:  # fmt: skip
    return Mma(
        plan.rows,
        plan.columns,
        plan.stages,
        a_along_k,
        b_along_k,
        a_async,
        b_async,
        **extras(bias, residual, activation, alpha),
    )


class SimtRoutine(Routine):
    """Everything else on a GPU: f32 without tf32, f64, integers, mixed dtypes."""

    name = "simt"

    def group(self, key: Product) -> int:
        """After the matrix units."""
        return 1

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """A device with planes."""
        return None if properties.plane_size > 1 else "the device has no planes"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Simt]:
        """Large tiles where they fill the device and sums are short enough for them."""
        out = result_dtype(problem)
        sums = as_dtype("f32") if out.is_float and out.bits < 64 else out
        tiles = problem.batch * -(-problem.m // 128) * -(-problem.n // 128)
        if sums.bits <= 32 and 2 * tiles >= properties.cores:
            yield Simt(sums, 128, 128, 8)
        yield Simt(sums, 64, 64, 16)

    def launch(self, blueprint: Simt, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, function, alpha = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        plan = _simt_plan(
            blueprint, a_along_k, b_along_k, bias is not None, residual is not None,
            activation_for(function, as_dtype(out.dtype)), float(alpha),
        )  # fmt: skip
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        steps = -(-x.shape[2] // plan.depth)
        simt_product[cubes, SIMT_UNITS](a, b, out, bias, residual, float(alpha), steps, plan, mode="unchecked")


@cache
def _simt_plan(
    plan: Simt, a_along_k: bool, b_along_k: bool, bias: bool, residual: bool, activation: Any, alpha: float
) -> Simt:
    return Simt(
        plan.dtype,
        plan.rows,
        plan.columns,
        plan.depth,
        a_along_k,
        b_along_k,
        **extras(bias, residual, activation, alpha),
    )


class FewRoutine(Routine):
    """Few rows: b is read once, along its columns."""

    name = "few"

    def group(self, key: Product) -> int:
        """Before all others where it fits."""
        return 4

    def supports(self, problem: Product, properties: cb.DeviceProperties) -> str | None:
        """One product of floats, few rows, and neighbours along K."""
        if properties.plane_size == 1:
            return "the device has no planes"
        out = result_dtype(problem)
        if problem.batch != 1 or problem.layout != "columns" or not out.is_float or out.bits > 32:
            return "it takes one product of floats, with neighbours along K"
        if "mma" in properties.features and problem.a == problem.b and problem.a in NARROW_FLOATS:
            if problem.k % 8 == 0 and problem.aligned:
                return None if problem.m <= MOST_ROWS else f"at most {MOST_ROWS} rows"
        return None if problem.m <= MOST_DOT_ROWS else f"at most {MOST_DOT_ROWS} rows of {problem.a}"

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Few]:
        """Fewer columns a cube where there are few of them."""
        mma = "mma" in properties.features and problem.a == problem.b and problem.a in NARROW_FLOATS
        if mma and problem.k % 8 == 0 and problem.aligned:
            for groups in (2, 4, 1):
                yield Few(problem.a, 8 if problem.m <= 8 else 16, groups)
        else:
            for groups in (2, 4, 1):
                yield Few(problem.a, problem.m, groups, True)

    def launch(self, blueprint: Few, problem: Product, args: tuple[Any, ...]) -> None:
        """out (1, M, N) = epilogue(x (1, M, K) @ y (1, K, N))."""
        x, y, out, bias, residual, function, alpha = args
        x, y = x if aligned(x) else copy(x), y[0].T
        x = x[0]
        plan = _few_plan(
            blueprint, bias is not None, residual is not None, activation_for(function, as_dtype(out.dtype)),
            float(alpha),
        )  # fmt: skip
        kernel, columns = dot_rows, plan.groups * PLANES
        if not plan.dot:
            x, y, kernel = x.view("u4"), y.view("u4"), few_rows
        kernel[-(-y.shape[0] // columns), FEW_UNITS](x, y, out, bias, residual, float(alpha), plan, mode="unchecked")


@cache
def _few_plan(plan: Few, bias: bool, residual: bool, activation: Any, alpha: float) -> Few:
    return Few(plan.dtype, plan.rows, plan.groups, plan.dot, **extras(bias, residual, activation, alpha))
