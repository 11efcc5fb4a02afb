"""What may be asked of a quantisation, and what does not go together."""

from pathlib import Path

import pytest

from tinyweb.errors import TinywebError
from tinyweb.nn.precision import Precision
from tinyweb.quantization import QuantOptions
from tinyweb.quantization.options import check_kind, parse_bytes, parse_group


@pytest.mark.parametrize(
    ("text", "size"),
    [("700MB", 700_000_000), ("1.5GiB", 3 << 29), ("40000", 40_000), ("3 kb", 3000), ("2m", 2_000_000), ("9B", 9)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-3MB", "0", "1e99GB", "7 bananas", "nan", "inf"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(TinywebError, match="is no size: write it as in 700MB"):
        parse_bytes(text)


def test_groups() -> None:
    assert [parse_group(t) for t in ("32", "64", "128", "channel")] == [32, 64, 128, None]
    for text in ("48", "", "row", "-32"):
        with pytest.raises(TinywebError, match="choose 32, 64, 128 or channel"):
            parse_group(text)


@pytest.mark.parametrize(
    ("quant", "options", "said"),
    [
        ("mixed", QuantOptions(), "--quant mixed needs --bytes"),
        ("q4", QuantOptions(bytes=10), "--bytes is for --quant mixed"),
        ("f16", QuantOptions(group=64), "--group is for integers, not f16: choose --quant q8, "),
        ("f32", QuantOptions(zero_points=True), "--zero-points is for integers, not f32"),
        ("f16", QuantOptions(calibrate=Path("x")), "--calibrate is for integers, not f16"),
        ("stored", QuantOptions(calibrate=Path("x")), "--calibrate is for integers, not stored"),
    ],
)
def test_what_does_not_go_together(quant: str, options: QuantOptions, said: str) -> None:
    with pytest.raises(TinywebError, match=said):
        options.recipe(quant)


def test_recipes() -> None:
    recipe = QuantOptions(group=None, zero_points=True, embedding="q6").recipe("q3")
    assert recipe.layers == Precision("q3", None, True) and recipe.embedding == Precision("q6", None, True)
    assert QuantOptions(group=64, embedding="q8").recipe("f16").embedding == Precision("q8", 64)
    assert check_kind("--quant-head", "q5") == "q5" and check_kind("--quant-head", None) is None
    with pytest.raises(TinywebError, match="--quant-head 'q7' cannot be: choose one of f32, f16, q8, q6, q5, q4, q3"):
        check_kind("--quant-head", "q7")
