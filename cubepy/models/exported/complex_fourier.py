"""Fourier transforms of a graph of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cubepy import tensor as T
from cubepy.errors import ModelError
from cubepy.models.exported.complexes import (
    Complex,
    both,
    complex_of,
    multiply,
    of_complex,
    view_as_real,
)
from cubepy.models.exported.records import run_of, target
from cubepy.models.fourier import dft_of
from cubepy.nn import functional as F
from cubepy.tensor import Tensor

Operator = Callable[..., Any]


def transformed(x: Any, n: int | None, dim: int, norm: str | None, inverse: bool) -> Complex:
    """The transform along an axis."""
    x = complex_of(x)
    dim = dim % x.ndim
    n = x.shape[dim] if n is None else n
    pairs = dft_of(T.stack([x.real, x.imaginary], axis=-1), dim, n, inverse, False)
    by = _scale(n, norm, inverse)
    found = Complex(pairs[..., 0], pairs[..., 1])
    return found if by == 1 else multiply(found, by)


def _scale(n: int, norm: str | None, inverse: bool) -> float:
    """What a transform is multiplied by; an inverse one has 1 / n already."""
    if norm in (None, "backward"):
        return 1.0
    if norm == "ortho":
        return math.sqrt(n) if inverse else 1 / math.sqrt(n)
    if norm == "forward":
        return float(n) if inverse else 1 / n
    raise ModelError(f"a transform that is scaled by {norm!r}")


def half(x: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Complex:
    """The first half of the transform of real numbers."""
    dim = dim % x.ndim
    n = x.shape[dim] if n is None else n
    x = x if x.dtype.is_float else x.astype("f32")
    pairs = dft_of(x.unsqueeze(-1), dim, n, False, True)
    by = _scale(n, norm, False)
    pairs = pairs if by == 1 else pairs * by
    return Complex(pairs[..., 0], pairs[..., 1])


def from_half(x: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Real numbers of the first half of their transform."""
    x = complex_of(x)
    dim = dim % x.ndim
    n = 2 * (x.shape[dim] - 1) if n is None else n
    found = dft_of(T.stack([x.real, x.imaginary], axis=-1), dim, n, True, True)[..., 0]
    by = _scale(n, norm, True)
    return found if by == 1 else found * by


def _along(inverse: bool) -> Operator:
    def run(x: Any, n: Any = None, dim: int = -1, norm: str | None = None) -> Complex:
        return transformed(x, n, dim, norm, inverse)

    return run


def _axes(x: Any, s: Any, dim: Any) -> list[tuple[int | None, int]]:
    """The length and number of each axis."""
    count = x.ndim if s is None else len(s)
    dim = list(range(-count, 0)) if dim is None else list(dim)
    return list(zip([None] * len(dim) if s is None else s, dim, strict=True))


def _over(first: Operator, last: Operator, real_last: bool, axes: Any) -> Operator:
    """A transform along several axes, of which the last one may be of real numbers."""

    def run(x: Any, s: Any = None, dim: Any = axes, norm: str | None = None) -> Any:
        *others, end = _axes(x, s, dim)
        order = [end, *others] if real_last else [*others, end]
        for n, (length, at) in enumerate(order):
            ends = n == (0 if real_last else len(order) - 1)
            x = (last if ends else first)(x, length, at, norm)
        return x

    return run


for _names, _run in {
    "fft_fft": _along(False),
    "fft_ifft": _along(True),
    "fft_rfft": half,
    "fft_irfft": from_half,
    "fft_fft2": _over(_along(False), _along(False), False, (-2, -1)),
    "fft_ifft2": _over(_along(True), _along(True), False, (-2, -1)),
    "fft_fftn": _over(_along(False), _along(False), False, None),
    "fft_ifftn": _over(_along(True), _along(True), False, None),
    "fft_rfft2": _over(_along(False), half, True, (-2, -1)),
    "fft_rfftn": _over(_along(False), half, True, None),
    "fft_irfft2": _over(_along(True), from_half, False, (-2, -1)),
    "fft_irfftn": _over(_along(True), from_half, False, None),
}.items():
    target(_names)(_run)
    of_complex(_names)(_run)


