"""`quantize`: a trained model with packed weights, by one call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cubepy import nn
from cubepy.errors import QuantizationError
from cubepy.nn import arguments
from cubepy.quant import measure
from cubepy.quant.calibration.observer import Observer, Watched, samples
from cubepy.quant.report import LayerReport, QuantizationReport
from cubepy.quant.schemes.scheme import Scheme, parse_scheme
from cubepy.quant.selection import Candidate, Skip, Skips, candidates, warn_of
from cubepy.quant.storage import Quantized
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.tensor import Tensor
from cubepy.tensor.storage import HOST

# Bytes of X^T X that are gathered at once; more layers than fit are calibrated in several runs of
# the samples.
_MOMENT_BYTES = 1 << 30


@dataclass(frozen=True)
class QuantizationResult:
    """What `quantize` returns.

    Attributes:
        model: with packed weights.
        report: what was done; printing the result prints it.

    Example:
        >>> from cubepy import nn, quant
        >>> model, report = quant.quantize(nn.Linear(64, 8), "int8", measure_speed=False)
        >>> type(report).__name__
        'QuantizationReport'
    """

    model: nn.Module
    report: QuantizationReport

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.report))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives."""
        return self.model(*args, **kwargs)

    def __str__(self) -> str:
        return str(self.report)


def quantize(
    model: nn.Module,
    scheme: str | Scheme = "int8",
    *,
    group: int | None = None,
    symmetric: bool | None = None,
    activations: str | None = None,
    skip: Skip = (),
    calibrate: Any = None,
    sample: Any = None,
    inplace: bool = False,
    measure_speed: bool = True,
) -> QuantizationResult:
    """Pack the weights of a model's linear layers into eight or four bits.

    Args:
        model: with `nn.Linear` or `nn.MultiHeadAttention` somewhere inside.
        scheme: "int8" or "int4", or a `Scheme`.
        group: int4: inputs that share a scale (32), a multiple of 8. Layers whose inputs it does
            not divide stay in float, and a `QuantizationWarning` and the report name them.
        symmetric: int4: whether a group has no minimum of its own (smaller, a little less exact).
        activations: "int8" (by default) or "float", to quantize weights only.
        skip: layers to leave alone: names, patterns such as "encoder.*.query", or a function of
            (name, module).
        calibrate: sample inputs for error-compensated rounding: an iterable of items, each one
            called as `model(item)`, `model(*item)` for a tuple or list, `model(**item)` for a dict;
            or one array, a batch.
        sample: one such item, to report the output error on.
        inplace: change `model` itself; otherwise a copy is changed that shares what stays float.
        measure_speed: time each shape of layer, packed and in float.

    Returns:
        The model and a report.

    Raises:
        QuantizationError: unknown scheme, a group that fits no layer, weights that are not finite,
            no layer to quantize, or no calibration inputs in `calibrate`. The model is unchanged
            then.

    Example:
        >>> from cubepy import nn
        >>> result = quantize(nn.Sequential(nn.Linear(64, 32)), "int4", measure_speed=False)
        >>> result.report.quantized[0].name, result.model[0].weight.storage.kind
        ('0', 'quantized')
    """
    chosen = parse_scheme(scheme, group=group, symmetric=symmetric, activations=activations)
    if not isinstance(model, nn.Module):
        raise QuantizationError(
            f"a model is an nn.Module, not {type(model).__name__}",
            hint="its model is result.model"
            if isinstance(model, QuantizationResult)
            else "quant.quantize_file quantizes a file",
        )
    inplace, measure_speed = (
        arguments.flag("inplace", inplace),
        arguments.flag("measure_speed", measure_speed),
    )
    skips = Skips(skip)
    found = [_fitted(c, chosen) for c in candidates(model, skips)]
    todo = [c for c in found if not c.reason]
    if not todo:
        for candidate in found:
            if candidate.unasked:
                chosen.check(candidate.tensor.shape[1], candidate.name)
        raise QuantizationError(f"the model has nothing to quantize: {_why(found)}", hint=_HINT)
    for candidate in todo:
        _check(candidate)
    calls = None if calibrate is None else _calls(calibrate)
    shown = None if sample is None else next(iter(samples([sample])))
    packed, reports = _pack(model, todo, chosen, calls, shown, measure_speed)

    exact = None if shown is None else _floats(model.clone().eval()(*shown[0], **shown[1]))
    target = model if inplace else model.clone()
    done: dict[int, nn.Parameter] = {}  # layers that shared a weight share the packed one
    for candidate in todo:
        owner = _owner(target, model, candidate)
        old = candidate.tensor
        if id(old) not in done:
            weight = packed[id(old)].to(old.device)
            done[id(old)] = nn.Parameter(Tensor(weight), old.requires_grad)
        setattr(owner, candidate.key, done[id(old)])
    layers = [reports.get(i) or _skipped(c) for i, c in ((id(c), c) for c in found)]
    notes = skips.notes() + warn_of([(c.name, c.reason) for c in found if c.unasked])
    report = QuantizationReport(
        chosen.describe(), layers, calibrated=calls is not None, notes=notes
    )
    if exact is not None and shown is not None:
        near = _floats(target.clone().eval()(*shown[0], **shown[1]))
        report.output_error = measure.relative_error(_joined(exact), _joined(near))
        report.output_cosine = float(
            np.mean([measure.mean_cosine(a, b) for a, b in zip(exact, near, strict=True)])
        )
    return QuantizationResult(target, report)


_HINT = (
    "only nn.Linear and nn.MultiHeadAttention are quantized; check skip= and whether the "
    "model holds any"
)


