"""Features of tables: scaled, filled in, encoded, put together; maps of classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from cubepy.models.onnx.ops.tabular.scores import labels_of, of_tables, rows_of
from cubepy.models.onnx.records import Call

MOST = 1 << 16
"""Columns that there may be beside those that are given."""


def _mapped(table: Mapping[Any, Any], x: Any, default: Any, dtype: Any) -> Any:
    each = [table.get(v, default) for v in x.reshape(-1).tolist()]
    return np.array(each, dtype).reshape(x.shape)


def _columns(call: Call, name: str, x: Any) -> Any:
    """An attribute of a number for each column, or one for all."""
    given = np.asarray(call.get(name) or [], np.float32)
    if len(given) not in (1, x.shape[-1] if x.ndim else 1):
        raise call.refuse(f"{name} has {len(given)} numbers for {list(x.shape)}")
    return given


@of_tables("Scaler")
def scaler(call: Call, x: Any) -> Any:
    """(x - offset) scale, by column."""
    wide = x.astype(np.float32)
    return (wide - _columns(call, "offset", x)) * _columns(call, "scale", x)


@of_tables("Normalizer")
def normalizer(call: Call, x: Any) -> Any:
    """Rows by their largest number, their sum of sizes, or their length; rows of zeros stay."""
    kind, rows = call.get("norm", "MAX"), rows_of(x)
    if kind == "MAX":
        by = rows.max(axis=1, keepdims=True)
    elif kind == "L1":
        by = np.abs(rows).sum(axis=1, keepdims=True)
    elif kind == "L2":
        by = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    else:
        raise call.refuse(f"a norm {kind!r}")
    return (rows / np.where(by == 0, 1, by)).astype(np.float32).reshape(x.shape)


@of_tables("Imputer")
def imputer(call: Call, x: Any) -> Any:
    """What is missing is what stands for it, by column."""
    floats = x.dtype.kind == "f"
    name = "imputed_value_floats" if floats else "imputed_value_int64s"
    instead = np.asarray(call.get(name) or [], x.dtype)
    if len(instead) not in (1, x.shape[-1]):
        raise call.refuse(f"{name} has {len(instead)} numbers for {list(x.shape)}")
    gone = call.get("replaced_value_float" if floats else "replaced_value_int64", 0)
    there = ~np.isnan(x) if floats and math.isnan(gone) else x != x.dtype.type(gone)
    return np.where(there, x, instead)


@of_tables("OneHotEncoder")
def one_hot_encoder(call: Call, x: Any) -> Any:
    """One where a category is, in an axis more."""
    categories = labels_of(call, "cats_int64s", "cats_strings")
    values = x if x.dtype == object else x.astype(np.int64)
    found = values[..., None] == categories
    if not call.get("zeros", 1) and not found.any(axis=-1).all():
        raise call.refuse("a value that is no category")
    return found.astype(np.float32)


@of_tables("FeatureVectorizer")
def feature_vectorizer(call: Call, *parts: Any) -> Any:
    """Columns of several tables side by side."""
    widths = call.get("inputdimensions") or []
    if len(widths) != len(parts):
        raise call.refuse(f"{len(widths)} widths of {len(parts)} inputs")
    rows = [
        p.reshape(-1, 1) if p.ndim == 1 and w == 1 else rows_of(p)
        for p, w in zip(parts, widths, strict=True)
    ]
    if min(widths) < 0 or sum(widths) > MOST + sum(r.shape[1] for r in rows):
        raise call.refuse(f"widths {widths[:9]} of {[list(r.shape) for r in rows[:9]]}")
    found = np.zeros((max((len(r) for r in rows), default=0), sum(widths)), np.float32)
    at = 0
    for part, width in zip(rows, widths, strict=True):
        part = part[:, :width]
        found[: len(part), at : at + part.shape[1]] = part
        at += width
    return found


@of_tables("ZipMap")
def zip_map(call: Call, x: Any) -> Any:
    """A map from classes to scores for each row."""
    classes = labels_of(call, "classlabels_int64s", "classlabels_strings").tolist()
    rows = x.reshape(1, -1) if x.ndim == 1 else x
    if rows.ndim != 2 or rows.shape[1] != len(classes):
        raise call.refuse(f"{list(x.shape)} are not scores of {len(classes)} classes")
    return [dict(zip(classes, row, strict=True)) for row in rows.tolist()]


def _row(call: Call, keys: list[Any], given: Any, dtype: Any, cast: Any = None) -> Any:
    """The values of a map for some keys as a row (1, keys); those that it lacks are zero, or empty
    texts.
    """
    if not isinstance(given, Mapping):
        raise call.refuse("the input is no map")
    empty = "" if np.dtype(dtype).kind == "O" else 0
    try:
        found = [given.get(k, empty) for k in keys]
        return np.array([v if cast is None else cast(v) for v in found], dtype)[None]
    except (OverflowError, TypeError, ValueError) as error:
        raise call.refuse(f"a value of the map: {error}") from error


@of_tables("DictVectorizer")
def dict_vectorizer(call: Call, given: Any) -> Any:
    """The values of a map as columns, one for each word; those that it lacks are zero."""
    words = call.get("string_vocabulary") or call.get("int64_vocabulary")
    if not words or call.get("string_vocabulary") and call.get("int64_vocabulary"):
        raise call.refuse("one vocabulary is needed, of texts or of integers")
    return _row(call, words, given, getattr(given, "dtype", np.dtype(np.float32)))


@of_tables("CastMap")
def cast_map(call: Call, given: Any) -> Any:
    """The values of a map in the order of their keys, or in the columns that these name."""
    to, form = call.get("cast_to", "TO_FLOAT"), call.get("map_form", "DENSE")
    dtypes: dict[str, Any] = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
    if to not in dtypes or form not in ("DENSE", "SPARSE"):
        raise call.refuse(f"cast_to {to!r} and map_form {form!r}")
    if not isinstance(given, Mapping) or not all(isinstance(k, (int, np.integer)) for k in given):
        raise call.refuse("the input is no map of integers")
    keys = sorted(given)
    if form == "SPARSE":
        count = call.get("max_map", 1)
        if keys and keys[0] < 0 or not 0 < count <= MOST + len(given):
            raise call.refuse(f"columns {keys[:9]} of {count}")
        keys = list(range(count))
    casts = {"TO_FLOAT": float, "TO_INT64": int, "TO_STRING": _written}
    return _row(call, keys, given, dtypes[to], casts[to])


def _written(value: Any) -> str:
    """A value as a text; numbers have six places."""
    return value if isinstance(value, str) else f"{float(np.float32(value)):f}"


@of_tables("CategoryMapper")
def category_mapper(call: Call, x: Any) -> Any:
    """Texts as their numbers, or numbers as their texts."""
    pairs = list(zip(call.get("cats_strings", []), call.get("cats_int64s", []), strict=True))
    if x.dtype == object:
        return _mapped(dict(pairs), x, call.get("default_int64", -1), np.int64)
    back = {number: text for text, number in pairs}
    return _mapped(back, x, call.get("default_string", "_Unused"), object)


@of_tables("LabelEncoder")
def label_encoder(call: Call, x: Any) -> Any:
    """Keys as values of a table."""
    keys, values, default = None, None, None
    dtypes: dict[str, Any] = {"strings": object, "int64s": np.int64, "floats": np.float32}
    for kind, dtype in dtypes.items():
        if call.get(f"keys_{kind}") is not None:
            keys = call.get(f"keys_{kind}")
        if call.get(f"values_{kind}") is not None:
            values = np.array(call.get(f"values_{kind}"), dtype)
            default = call.get(f"default_{kind[:-1]}", {"int64s": -1, "floats": 0.0}.get(kind, ""))
    if call.get("keys_tensor") is not None:
        keys = call.get("keys_tensor").array().tolist()
    if call.get("values_tensor") is not None:
        values = call.get("values_tensor").array()
    if call.get("default_tensor") is not None:
        default = call.get("default_tensor").array().reshape(-1)[0]
    if keys is None or values is None or len(keys) != values.size:
        raise call.refuse("keys and values of one length are needed")
    table = dict(zip(keys, values.reshape(-1), strict=True))
    return _mapped(table, x, default, values.dtype)


@of_tables("ArrayFeatureExtractor")
def array_feature_extractor(call: Call, x: Any, index: Any) -> Any:
    """Columns by index."""
    return np.take(x.reshape(1, -1) if x.ndim == 1 else x, index.reshape(-1), axis=-1)


@of_tables("Binarizer")
def binarizer(call: Call, x: Any) -> Any:
    """One above a limit, zero elsewhere."""
    return (x > call.get("threshold", 0.0)).astype(x.dtype)
