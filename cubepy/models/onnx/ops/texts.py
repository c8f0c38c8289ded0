"""Texts, on the host: join, split, normalise, match, count."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np

from cubepy.models.onnx.records import ALL, Call, operator

MOST_PATTERN = 1000


def _each(function: Any, x: Any, dtype: Any = object) -> Any:
    return np.array([function(v) for v in x.reshape(-1)], dtype).reshape(x.shape)


@operator("StringConcat", reads=(ALL,), splits=True)
def string_concat(call: Call, a: Any, b: Any) -> Any:
    """Texts one behind the other."""
    a, b = np.broadcast_arrays(a, b)
    pairs = zip(a.reshape(-1), b.reshape(-1), strict=True)
    return np.array([u + v for u, v in pairs], object).reshape(a.shape)


@operator("StringSplit", reads=(ALL,), splits=True)
def string_split(call: Call, x: Any) -> Any:
    """Parts of texts, with empty ones behind, and how many there are."""
    by, most = call.get("delimiter") or None, call.get("maxsplit", -1)
    parts = [v.split(by, most) for v in x.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    longest = int(counts.max(initial=0))
    made = np.array([p + [""] * (longest - len(p)) for p in parts], object)
    return made.reshape(*x.shape, longest), counts


@operator("RegexFullMatch", reads=(ALL,), splits=True)
def regex_full_match(call: Call, x: Any) -> Any:
    """Whether whole texts match a pattern."""
    pattern = call["pattern"]
    if len(pattern) > MOST_PATTERN or re.search(r"\([^)]*[*+][^)]*\)[*+]", pattern):
        raise call.refuse("a pattern that is too long, or with repeats in repeats")
    matches = re.compile(pattern).fullmatch
    return _each(lambda v: matches(v) is not None, x, np.bool_)


def _plain(text: str) -> str:
    if text.isascii():
        return text
    parts = unicodedata.normalize("NFKD", text)
    return "".join(c for c in parts if not unicodedata.combining(c))


@operator("StringNormalizer", reads=(ALL,), splits=True)
def string_normalizer(call: Call, x: Any) -> Any:
    """Texts without stop words, in one case."""
    action = call.get("case_change_action", "NONE")
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(action, lambda t: t)
    stops, exact = call.get("stopwords", []), bool(call.get("is_case_sensitive", 0))
    fold = (lambda t: t) if exact else str.lower
    gone = {fold(s) for s in stops}
    words = [v for v in x.reshape(-1) if fold(v) not in gone]
    made = np.array([change(_plain(v)) for v in words] or [""], object)
    return made.reshape(1, -1) if x.ndim == 2 else made


@operator("TfIdfVectorizer", reads=(ALL,), splits=True)
def tfidf(call: Call, x: Any) -> Any:
    """How often n-grams of a pool are in rows, with gaps between their elements, or weighted."""
    pool = call.get("pool_int64s") or call.get("pool_strings") or []
    starts, where = call["ngram_counts"], call["ngram_indexes"]
    grams: dict[tuple[Any, ...], int] = {}
    for n, first in enumerate(starts, 1):
        last = starts[n] if n < len(starts) else len(pool)
        for k in range(first, last, n):
            grams[tuple(pool[k : k + n])] = len(grams)
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    made = np.zeros((len(rows), max(where, default=-1) + 1), np.float32)
    low, high = call["min_gram_length"], call["max_gram_length"]
    for row, out in zip(rows.tolist(), made, strict=True):
        for n in range(low, high + 1):
            for skip in range(1, (call["max_skip_count"] + 1 if n > 1 else 1) + 1):
                reach = (n - 1) * skip
                for first in range(len(row) - reach):
                    found = grams.get(tuple(row[first : first + reach + 1 : skip]))
                    if found is not None:
                        out[where[found]] += 1
    mode, weights = call["mode"], np.ones(made.shape[1], np.float32)
    if call.get("weights") and mode != "TF":
        weights[np.array(where)] = call["weights"]
    made = np.minimum(made, 1) * weights if mode == "IDF" else made * weights
    return made.reshape(-1) if x.ndim < 2 else made
