"""Operators on text, and on maps, as pipelines of scikit-learn have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper

from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel
from tinyweb.formats.onnx.texts import OTHER, known_words
from tinyweb.formats.words import Words

MICROSOFT, ML = "com.microsoft", "ai.onnx.ml"
TEXT = helper.make_tensor("k", TensorProto.STRING, [1], [b"b"])


def model(node: Any, given: ValueInfoProto) -> OnnxModel:
    graph = helper.make_graph([node], "g", [given], [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(MICROSOFT, 1), helper.make_opsetid(ML, 3)]
    return OnnxModel(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def texts(*lines: str) -> Any:
    return np.array([*lines, ""], object)[:-1]


@pytest.mark.parametrize(("options", "want"), [
    ({"tokenexp": r"\w\w+", "mark": 0}, [["big", "cat"], ["##", "##"]]),
    ({"separators": [" ", ","], "mark": 0}, [["big", "cat"], ["a", "##"]]),
    ({"separators": [""], "mark": 1, "mincharnum": 1},
     [["\x02", *"big cat", "\x03"], ["\x02", *"a,", "\x03", *["##"] * 5]]),
])  # fmt: skip
def test_words_of_a_text(options: dict[str, Any], want: list[list[str]]) -> None:
    options = {"pad_value": "##", "mincharnum": 1} | options
    node = helper.make_node("Tokenizer", ["x"], ["y"], domain=MICROSOFT, **options)
    made = model(node, helper.make_tensor_value_info("x", TensorProto.STRING, [2]))
    assert made(x=texts("big cat", "a,"))["y"].tolist() == want


@pytest.mark.parametrize(("names", "x", "want"), [
    ({"string_vocabulary": ["a", "b", "c"]}, {"c": 5.0, "a": 1.0, "d": 7.0}, [[1.0, 0.0, 5.0]]),
    ({"int64_vocabulary": [3, 1]}, {1: 2}, [[0, 2]]),
])  # fmt: skip
def test_numbers_of_a_map(names: dict[str, Any], x: dict[Any, Any], want: list[list[float]]) -> None:
    given = ValueInfoProto(name="x")
    given.type.map_type.key_type = TensorProto.STRING
    made = model(helper.make_node("DictVectorizer", ["x"], ["y"], domain=ML, **names), given)
    found = made(x=x)["y"]
    assert found.tolist() == want and found.dtype.is_float is isinstance(want[0][0], float)
    with pytest.raises(TypeError, match="'x'"):
        made(x=3)


def test_text_of_computed_places_moves_and_is_compared() -> None:
    """One list of the words of all that is joined; what is in none of them is nobody's equal."""
    given = helper.make_tensor_value_info("x", TensorProto.STRING, [2])
    x = Words(texts("b", "other"), Tensor(np.array([1, 0], np.int32)))
    joined = model(helper.make_node("Concat", ["x", "x"], ["y"], axis=0), given)(x=x)["y"]
    assert joined.tolist() == ["other", "b", "other", "b"]
    looked = model(
        helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, keys_strings=["b"], values_floats=[2.5]), given
    )
    assert looked(x=x)["y"].tolist() == [0.0, 2.5]
    with pytest.raises(NotImplementedError, match="StringNormalizer"):
        model(helper.make_node("StringNormalizer", ["x"], ["y"]), given)(x=x)


@pytest.mark.parametrize("value", [{"value_string": "b"}, {"value_strings": ["b"]}, {"value": TEXT}])
def test_text_of_an_input_knows_the_words_that_it_is_compared_with(value: dict[str, Any]) -> None:
    given = helper.make_tensor_value_info("x", TensorProto.STRING, [3])
    x = Words(texts("b", OTHER), Tensor(np.array([1, 0, 1], np.int32)))
    for suffix in ((), (helper.make_node("StringConcat", ["k", "k"], ["k2"]),)):
        nodes = [helper.make_node("Constant", [], ["k"], **value), *suffix]
        nodes.append(helper.make_node("Equal", ["x", nodes[-1].output[0]], ["y"]))
        graph = helper.make_graph(nodes, "g", [given], [helper.make_empty_tensor_value_info("y")])
        made = OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString())
        assert known_words(made.graph) == ["b"]
        if not suffix:
            assert made(x=x)["y"].tolist() == [False, True, False]
            continue
        with pytest.raises(NotImplementedError, match="text of an input beside text that is made anew"):
            made(x=x)
