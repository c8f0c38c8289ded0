"""Pools, interpolation, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy import kernels as K
from tests.fuzz.check import Want, depth
from tests.fuzz.draws import F64, FLOATS, INTS, Call, Draw, draws, is_float, sums, unit
from tests.fuzz.images import LAYOUTS, as_laid, first, image

AXES = (1, 2, 3)


def image_shape(d: Draw, axes: int) -> tuple[int, ...]:
    """A batch of images, small ones or one long axis; one batch in thirty is empty."""
    size = [d.size(1, {1: 150, 2: 20, 3: 8}[axes]) for _ in range(axes)]
    if d.sometimes(0.1):
        size = [min(n, 4) for n in size]
        size[d.between(0, axes - 1)] = d.between(50, 300)
    return (
        0 if d.sometimes(0.03) else d.between(1, 3),
        d.one((1, 3, 8, 16, 17, d.between(1, 40))),
        *size,
    )


class Windows:
    """Windows along each axis: lists of the places that each sees, and what its sum is divided by."""

    def __init__(self, places: list[list[list[int]]], counts: list[list[int]]) -> None:
        self.places, self.counts = places, counts
        self.shape = tuple(map(len, places))

    @staticmethod
    def sliding(d: Draw, size: tuple[int, ...], dilated: bool) -> tuple[Windows, dict[str, Any]]:
        """Windows that fit, or hang over the end of a shorter axis (`ceil_mode`), and the options that
        make them.
        """
        ceil = d.maybe(0.3)
        kernel, stride, padding, dilation, places, counts = [], [], [], [], [], []
        for n in size:
            k = d.one((1, 2, 2, 3, 3, 5, 7))
            e = d.one((1, 1, 2)) if dilated else 1
            longer = e * (k - 1) + 1 > n
            over = longer and ceil and e == 1 and d.sometimes(0.5)
            k, e = (min(k, n), 1) if longer and not over else (k, e)
            s, p = d.one((1, 2, k, k)), d.between(0, k // 2) if d.maybe(0.4) else 0
            if over and n + 2 * p - k <= -s:  # not even one
                k, p = n, min(p, n // 2)
            span = n + 2 * p - e * (k - 1) - 1
            m = (-(-span // s) if ceil else span // s) + 1
            if ceil and (m - 1) * s >= n + p:
                m -= 1
            begins = [j * s - p for j in range(m)]
            places.append([[b + t * e for t in range(k) if 0 <= b + t * e < n] for b in begins])
            counts.append([min(b + k, n + p) - b for b in begins])
            for into, v in zip((kernel, stride, padding, dilation), (k, s, p, e), strict=True):
                into.append(v)
        options = {
            "kernel_size": tuple(kernel),
            "stride": tuple(stride),
            "padding": tuple(padding),
            "ceil_mode": ceil,
        }
        if dilated:
            options["dilation"] = tuple(dilation)
        return Windows(places, counts), options

    @staticmethod
    def parts(d: Draw, size: tuple[int, ...]) -> tuple[Windows, dict[str, Any]]:
        """Equal parts."""
        wanted = tuple(d.one((1, 2, 3, 7, d.between(1, n))) for n in size)
        places = [[list(range(j * n // m, -(-(j + 1) * n // m))) for j in range(m)] for n, m in zip(size, wanted, strict=True)]  # fmt: skip
        return Windows(places, [[len(q) for q in axis] for axis in places]), {"output_size": wanted}

    def matrices(self, size: tuple[int, ...], counted: bool = False) -> list[np.ndarray]:
        """For each axis the sums over windows, divided by the number of their places (`counted`:
        padding too).
        """
        out = []
        for n, places, counts in zip(size, self.places, self.counts, strict=True):
            m = np.zeros((len(places), n))
            for j, (at, count) in enumerate(zip(places, counts, strict=True)):
                m[j, at] = 1 / (count if counted else max(len(at), 1))
            out.append(m)
        return out

    def largest(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The maximum of every window, and its place in the plane: the first of equals, the last
        NaN, as in torch.
        """
        wide = x.astype(np.float64) if is_float(x.dtype) else x
        # windows at the edges see their last place several times, which changes neither first nor
        # last
        most = [max(map(len, axis)) for axis in self.places]
        at = np.zeros((1,) * 2 * len(most), np.int64)
        for k, (axis, n, width) in enumerate(zip(self.places, x.shape[2:], most, strict=True)):
            places = np.array([list(q) + [q[-1]] * (width - len(q)) for q in axis])
            shape = [1] * (2 * len(most))
            shape[k], shape[len(most) + k] = places.shape
            at = at * n + places.reshape(shape)
        at = at.reshape(*self.shape, -1)
        seen = wide.reshape(*wide.shape[:2], math.prod(x.shape[2:]))[..., at]
        best = np.argmax(seen, -1)
        if is_float(x.dtype):
            nan = seen != seen
            best = np.where(nan.any(-1), seen.shape[-1] - 1 - np.argmax(nan[..., ::-1], -1), best)
        value = np.take_along_axis(seen, best[..., None], -1)[..., 0]
        index = np.take_along_axis(np.broadcast_to(at, seen.shape), best[..., None], -1)[..., 0]
        return value, index