def _why(found: Sequence[Candidate]) -> str:
    found = [candidate for candidate in found if candidate.linear]
    if not found:
        return "it holds no linear layer"
    return "all of its layers are skipped, " + ", ".join(
        f"{c.name!r} ({c.reason})" for c in found[:4]
    )


def _fitted(candidate: Candidate, scheme: Scheme) -> Candidate:
    """A candidate, with a reason to stay as it is where groups do not divide its inputs."""
    misfit = "" if candidate.reason else scheme.misfit(candidate.tensor.shape[1])
    return replace(candidate, reason=misfit, unasked=True) if misfit else candidate


def _check(candidate: Candidate) -> None:
    """What would make packing fail, before anything is changed."""
    if not np.isfinite(candidate.tensor.numpy()).all():
        raise QuantizationError(
            f"the weight of layer {candidate.name!r} holds NaN or infinity",
            hint=f"mend the model, or leave the layer in float with skip=({candidate.name!r},)",
        )


def _calls(calibrate: Any) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    calls = list(samples(calibrate))
    if not calls:
        raise QuantizationError(
            "calibrate= holds no sample inputs",
            hint="give a list of inputs, one item for each call of the model",
        )
    return calls


def _pack(
    model: nn.Module, todo: Sequence[Candidate], scheme: Scheme, calls: Any, shown: Any, timed: bool
) -> tuple[dict[int, Quantized], dict[int, LayerReport]]:
    """The packed storage of every parameter (by id: layers may share one), and a report for every
    candidate.
    """
    packed: dict[int, Quantized] = {}
    reports: dict[int, LayerReport] = {}
    owners: dict[int, str] = {}
    speeds: dict[tuple[int, ...], tuple[float, float]] = {}
    for batch in _batches(todo, calls is not None):
        observers = _observe(model, batch, calls, shown)
        for candidate in batch:
            parameter = candidate.tensor
            weight = parameter.numpy().astype(np.float32, copy=False)
            observer = observers.get(id(parameter))
            if id(parameter) not in packed:
                seen = None if observer is None else observer.statistics()
                quantized = QuantizedWeight.from_float(
                    weight, scheme, name=candidate.name, statistics=seen
                )
                packed[id(parameter)] = Quantized(quantized, parameter.dtype, HOST)
            quantized = packed[id(parameter)].weight
            rows = None if observer is None else observer.rows()
            x = np.ones((1, weight.shape[1]), np.float32) if rows is None else rows
            shape = (*weight.shape, len(x))
            if timed and shape not in speeds:
                speeds[shape] = measure.milliseconds(weight, quantized, x)
            float_ms, quantized_ms = speeds.get(shape, (None, None))
            first = owners.setdefault(id(parameter), candidate.name)
            alone = first == candidate.name
            reports[id(candidate)] = LayerReport(
                candidate.name,
                parameter.shape,
                scheme.name,
                "" if alone else f"the weight of {first!r}",
                parameter.nbytes if alone else 0,
                quantized.nbytes if alone else 0,
                measure.weight_error(weight, quantized),
                None if rows is None else measure.output_error(weight, quantized, rows),
                len(x) if timed else None,
                float_ms,
                quantized_ms,
            )
    return packed, reports


def _batches(todo: Sequence[Candidate], calibrated: bool) -> Iterator[list[Candidate]]:
    """All layers at once, or as many as there is memory for what calibration gathers."""
    batch: list[Candidate] = []
    held = 0
    for candidate in todo:
        need = 8 * candidate.tensor.shape[1] ** 2 if calibrated else 0
        if batch and held + need > _MOMENT_BYTES:
            yield batch
            batch, held = [], 0
        batch.append(candidate)
        held += need
    yield batch


def _observe(
    model: nn.Module, batch: Sequence[Candidate], calls: Any, shown: Any
) -> dict[int, Observer]:
    """Run the samples through a copy of the model in which the weights of a batch are watched."""
    if calls is None and shown is None:
        return {}
    twin = model.clone().eval()
    observers: dict[int, Observer] = {}
    for candidate in batch:
        parameter = candidate.tensor
        observer = observers.setdefault(
            id(parameter), Observer(parameter.shape[1], calls is not None)
        )
        owner = _owner(twin, model, candidate)
        setattr(owner, candidate.key, nn.Parameter(Tensor(Watched(parameter.storage, observer))))
    for args, kwargs in calls if calls is not None else [shown]:
        twin(*args, **kwargs)
    return observers


def _owner(target: nn.Module, model: nn.Module, candidate: Candidate) -> nn.Module:
    """The module of `target` that stands where a candidate's stands in `model`."""
    if target is model:
        return candidate.module
    path = next(name for name, module in model.named_modules() if module is candidate.module)
    return target.get_submodule(path)


def _skipped(candidate: Candidate) -> LayerReport:
    tensor = candidate.tensor
    return LayerReport(
        candidate.name, tensor.shape, None, candidate.reason, tensor.nbytes, tensor.nbytes
    )


def _floats(output: Any) -> list[np.ndarray]:
    """The float tensors of a model's output: one, or those of a tuple, list or dict."""
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (tuple, list)):
        return [array for item in output for array in _floats(item)]
    if isinstance(output, Tensor):
        output = output.numpy()
    is_float = isinstance(output, np.ndarray) and output.dtype.kind in "fV" and output.ndim > 0
    return [output.astype(np.float32)] if is_float else []


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([a.reshape(-1) for a in arrays]) if arrays else np.zeros(0, np.float32)
