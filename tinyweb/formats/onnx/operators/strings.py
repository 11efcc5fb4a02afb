"""Text: computed on the host, as it has no place on devices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tinyweb.device import is_recording
from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Array, Call, Host
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.texts import word_list
from tinyweb.formats.words import Words, chosen
from tinyweb.tensor import Tensor

MAX_PATTERN, MAX_STEPS = 1000, 10**9  # characters; places of a text that a pattern is compared with
WORD = 64  # bytes of a short one


def texts(call: Call, x: Any) -> Host:
    if not isinstance(x, np.ndarray) or x.dtype != object:
        raise call.unsupported("text is supported only where it is known, as a NumPy array of str")
    return x


@op("StringConcat", raw=True)
def string_concat(call: Call, a: Array, b: Array) -> Host:
    pairs = np.broadcast_arrays(texts(call, a), texts(call, b))
    each = [x.reshape(-1).tolist() for x in pairs]
    call.spend(sum(len(str(w)) + WORD for words in each for w in words), 1)
    return word_list([str(x) + str(y) for x, y in zip(*each)]).reshape(pairs[0].shape)


def _filled(call: Call, rows: list[list[str]], fill: str, given: Host) -> Host:
    """A last axis of the words of each text, filled up to the longest one's length."""
    longest = max(map(len, rows), default=0)
    call.spend(len(rows) * longest, WORD)
    return word_list([w for r in rows for w in [*r, *[fill] * (longest - len(r))]]).reshape(*given.shape, longest)


@op("StringSplit", raw=True)
def string_split(call: Call, x: Array) -> Any:
    words, most = texts(call, x), call.integer("maxsplit", None)
    by = call.text("delimiter", "") or None
    parts = [str(s).split(by, -1 if most is None else most) for s in words.reshape(-1)]
    counts = np.array([len(p) for p in parts], np.int64).reshape(words.shape)
    return _filled(call, parts, "", words), counts


@op("StringNormalizer", raw=True)
def string_normalizer(call: Call, x: Array) -> Host:
    words = texts(call, x)
    change = call.choice("case_change_action", "NONE", ("NONE", "LOWER", "UPPER"))
    exact, stop = call.integer("is_case_sensitive", 0), call.texts("stopwords")
    row = [str(s) for s in words.reshape(-1)]
    left = {s if exact else s.lower() for s in stop}
    row = [s for s in row if (s if exact else s.lower()) not in left]
    row = [s.lower() if change == "LOWER" else s.upper() if change == "UPPER" else s for s in row] or [""]
    return word_list(row).reshape((len(row),) if words.ndim == 1 else (1, len(row)))


@op("Tokenizer", domain="com.microsoft", raw=True)
def tokenizer(call: Call, x: Array) -> Host:
    """Words along a new last axis: between separators, or what a pattern finds; else characters."""
    given, least = texts(call, x), call.integer("mincharnum")
    lines, separators = [str(s) for s in given.reshape(-1)], [s for s in call.texts("separators") if s]
    if call.has("tokenexp"):
        inside = _pattern(call, call.text("tokenexp"), lines, 1)
        found = [[m.group() for m in inside.finditer(s)] for s in lines]
    elif separators:
        between = _pattern(call, "|".join(separators), lines, 1)
        found = [between.split(s) for s in lines]
    else:
        found = [list(s) for s in lines]
    marks = (["\x02"], ["\x03"]) if call.integer("mark") else ([], [])
    rows = [[*marks[0], *(w for w in words if w and len(w) >= least), *marks[1]] for words in found]
    return _filled(call, rows, call.text("pad_value"), given)


@op("RegexFullMatch", raw=True)
def regex_full_match(call: Call, x: Array) -> Host:
    words = texts(call, x)
    lines = [str(s) for s in words.reshape(-1)]
    known = _pattern(call, call.text("pattern", ""), lines, 0)
    return np.array([known.fullmatch(s) is not None for s in lines], bool).reshape(words.shape)


def _pattern(call: Call, text: str, lines: list[str], tries: int) -> re.Pattern[str]:
    """A regular expression that ends soon on these texts: each repetition may go through one of them anew, as does
    each place where a match may begin (`tries`)."""
    if len(text) > MAX_PATTERN:
        raise call.unsupported(f"a pattern of more than {MAX_PATTERN} characters")
    if re.search(r"[*+}]\)*[*+{]|\)[*+{]", text):  # repeated repetitions may take for ever
        raise call.unsupported("a pattern that repeats repetitions")
    longest, repeated = max(map(len, lines), default=0) + 2, sum(map(text.count, "*+{"))
    if longest ** (repeated + tries) * 2 ** text.count("?") > MAX_STEPS:
        raise call.unsupported(f"a pattern with {repeated} repetitions on a text of {longest - 2} characters")
    try:
        return re.compile(text)
    except re.error as e:
        raise call.error(f"pattern {text!r}: {e}") from None


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
    call.afford(len(rows) * (max(places, default=-1) + 1))
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
    """What each element stands for in a table, or what stands for none."""
    keys, values = _side(call, "keys"), _side(call, "values")
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
    dtype: Any = object if form == "strings" else np.int64 if form == "int64s" else np.float32
    if form != "strings" and call.has("values_tensor"):
        dtype = call.tensor("values_tensor").dtype
    return translated(call, x, dict(zip(keys, values)), missing, dtype)


def translated(call: Call, x: Any, table: dict[Any, Any], missing: Any, dtype: Any) -> Any:
    """Each element's value in a table, `missing` where it is no key: an array of `dtype` where `x` is known."""
    if isinstance(x, Words):
        return x.looked_up(_column([table.get(w, missing) for w in x.table], dtype))
    if isinstance(x, Tensor) and is_recording():
        return chosen(_column([missing, *table.values()], dtype), _place(call, x, list(table)))
    known = call.known(x, "labels")
    nan = next((v for k, v in table.items() if isinstance(k, float) and k != k), missing)
    flat = [table.get(k, nan if k != k else missing) for k in known.reshape(-1).tolist()]
    return _column(flat, dtype).reshape(known.shape)


def _place(call: Call, x: Tensor, keys: list[Any]) -> Tensor:
    """Which key each element is, from 1 on; 0 for none."""
    if not keys:
        return Tensor.zeros(*x.shape, dtype=dtypes.int32, device=x.device)
    held = call.lift(np.array([*keys], np.float32 if x.dtype.is_float else np.int64).reshape(-1))
    each = x.cast(held.dtype).unsqueeze(-1)
    same = each.eq(held) | (each.isnan() & held.isnan()) if x.dtype.is_float else each.eq(held)
    return same.where(call.lift(np.arange(1, len(keys) + 1, dtype=np.int32)), 0).amax(-1)


def _column(values: list[Any], dtype: Any) -> Host:
    return word_list(values) if dtype is object else np.array(values, dtype)


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
