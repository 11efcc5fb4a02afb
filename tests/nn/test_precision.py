"""How the matrices of a model are stored: names, groups, and embedding and head by themselves."""

from pathlib import Path

import numpy as np
import pytest

from tinyweb.dtype import dtypes
from tinyweb.errors import TinywebError
from tinyweb.models import load
from tinyweb.nn.precision import Precision, Recipe
from tinyweb.nn.quantize import QuantizedWeight


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("precision", "width", "group"),
    [
        (Precision("q4"), 256, 32),
        (Precision("q8", 64), 256, 64),
        (Precision("q4", 128), 256, 128),
        (Precision("q4", 128), 96, 32),
        (Precision("q8", None), 104, 104),
        (Precision("q4", None, True), 8, 8),
    ],
)
def test_groups(precision: Precision, width: int, group: int) -> None:
    made = precision.convert(random(3, width))
    assert isinstance(made, QuantizedWeight)
    assert (made.shape, made.group) == ((3, width), group)
    assert (made.zeros is not None) == precision.zero_points
    assert made.scales.dtype is dtypes.float16


def test_floats_are_no_integers() -> None:
    assert Precision("f16").convert(random(2, 32)) is None
    assert Precision("q8").convert(random(2, 9)) is None
    assert not Recipe.of("f16").integers and Recipe.made(Precision("f16"), "q8").integers


def test_a_table_keeps_eight_bits() -> None:
    assert Recipe.of("q4").embedding.kind == "q8" and Recipe.of("q4").head is None
    assert Recipe.of("f16").embedding.kind == "f16"
    made = Recipe.made(Precision("q4", 64, True), "q4", "q8")
    assert made.embedding == Precision("q4", 64, True) and made.head == Precision("q8", 64, True)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Precision("q9"), "unknown quantisation 'q9': choose one of f32, f16, q8, "),
        (lambda: Precision("q4", 4), "groups of 4 weights cannot be: choose 32, 64, 128"),
        (lambda: Recipe.made(Precision("q4"), "none"), "unknown quantisation 'none'"),
    ],
)
def test_what_cannot_be(made, said: str) -> None:
    with pytest.raises(TinywebError, match=said):
        made()


def test_a_model_with_a_table_of_its_own(model_folder: Path) -> None:
    watched: list[str] = []
    recipe = Recipe.made(Precision("q4", 64), embedding="f16").watched(lambda w, v: watched.append(type(w).__name__))
    model = load(model_folder, recipe, 32)
    assert model.weights["model.embed_tokens.weight"].dtype is dtypes.float16
    assert model.weights["model.layers.0.qkv.weight"].shape == (512, 4, 64)
    assert watched[0] == "Tensor" and set(watched[1:]) == {"QuantizedWeight"} and len(watched) == 41


def test_a_tied_head_is_the_embedding(model_folder: Path) -> None:
    said = "head of this model is its embedding, which is q8 .* leave out --quant-head, or give --quant-embedding q4"
    with pytest.raises(TinywebError, match=said):
        load(model_folder, Recipe.made(Precision("q4"), head="q4"), 32)