def along(x: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
    """A matrix applied to each axis of an image."""
    for k, m in enumerate(matrices):
        x = np.moveaxis(np.tensordot(x, m, (k + 2, 1)), -1, k + 2)
    return x


def windows(
    d: Draw, name: str, size: tuple[int, ...], dilated: bool
) -> tuple[Windows, dict[str, Any]]:
    return (
        Windows.parts(d, size) if name.startswith("adaptive") else Windows.sliding(d, size, dilated)
    )


def axes_of(name: str) -> int:
    return int(name[name.index("pool") + 4])


@draws(*(f"{kind}max_pool{n}d" for kind in ("", "adaptive_") for n in AXES))
def _(d: Draw, name: str) -> Call:
    axes = axes_of(name)
    layout, shape = d.one(LAYOUTS[axes]), image_shape(d, axes)
    x = image(d, shape, d.one((d.one(FLOATS), d.one(FLOATS), d.one(INTS))), layout, "")
    w, options = windows(d, name, shape[2:], True)
    pairs = d.maybe(0.4)

    def want() -> Any:
        value, index = w.largest(first(x, layout))
        results = [
            as_laid(Want(value, x.dtype, 0.0), layout),
            as_laid(Want(index, index.dtype, 0.0), layout),
        ]
        for r in results:
            r.error = None
        return results if pairs else results[0]

    return Call(
        getattr(K, name),
        (x,),
        want,
        {**options, "layout": layout, "return_indices": pairs},
        out=not pairs,
    )


@draws(*(f"{kind}max_pool{n}d_input" for kind in ("", "adaptive_") for n in AXES))
def _(d: Draw, name: str) -> Call:
    axes, dtype = axes_of(name), d.one(FLOATS)
    layout, shape = d.one(LAYOUTS[axes]), image_shape(d, axes)
    w, options = windows(d, name, shape[2:], True)
    x = d.values(shape, dtype, "normal")
    _, index = w.largest(x)
    g = image(d, index.shape, dtype, layout)
    places = d.placed(index if layout[1] == "C" else np.moveaxis(index, 1, -1).copy())
    if "output_size" in options:
        del options["output_size"]

    def want() -> Want:
        value, size = np.zeros((2, *shape[:2], math.prod(shape[2:])))
        wide = first(g, layout).astype(np.float64)
        n, c = np.indices(index.shape)[:2]
        np.add.at(value, (n, c, index), wide)
        np.add.at(size, (n, c, index), np.abs(wide))
        most = math.prod(options.get("kernel_size", (2,) * axes))
        return as_laid(
            Want(value.reshape(shape), dtype, depth(most) * sums(dtype) * size.reshape(shape)),
            layout,
        )

    whole = shape if layout[1] == "C" else (shape[0], *shape[2:], shape[1])
    return Call(
        getattr(K, name), (whole, g, places), want, {**options, "layout": layout}, out=False
    )


@draws(
    *(
        f"{kind}avg_pool{n}d{back}"
        for kind in ("", "adaptive_")
        for n in AXES
        for back in ("", "_input")
    )
)
def _(d: Draw, name: str) -> Call:
    axes, dtype, back = axes_of(name), d.one(FLOATS), name.endswith("input")
    layout, shape = d.one(LAYOUTS[axes]), image_shape(d, axes)
    w, options = windows(d, name, shape[2:], False)
    counted, divisor = True, None
    if not name.startswith("adaptive"):
        counted, divisor = d.maybe(), d.one((None, None, None, 3))
        options |= {"count_include_pad": counted, "divisor_override": divisor}
    elif back:
        del options["output_size"]
    x = image(
        d,
        (*shape[:2], *w.shape) if back else shape,
        dtype,
        layout,
        "" if d.maybe(0.3) else "normal",
    )

    def want() -> Want:
        wide = first(x, layout).astype(np.float64)
        maps = w.matrices(shape[2:], counted)
        if divisor:
            maps = [(m > 0).astype(np.float64) for m in maps]
            maps[0] = maps[0] / divisor
        maps = [m.T for m in maps] if back else maps
        n = math.prod(int((m != 0).sum(1).max()) for m in maps)
        return as_laid(applied(wide, maps, n, dtype), layout)

    whole = shape if layout[1] == "C" else (shape[0], *shape[2:], shape[1])
    args = (whole, x) if back else (x,)
    return Call(getattr(K, name), args, want, {**options, "layout": layout}, out=not back)


def applied(x: np.ndarray, maps: list[np.ndarray], n: int, dtype: np.dtype) -> Want:
    """Weighted sums of n terms; what is not finite reaches the results that see it with a weight,
    and no others.
    """
    finite = np.isfinite(x)
    value = along(np.where(finite, x, 0.0), maps)
    size = along(np.where(finite, np.abs(x), 0.0), [np.abs(m) for m in maps])
    if not finite.all():
        seen = {v: along(where.astype(np.float64), [(m > 0).astype(float) for m in maps]) > 0
                for v, where in ((1, x == np.inf), (-1, x == -np.inf))}  # fmt: skip
        nan = along(np.isnan(x).astype(np.float64), [(m != 0).astype(float) for m in maps]) > 0
        value = np.where(seen[1], np.inf, value)
        value = np.where(seen[-1], np.where(seen[1], np.nan, -np.inf), value)
        value = np.where(nan, np.nan, value)
    return Want(value, dtype, (depth(n) + 6) * sums(dtype) * size)


MODES = {1: ("nearest", "area", "linear"), 2: ("nearest", "area", "bilinear", "bicubic"), 3: ("nearest", "area", "trilinear")}  # fmt: skip


def between(n: int, m: int, mode: str, corners: bool, factor: float | None) -> np.ndarray:
    """The matrix of an interpolation along an axis."""
    out = np.zeros((m, n))
    for j in range(m):
        scale = n / m if factor is None else 1 / factor
        if mode == "nearest":
            out[j, min(j * n // m if factor is None else math.floor(j * scale), n - 1)] = 1
            continue
        if mode == "area":
            begin, end = j * n // m, -(-(j + 1) * n // m)
            out[j, begin:end] = 1 / (end - begin)
            continue
        at = j * (n - 1) / max(m - 1, 1) if corners else (j + 0.5) * scale - 0.5
        at = at if mode == "bicubic" else max(at, 0.0)
        low = math.floor(at) if mode == "bicubic" else min(math.floor(at), n - 1)
        t = at - low
        if mode == "bicubic":
            a = -0.75
            near, far = (
                (lambda u: ((a + 2) * u - (a + 3)) * u * u + 1),
                (lambda u: ((a * u - 5 * a) * u + 8 * a) * u - 4 * a),
            )
            weights = {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}
        else:
            weights = {0: 1 - t, 1: t}
        for k, weight in weights.items():
            out[j, min(max(low + k, 0), n - 1)] += weight
    return out


@draws("interpolate", "interpolate_input")
def _(d: Draw, name: str) -> Call:
    axes, dtype, back = d.one((1, 2, 2, 2, 3)), d.one(FLOATS), name == "interpolate_input"
    layout, shape, mode = d.one(LAYOUTS[axes]), image_shape(d, axes), d.one(MODES[axes])
    corners = mode not in ("nearest", "area") and d.maybe()
    factor, size = (
        None,
        tuple(d.one((1, n, 2 * n, max(1, n // 2), d.between(1, 2 * n))) for n in shape[2:]),
    )
    options: dict[str, Any] = {"mode": mode, "align_corners": corners, "layout": layout}
    if not back and mode != "area" and d.maybe(0.3):
        factor = d.one((2.0, 1.5, 3.0, 1.25))
        size = tuple(math.floor(n * factor) for n in shape[2:])
        options["scale_factor"] = factor
    elif not back:
        options["size"] = size
    x = image(d, (*shape[:2], *size) if back else shape, dtype, layout)

    def want() -> Want:
        maps = [between(n, m, mode, corners, factor) for n, m in zip(shape[2:], size, strict=True)]
        maps = [m.T for m in maps] if back else maps
        n = math.prod(int((m != 0).sum(1).max()) for m in maps)
        wide = first(x, layout).astype(np.float64)
        out = applied(wide, maps, n, dtype)
        # places are computed in float64 and may be off by a rounding, which moves weight between
        # neighbours
        far = 8 * unit(F64) * max(*shape[2:], *size) * np.abs(wide).max(initial=0)
        return as_laid(
            Want(out.value, dtype, out.error + (0.0 if mode in ("nearest", "area") else far)),
            layout,
        )

    whole = shape if layout[1] == "C" else (shape[0], *shape[2:], shape[1])
    return Call(getattr(K, name), (whole, x) if back else (x,), want, options, out=not back)
