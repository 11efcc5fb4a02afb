"""Features that are put in order before a model of the domain ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call, is_text
from tinyweb.formats.onnx.operators.common import cast, fixed
from tinyweb.formats.onnx.operators.strings import translated
from tinyweb.formats.onnx.operators.trees import ML
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.texts import word_list
from tinyweb.formats.words import Words
from tinyweb.tensor import Tensor


@op("Imputer", domain=ML)
def imputer(call: Call, x: Tensor) -> Tensor:
    """One number, or NaN, becomes another, for all columns or each one."""
    whole = call.has("imputed_value_int64s")
    values: Any = call.integers("imputed_value_int64s") if whole else call.reals("imputed_value_floats")
    old = call.integer("replaced_value_int64", 0) if whole else call.real("replaced_value_float", 0.0)
    if len(values) not in (1, fixed(x.shape[-1])):
        raise call.error(f"{len(values)} values do not go with {fixed(x.shape[-1])} columns")
    found = x.isnan() if old != old else x.eq(old)
    return cast(found.where(call.lift(np.array(values, x.dtype.numpy)), x), x.dtype)


@op("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: Call, first: Tensor, *others: Tensor) -> Tensor:
    """Columns side by side as floats, of each input as many as it is told to have: what is missing is 0."""
    given = [x.float().reshape(x.shape[0] if x.ndim > 1 else 1, -1) for x in (first, *others)]
    sizes = call.integers("inputdimensions")
    if len(sizes) != len(given) or min(sizes) < 0:
        raise call.error(f"inputdimensions {sizes} are not those of {len(given)} inputs")
    widths = [fixed(x.shape[1]) for x in given]
    kept = [x.shrink([None, (0, min(n, w))]).pad([(0, 0), (0, max(n - w, 0))])
            for x, n, w in zip(given, sizes, widths)]  # fmt: skip
    return Tensor.cat(*kept, axis=1)


@op("OneHotEncoder", domain=ML, raw=True)
def one_hot_encoder(call: Call, x: Any) -> Any:
    """A last axis with a column for each category."""
    text = is_text(x) or isinstance(x, Words)
    categories: Any = call.texts("cats_strings") if text else call.integers("cats_int64s", [])
    if not categories:
        raise call.error(f"there are no categories for {'text' if text else 'numbers'}")
    if isinstance(x, Words):
        found = x.looked_up(x.table[:, None] == word_list(categories))
    elif text:
        found = x[..., None] == word_list(categories)
    else:
        found = call.given(x).cast(dtypes.int64).unsqueeze(-1).eq(call.lift(np.array(categories, np.int64)))
    if not call.integer("zeros", 1) and not call.known(found.any(-1), "a category").all():
        raise call.error("a value is none of the categories")
    return found.float() if isinstance(found, Tensor) else found.astype(np.float32)


@op("CategoryMapper", domain=ML, raw=True)
def category_mapper(call: Call, x: Any) -> Any:
    """Text as the numbers of its categories, or such numbers as text."""
    words, numbers = call.texts("cats_strings"), call.integers("cats_int64s")
    if len(words) != len(numbers):
        raise call.error(f"{len(words)} words and {len(numbers)} numbers are no pairs")
    if is_text(x) or isinstance(x, Words):
        return translated(call, x, dict(zip(words, numbers)), call.integer("default_int64", -1), np.int64)
    return translated(call, x, dict(zip(numbers, words)), call.text("default_string", "_Unused"), object)


@op("DictVectorizer", domain=ML, raw=True)
def dict_vectorizer(call: Call, x: Any) -> Any:
    """(1, names): a map's number for each name of a list, 0 for those that it lacks."""
    names: Any = call.texts("string_vocabulary") if call.has("string_vocabulary") else call.integers("int64_vocabulary")
    if not isinstance(x, dict):
        raise call.error(f"it takes a map, which is a dict of numbers, not {type(x).__name__}")
    return np.array([[x.get(name, 0) for name in names]], np.float32 if _of_floats(x) else np.int64)


def _of_floats(x: dict[Any, Any]) -> bool:
    return not x or any(isinstance(v, float | np.floating) for v in x.values())
