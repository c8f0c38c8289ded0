"""Routines of `K.matmul` on a GPU: which kernel fits a product, and how large its tiles are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import cubepy as cb
from cubepy.kernels.elementwise import copy
from cubepy.kernels.functions_narrow import NARROW
from cubepy.kernels.matmul_epilogue import Epilogue
from cubepy.kernels.matmul_few import MOST_DOT_ROWS, MOST_ROWS, PLANES, Few, dot_rows, few_rows
from cubepy.kernels.matmul_few import UNITS as FEW_UNITS
from cubepy.kernels.matmul_hopper import PLANE_ROWS, Hopper, hopper_product
from cubepy.kernels.matmul_hopper import UNITS as HOPPER_UNITS
from cubepy.kernels.matmul_mma import DEPTH_BYTES, Mma, mma_product
from cubepy.kernels.matmul_mma import UNITS as MMA_UNITS
from cubepy.kernels.matmul_problem import Product, result_dtype
from cubepy.kernels.matmul_ring import BLOCK, ROW_BYTES
from cubepy.kernels.matmul_simt import UNITS as SIMT_UNITS
from cubepy.kernels.matmul_simt import Simt, simt_product
from cubepy.kernels.shapes import strided
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tune import Routine

P = TypeVar("P", bound=Epilogue)
ALIGNMENT = 16
"""Bytes by which the copy engine and asynchronous copies want rows to be aligned."""
NARROW_FLOATS = ("f16", "bf16")
HOPPER_TILES = {
    Hopper(128, 256, 4, turns=False): (1.57, 0.26, 0.20), Hopper(128, 128, 6): (0.87, 0.015, 0.13),
    Hopper(64, 128, 8): (0.48, 0.015, 0.22), Hopper(64, 64, 10): (0.34, 0.015, 0.28),
}  # fmt: skip
"""What tiles cost, in parts of a launch of one round of 128 x 128: a round of them, its end where K is 2 KiB long, and
the launch (measured on an H200)."""
SIMT_TILES = {
    (128, 128, 8, 2, 2): 135, (64, 64, 16, 1, 1): 44, (64, 32, 32, 1, 1): 24, (32, 32, 64, 2, 1): 13,
    (32, 16, 128, 1, 1): 9.2, (16, 16, 128, 1, 1): 5.2,
}  # fmt: skip
"""What a round of tiles of plain arithmetic costs, in ns for every element of K (f32, measured on an H200)."""
EARLY_BYTES = 8192, 2048
"""Bytes of K up to which launches overlap: of several rows of tiles of 128 rows, and of others (measured on an H200).
Where they do, cubes are not in order on the cores, so that neighbours no longer read together what they share."""
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
    """Whether tensor maps can be made of all matrices of a product: only 16-bit operands may lie across K, and b of
    f32."""
    narrow = x.itemsize == 2
    a, b = once(x), once(y)
    a_fits = aligned(a) or (narrow and aligned(a.transpose(0, 2, 1)))
    b_fits = aligned(b.transpose(0, 2, 1)) or (x.itemsize in (2, 4) and aligned(b))
    r_fits = residual is None or (residual.dtype == out.dtype and aligned(residual))
    return a_fits and b_fits and aligned(out) and r_fits


def oriented(a: Any) -> tuple[Any, bool]:
    """An operand (batch, own axis, K) with its contiguous axis last, and whether that is K."""
    swapped = a.transpose(0, 2, 1)
    if not aligned(a) and (
        aligned(swapped) or (a.strides[2] != a.itemsize and a.strides[1] == a.itemsize)
    ):
        return swapped, False
    return a, True


def once(a: Any) -> Any:
    """The first batch alone where all batches are the same memory."""
    return a[:1] if a.strides[0] == 0 else a


def map_of(a: Any, rows: int, columns: int, tf32: bool = False) -> Any:
    """A tensor map with boxes of one batch; axes of length 1 get strides that maps allow."""
    step = -(-a.shape[2] * a.itemsize // ALIGNMENT) * ALIGNMENT
    row = a.strides[1] if a.shape[1] != 1 else step
    batch = a.strides[0] if a.shape[0] != 1 else row * a.shape[1]
    return cb.tensor_map(
        strided(a, a.shape, (batch, row, a.itemsize)), (1, rows, columns), tf32=tf32
    )


def activation_for(function: Any, dtype: DType) -> Any:
    """An activation as good as the result's dtype can show."""
    return NARROW.get(function, function) if dtype.bits == 16 else function


def fitted(blueprint: P, args: tuple[Any, ...], **orders: bool) -> P:
    """A blueprint with the epilogue of a product's arguments, and with the orders of its operands."""
    _, _, out, bias, residual, function, alpha = args
    activation = activation_for(function, as_dtype(out.dtype))
    return _fitted(
        blueprint, bias is not None, residual is not None, activation, float(alpha) != 1, **orders
    )


