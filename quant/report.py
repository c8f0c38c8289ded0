"""What a quantization did, layer by layer, as a table and as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from cubepy.runtime.notebook import preformatted


@dataclass(frozen=True)
class LayerReport:
    """One layer.

    Attributes:
        name: dotted name of the module (of the tensor, for a file).
        shape: of the weight: (outputs, inputs).
        stored: the name of the scheme, or None where the layer was skipped.
        reason: why it was skipped, or whose weight it shares; else an empty text.
        bytes_before, bytes_after: of the weight, scales and all; 0 where another layer has it.
        weight_error: |W - Q| / |W|, None where skipped.
        output_error: |y - y_q| / |y| on inputs that were seen, activations quantized; None without
            samples.
        rows: how many rows of input the times are for.
        float_ms, quantized_ms: measured time of the layer; None where it was not measured.

    Example:
        >>> LayerReport("head", (10, 64), "int4", "", 2560, 400, 0.08, rows=1, float_ms=0.2,
        ...     quantized_ms=0.1).speed
        2.0
    """

    name: str
    shape: tuple[int, ...]
    stored: str | None
    reason: str
    bytes_before: int
    bytes_after: int
    weight_error: float | None = None
    output_error: float | None = None
    rows: int | None = None
    float_ms: float | None = None
    quantized_ms: float | None = None

    @property
    def speed(self) -> float | None:
        """How many times as fast as in float."""
        if self.float_ms is None or not self.quantized_ms:
            return None
        return self.float_ms / self.quantized_ms


@dataclass
class QuantizationReport:
    """All layers, with totals; `print` shows it as a table.

    Attributes:
        scheme: the scheme in words.
        layers: those that were quantized and those that were skipped.
        calibrated: whether sample inputs guided the rounding.
        output_error: |y - y_q| / |y| of the whole model on the sample; None without one.
        output_cosine: mean cosine of its outputs to those in float.
        warnings: what the user should know.

    Example:
        >>> from cubepy import nn, quant
        >>> report = quant.quantize(nn.Linear(64, 8), "int8", measure_speed=False).report
        >>> report.scheme, len(report.quantized), report.calibrated
        ('int8, a scale for each output channel', 1, False)
    """

    scheme: str
    layers: list[LayerReport]
    calibrated: bool = False
    output_error: float | None = None
    output_cosine: float | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def quantized(self) -> list[LayerReport]:
        """The layers that are packed now."""
        return [layer for layer in self.layers if layer.stored is not None]

    @property
    def skipped(self) -> list[LayerReport]:
        """The layers that stay as they were."""
        return [layer for layer in self.layers if layer.stored is None]

    @property
    def bytes_before(self) -> int:
        """Bytes of the quantized layers' weights before."""
        return sum(layer.bytes_before for layer in self.quantized)

    @property
    def bytes_after(self) -> int:
        """Bytes of the quantized layers' weights now."""
        return sum(layer.bytes_after for layer in self.quantized)

    @property
    def ratio(self) -> float:
        """`bytes_after / bytes_before`."""
        return self.bytes_after / self.bytes_before if self.bytes_before else 1.0

    @property
    def speed(self) -> float | None:
        """How many times as fast as in float, over all measured layers."""
        measured = [layer for layer in self.quantized if layer.speed is not None]
        after = sum(layer.quantized_ms or 0.0 for layer in measured)
        return sum(layer.float_ms or 0.0 for layer in measured) / after if after else None

    @property
    def warnings(self) -> list[str]:
        """What the user should know: layers that became slower or larger, patterns that matched
        nothing.
        """
        slower = [layer for layer in self.quantized if layer.speed is not None and layer.speed < 1]
        found = list(self.notes)
        if slower:
            worst = min(slower, key=lambda layer: layer.speed or 0.0)
            found.append(
                f"{len(slower)} of {len(self.quantized)} quantized layers are slower than in "
                f"float, the slowest {worst.name} ({worst.speed:.2f}x with {worst.rows} "
                "rows); they save memory only"
            )
        larger = [layer for layer in self.quantized if layer.bytes_after > layer.bytes_before]
        if larger:
            worst = max(larger, key=lambda layer: layer.bytes_after / layer.bytes_before)
            found.append(
                f"{len(larger)} of {len(self.quantized)} quantized layers are larger than in "
                f"float, such as {worst.name or '(model)'} ({worst.bytes_before} -> "
                f"{worst.bytes_after} bytes); skip= leaves them alone"
            )
        return found

    def _repr_html_(self) -> str:
        return preformatted(f"{self.scheme}: {self.ratio:.0%} of the bytes", str(self))

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return {
            "scheme": self.scheme,
            "calibrated": self.calibrated,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "ratio": self.ratio,
            "speed": self.speed,
            "output_error": self.output_error,
            "output_cosine": self.output_cosine,
            "warnings": self.warnings,
            "layers": [
                {**asdict(layer), "shape": list(layer.shape), "speed": layer.speed}
                for layer in self.layers
            ],
        }

    def __str__(self) -> str:
        heads = (
            "layer",
            "shape",
            "stored",
            "KB before",
            "KB after",
            "weight err",
            "output err",
            "rows",
            "ms float",
            "ms now",
            "speed",
        )
        rows = [_cells(layer) for layer in self.layers]
        used = [c for c in range(len(heads)) if c < 5 or any(row[c] for row in rows)]
        lines = _table([heads[c] for c in used], [[row[c] for c in used] for row in rows])
        lines.append("")
        lines.append(f"{self.scheme}{', calibrated' if self.calibrated else ''}: {self._totals()}")
        lines.extend(f"warning: {text}" for text in self.warnings)
        return "\n".join(lines)

    def _totals(self) -> str:
        parts = [
            f"{len(self.quantized)} layers quantized, {len(self.skipped)} skipped",
            f"{self.bytes_before / 1e6:.2f} MB -> {self.bytes_after / 1e6:.2f} MB "
            f"({self.ratio:.3f} of float)",
        ]
        if self.speed is not None:
            parts.append(f"{self.speed:.2f}x as fast")
        if self.output_error is not None:
            parts.append(f"output error {self.output_error:.4f}")
        if self.output_cosine is not None:
            parts.append(f"cosine {self.output_cosine:.5f}")
        return "; ".join(parts)


def _cells(layer: LayerReport) -> list[str]:
    def number(value: float | None, digits: int) -> str:
        if value is None:
            return ""
        return f"{value:.{digits}f}" if math.isfinite(value) else str(value)

    speed = layer.speed
    return [
        layer.name or "(model)",
        " x ".join(map(str, layer.shape)),
        ": ".join(filter(None, (layer.stored or "skipped", layer.reason))),
        f"{layer.bytes_before / 1e3:.1f}",
        f"{layer.bytes_after / 1e3:.1f}",
        number(layer.weight_error, 4),
        number(layer.output_error, 4),
        "" if layer.rows is None else str(layer.rows),
        number(layer.float_ms, 3),
        number(layer.quantized_ms, 3),
        "" if speed is None else f"{speed:.2f}x",
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as they need; the first three to the left, numbers to the right."""
    widths = [max([len(head), *(len(row[c]) for row in rows)]) for c, head in enumerate(heads)]

    def line(cells: Sequence[str]) -> str:
        shown = [
            cell.ljust(w) if c < 3 else cell.rjust(w)
            for c, (cell, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(shown).rstrip()

    return [line(heads), line(["-" * w for w in widths]), *(line(row) for row in rows)]
