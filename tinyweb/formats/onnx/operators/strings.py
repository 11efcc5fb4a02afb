"""Text: computed on the host, as it has no place on devices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tinyweb.formats.onnx.call import Array, Call, Host
from tinyweb.formats.onnx.registry import op


def texts(call: Call, x: Any) -> Host:
    if not isinstance(x, np.ndarray) or x.dtype != object:
        raise call.unsupported("text is supported only where it is known, as a NumPy array of str")
    return x


def like(values: list[Any], shape: tuple[int, ...]) -> Host:
    return np.array([*values, ""], object)[:-1].reshape(shape)


@op("StringConcat", raw=True)
def string_concat(call: Call, a: Array, b: Array) -> Host:
    pairs = np.broadcast_arrays(texts(call, a), texts(call, b))
    return like([str(x) + str(y) for x, y in zip(*(p.reshape(-1) for p in pairs))], pairs[0].shape)


@op("StringSplit", raw=True)
def string_split(call: Call, x: Array) -> Any:
    words, most = texts(call, x), call.integer("maxsplit", None)
    by = call.text("delimiter", "") or None
    parts = [str(s).split(by, -1 if most is None else most) for s in words.reshape(-1)]
    longest = max(map(len, parts), default=0)
    filled = [w for p in parts for w in [*p, *[""] * (longest - len(p))]]
    counts = np.array([len(p) for p in parts], np.int64).reshape(words.shape)
    return like(filled, (*words.shape, longest)), counts


@op("StringNormalizer", raw=True)
def string_normalizer(call: Call, x: Array) -> Host:
    words = texts(call, x)
    change = call.choice("case_change_action", "NONE", ("NONE", "LOWER", "UPPER"))
    exact, stop = call.integer("is_case_sensitive", 0), call.texts("stopwords")
    row = [str(s) for s in words.reshape(-1)]
    left = {s if exact else s.lower() for s in stop}
    row = [s for s in row if (s if exact else s.lower()) not in left]
    row = [s.lower() if change == "LOWER" else s.upper() if change == "UPPER" else s for s in row] or [""]
    return like(row, (len(row),) if words.ndim == 1 else (1, len(row)))


MAX_PATTERN = 1000


@op("RegexFullMatch", raw=True)
def regex_full_match(call: Call, x: Array) -> Host:
    pattern = call.text("pattern", "")
    if len(pattern) > MAX_PATTERN:
        raise call.unsupported(f"a pattern of more than {MAX_PATTERN} characters")
    if re.search(r"[*+}]\)*[*+{]|\)[*+{]", pattern):  # repeated repetitions may take for ever
        raise call.unsupported("a pattern that repeats repetitions")
    try:
        known = re.compile(pattern)
    except re.error as e:
        raise call.error(f"pattern {pattern!r}: {e}") from None
    words = texts(call, x)
    found = [known.fullmatch(str(s)) is not None for s in words.reshape(-1)]
    return np.array(found, bool).reshape(words.shape)


@op("TfIdfVectorizer", host=(0,))
def tf_idf_vectorizer(call: Call, x: Host) -> Host:
    mode = call.choice("mode", "", ("TF", "IDF", "TFIDF"))
    least, most, skips = (
        call.integer("min_gram_length"),
        call.integer("max_gram_length"),
        call.integer("max_skip_count"),
    )
    counts, places = call.integers("ngram_counts"), call.integers("ngram_indexes")
    pool: list[Any] = call.texts("pool_strings") if call.has("pool_strings") else call.integers("pool_int64s")
    weights = call.reals("weights", [1.0] * len(places))
    grams: dict[tuple[Any, ...], int] = {}
    ends = [*counts[1:], len(pool)]
    for n, (begin, end) in enumerate(zip(counts, ends), 1):
        for at in range(begin, end, n):
            grams[tuple(pool[at : at + n])] = len(grams)
    rows = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x.reshape(1, -1)
    y = np.zeros((len(rows), max(places, default=-1) + 1), np.float32)
    for r, row in enumerate(rows.tolist()):
        for n in range(least, min(most, len(row)) + 1):
            for skip in range(1 if n == 1 else min(skips, len(row)) + 1):
                for at in range(len(row) - (n - 1) * (skip + 1)):
                    found = grams.get(tuple(row[at : at + (n - 1) * (skip + 1) + 1 : skip + 1]))
                    if found is not None:
                        y[r, places[found]] += 1
    by_place = np.zeros(y.shape[1], np.float32)
    by_place[places] = weights
    if mode == "IDF":
        y = np.where(y > 0, by_place, 0).astype(np.float32)
    elif mode == "TFIDF":
        y = y * by_place
    return y if x.ndim > 1 else y[0]


@op("LabelEncoder", domain="ai.onnx.ml", raw=True)
def label_encoder(call: Call, x: Array) -> Any:
    keys, values = _side(call, "keys"), _side(call, "values")
    known = call.known(x, "labels")
    missing: Any = {"strings": "_Unused", "int64s": -1, "floats": -0.0}[_form(call, "values")]
    if call.has("default_tensor"):
        missing = call.tensor("default_tensor").reshape(-1)[0]
    form = _form(call, "values")
    if form == "strings":
        missing = call.text("default_string", str(missing))
    elif form == "int64s":
        missing = call.integer("default_int64", int(missing))
    else:
        missing = call.real("default_float", float(missing))
    table = dict(zip(keys, values))
    nan = next((v for k, v in table.items() if isinstance(k, float) and k != k), missing)
    flat = [table.get(k, nan if k != k else missing) for k in known.reshape(-1).tolist()]
    if form == "strings":
        return like(flat, known.shape)
    dtype: Any = np.int64 if form == "int64s" else np.float32
    if call.has("values_tensor"):
        dtype = call.tensor("values_tensor").dtype
    return np.array(flat, dtype).reshape(known.shape)


def _form(call: Call, side: str) -> str:
    for form in ("strings", "int64s", "floats"):
        if call.has(f"{side}_{form}"):
            return form
    kind = call.tensor(f"{side}_tensor").dtype
    return "strings" if kind.kind == "O" else "int64s" if kind.kind in "iu" else "floats"


def _side(call: Call, side: str) -> list[Any]:
    if call.has(f"{side}_tensor"):
        return list(call.tensor(f"{side}_tensor").reshape(-1).tolist())
    form = _form(call, side)
    if form == "strings":
        return call.texts(f"{side}_strings")
    return call.integers(f"{side}_int64s") if form == "int64s" else call.reals(f"{side}_floats")