@cache
def _fitted(
    blueprint: P, bias: bool, residual: bool, activation: Any, scaled: bool, **orders: bool
) -> P:
    return replace(
        blueprint, bias=bias, residual=residual, activation=activation, scaled=scaled, **orders
    )


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
        if not problem.aligned or (problem.a == "f32" and problem.layout != "columns"):
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
        x, y, out, bias, residual, _, alpha = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        early = (
            x.shape[2] * x.itemsize
            <= EARLY_BYTES[blueprint.rows < 128 or out.shape[1] <= blueprint.rows]
        )
        plan = fitted(
            blueprint, args, transpose_a=not a_along_k, transpose_b=not b_along_k, early=early
        )
        depth, width = ROW_BYTES // x.itemsize, ROW_BYTES // out.itemsize
        batch, m, n = out.shape
        row_tiles, column_tiles = -(-m // plan.rows), -(-n // plan.columns)
        cores, tf32 = cb.device_properties_of().cores, problem.a == "f32"
        hopper_product[min(batch * row_tiles * column_tiles, cores), HOPPER_UNITS](
            map_of(a, plan.rows, depth, tf32) if a_along_k else map_of(a, depth, BLOCK),
            map_of(b, plan.columns, depth, tf32) if b_along_k else map_of(b, depth, BLOCK),
            out if plan.plain else map_of(out, PLANE_ROWS, width), bias,
            None if residual is None else map_of(residual, PLANE_ROWS, ROW_BYTES // residual.itemsize),
            float(alpha), batch, row_tiles, column_tiles, -(-x.shape[2] // depth), a.shape[0], b.shape[0], plan,
            mode="unchecked",
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
        fits = (
            problem.a in NARROW_FLOATS
            or problem.a in ("i8", "u8")
            or (problem.a == "f32" and problem.tf32)
        )
        if problem.a != problem.b or not fits:
            return f"matrix units do not take {problem.a} and {problem.b}"
        out = result_dtype(problem)
        if out.is_int and out.bits > 32:
            return "sums are in 32 bits"
        return (
            "there is no epilogue for integers" if problem.epilogue and not out.is_float else None
        )

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Mma]:
        """Large tiles where they fill the device."""
        tiles = problem.batch * -(-problem.m // 128) * -(-problem.n // 128)
        sizes = [Mma(128, 128, 3), Mma(64, 64, 4)]
        yield from sizes if tiles >= properties.cores else sizes[::-1]

    def launch(self, blueprint: Mma, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha = args
        narrow = x.itemsize == 2
        a, a_along_k = oriented(once(x)) if narrow else (once(x), True)
        b, b_along_k = (
            oriented(once(y).transpose(0, 2, 1)) if narrow else (once(y).transpose(0, 2, 1), True)
        )
        plan = fitted(
            blueprint,
            args,
            a_along_k=a_along_k,
            b_along_k=b_along_k,
            a_async=copies(a),
            b_async=copies(b),
        )
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        steps = -(-x.shape[2] // (DEPTH_BYTES // x.itemsize))
        mma_product[cubes, MMA_UNITS](
            a, b, out, bias, residual, float(alpha), steps, plan, mode="unchecked"
        )


def copies(a: Any) -> bool:
    """Whether copies of 16 bytes suit an operand: aligned rows that are whole numbers of them."""
    return aligned(a) and a.shape[2] * a.itemsize % ALIGNMENT == 0


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
        """Tiles by what all rounds of them cost."""
        out = result_dtype(problem)
        sums = as_dtype("f32") if out.is_float and out.bits < 64 else out

        def cost(tile: tuple[int, ...]) -> float:
            tiles = problem.batch * -(-problem.m // tile[0]) * -(-problem.n // tile[1])
            return SIMT_TILES[tile] * -(-tiles // properties.cores)

        for tile in sorted(SIMT_TILES, key=cost):
            if sums.bits <= 32 or tile[0] * tile[1] < 128 * 128:
                yield Simt(sums, *tile)

    def launch(self, blueprint: Simt, problem: Product, args: tuple[Any, ...]) -> None:
        """out (batch, M, N) = epilogue(x (batch, M, K) @ y (batch, K, N))."""
        x, y, out, bias, residual, _, alpha = args
        a, a_along_k = oriented(once(x))
        b, b_along_k = oriented(once(y).transpose(0, 2, 1))
        plan = fitted(blueprint, args, a_along_k=a_along_k, b_along_k=b_along_k)
        batch, m, n = out.shape
        cubes = batch * -(-m // plan.rows) * -(-n // plan.columns)
        steps = -(-x.shape[2] // plan.depth)
        simt_product[cubes, SIMT_UNITS](
            a, b, out, bias, residual, float(alpha), steps, plan, mode="unchecked"
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
        return (
            None if problem.m <= MOST_DOT_ROWS else f"at most {MOST_DOT_ROWS} rows of {problem.a}"
        )

    def blueprints(self, problem: Product, properties: cb.DeviceProperties) -> Iterator[Few]:
        """Fewer columns a cube where there are few of them."""
        mma = "mma" in properties.features and problem.a == problem.b and problem.a in NARROW_FLOATS
        dot = not (mma and problem.k % 8 == 0 and problem.aligned)
        rows = problem.m if dot else 8 if problem.m <= 8 else 16
        for groups in (2, 4, 1):
            plan = Few(problem.a, rows, groups, dot)
            # of two launches at once, cubes of 8 rows would stand unevenly on the cores, unless there are many
            many = rows > 8 or -(-problem.n // plan.columns) > 4 * properties.cores
            yield replace(plan, early="overlap" in properties.features and many and not dot)

    def launch(self, blueprint: Few, problem: Product, args: tuple[Any, ...]) -> None:
        """out (1, M, N) = epilogue(x (1, M, K) @ y (1, K, N))."""
        x, y, out, bias, residual, _, alpha = args
        x, y = x if aligned(x) else copy(x), y[0].T
        x = x[0]
        plan = fitted(blueprint, args)  # fmt: skip
        kernel, columns = dot_rows, plan.groups * PLANES
        if not plan.dot:
            x, y, kernel = x.view("u4"), y.view("u4"), few_rows
        kernel[-(-y.shape[0] // columns), FEW_UNITS](
            x, y, out, bias, residual, float(alpha), plan, mode="unchecked"
        )