def _shifted(inverse: bool) -> Operator:
    def run(x: Any, dim: Any = None) -> Any:
        dims = list(range(x.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)
        half = [(x.shape[d] + inverse) // 2 for d in dims]
        roll = run_of("aten.roll.default")
        assert roll is not None
        return both(roll, [x, half, dims], {}) if isinstance(x, Complex) else roll(x, half, dims)

    return run


for _names, _run in {"fft_fftshift": _shifted(False), "fft_ifftshift": _shifted(True)}.items():
    target(_names)(_run)
    of_complex(_names)(_run)


def framed(
    x: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Transforms of frames: (batch, bins, frames)."""
    alone = x.ndim == 1
    x = x.unsqueeze(0) if alone else x
    frames = x.unfold(1, n_fft, hop_length or n_fft // 4)
    if window is not None:
        frames = frames * _centered(window, n_fft)
    norm = "ortho" if normalized else None
    whole = onesided is False
    found = transformed(frames, None, -1, norm, False) if whole else half(frames, None, -1, norm)
    found = both(lambda p: p.transpose(1, 2), [found], {})
    found = both(lambda p: p[0], [found], {}) if alone else found
    return found if return_complex else view_as_real(found)


def _centered(window: Tensor, n: int) -> Tensor:
    """A window of n numbers, with zeros around it."""
    left = (n - window.shape[0]) // 2
    return F.pad(window, (left, n - window.shape[0] - left))


@target("stft")
def stft(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    *more: Any,
    **said: Any,
) -> Any:
    return framed(x, n_fft, hop_length, win_length, _window(x, window, win_length), *more, **said)


@target("stft.center")
def stft_center(
    x: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    *more: Any,
    **said: Any,
) -> Any:
    if center:
        lead = x.reshape(1, 1, -1) if x.ndim == 1 else x.unsqueeze(1)
        lead = F.pad(lead, (n_fft // 2, n_fft // 2), mode=pad_mode)
        x = lead.reshape(*x.shape[:-1], lead.shape[-1])
    return stft(x, n_fft, hop_length, win_length, window, *more, **said)


def _window(x: Any, window: Tensor | None, width: int | None) -> Tensor | None:
    """The window that is meant: of ones where there is none."""
    if window is not None or width is None:
        return window
    like = x.real if isinstance(x, Complex) else x
    return T.ones((width,), dtype=like.dtype, device=like.device)


@target("istft")
@of_complex("istft")
def istft(
    x: Any,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    x = complex_of(x)
    if return_complex or x.shape[-2] != n_fft // 2 + 1:
        raise ModelError("the inverse of a transform of complex frames")
    alone, hop = x.ndim == 2, hop_length or n_fft // 4
    x = both(lambda p: p.unsqueeze(0), [x], {}) if alone else x
    frames = from_half(x, n_fft, 1, "ortho" if normalized else None)
    window = _window(x, window, win_length or n_fft)
    assert window is not None
    shape = _centered(window, n_fft).reshape(1, -1, 1)
    count = frames.shape[2]
    total = n_fft + hop * (count - 1)

    def laid(parts: Tensor) -> Tensor:
        made = F.fold(parts, (1, total), (1, n_fft), stride=(1, hop))
        return made.reshape(parts.shape[0], total)

    weight = laid((shape * shape).expand(1, n_fft, count))
    first = n_fft // 2 if center else 0
    last = total - first if center and length is None else total
    found = laid(frames * shape)[:, first:last] / weight[:, first:last]
    if length is not None:
        found = found[:, :length]
        found = F.pad(found, (0, length - found.shape[1]))
    return found[0] if alone else found
