"""Quantization: the weights of linear layers in eight or four bits, packed in memory and in files.

Example:
    >>> import cubepy as cb
    >>> model = cb.nn.Sequential(cb.nn.Linear(64, 64), cb.nn.ReLU(), cb.nn.Linear(64, 32))
    >>> result = cb.quant.quantize(model, "int4", measure_speed=False)
    >>> [layer.stored for layer in result.report.layers]
    ['int4', 'int4']
    >>> cb.quant.SCHEMES["int4"].group  # inputs that share a scale
    32
"""

from __future__ import annotations

if not __name__.startswith("cubepy."):
    raise ImportError(
        "import cubepy.quant: the bare folder name would load every class a second time"
    )

from cubepy.quant.files import load, quantize_file, read, save
from cubepy.quant.quantize import QuantizationResult, quantize
from cubepy.quant.report import LayerReport, QuantizationReport
from cubepy.quant.schemes.scheme import SCHEMES, Scheme, parse_scheme
from cubepy.quant.storage import Quantized
from cubepy.quant.weights.weight import QuantizedWeight

__all__ = [
    "SCHEMES",
    "LayerReport",
    "QuantizationReport",
    "QuantizationResult",
    "Quantized",
    "QuantizedWeight",
    "Scheme",
    "load",
    "parse_scheme",
    "quantize",
    "quantize_file",
    "read",
    "save",
]
