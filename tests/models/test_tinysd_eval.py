"""The pixel checks that come with the small Stable Diffusion model, on pictures drawn here."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinysd"
RED, BLUE, WHITE, YELLOW = (222, 48, 52), (52, 100, 224), (248, 248, 250), (250, 214, 52)


@pytest.fixture(scope="module")
def judge() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tinysd_eval", FOLDER / "eval.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["tinysd_eval"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def canvas(color: tuple[int, int, int], size: int) -> tuple[Any, Any, Any]:
    v = (np.arange(size) + 0.5) / size * 2 - 1
    x, y = np.meshgrid(v, v)
    return np.full((size, size, 3), color, np.uint8), x, y


def disc(x: Any, y: Any, cx: float, cy: float, r: float) -> Any:
    return np.hypot(x - cx, y - cy) < r


def box(x: Any, y: Any, cx: float, cy: float, r: float) -> Any:
    return np.maximum(abs(x - cx), abs(y - cy)) < r


@pytest.mark.parametrize("size", [64, 96, 256])
def test_single_shape(judge: ModuleType, size: int) -> None:
    img, x, y = canvas(YELLOW, size)
    img[disc(x, y, 0.5, -0.5, 0.3)] = RED
    place = "in the top right corner on a yellow background"
    assert judge.check(f"a red circle {place}", img)["everything"] == 1
    assert judge.check(f"a blue circle {place}", img)["colour"] == 0
    assert judge.check(f"a red square {place}", img)["shape"] == 0
    assert judge.check("a red circle in the bottom right corner", img)["position"] == 0
    assert judge.check("a red circle on a white background", img)["background"] == 0
    assert judge.check("two red circles", img)["count"] == 0
    assert judge.check("a large red circle", img)["size"] == 0
    assert judge.check("a small red circle", img)["size"] == 1


@pytest.mark.parametrize("size", [64, 256])
def test_two_shapes(judge: ModuleType, size: int) -> None:
    img, x, y = canvas(WHITE, size)
    img[box(x, y, -0.45, 0, 0.3)] = RED
    img[disc(x, y, 0.45, 0, 0.3)] = BLUE
    assert judge.check("a red square to the left of a blue circle on a white background", img)["everything"] == 1
    assert judge.check("a blue circle right of a red square", img)["everything"] == 1
    assert judge.check("a red square and a blue circle", img)["everything"] == 1
    swapped = judge.check("a red circle to the left of a blue square", img)
    assert swapped["everything"] == 0 and swapped["count"] == 1
    assert judge.check("a red square above a blue circle", img)["position"] == 0
    assert judge.check("a red square to the right of a blue circle", img)["position"] == 0


def test_nested_shapes(judge: ModuleType) -> None:
    img, x, y = canvas(WHITE, 64)
    img[disc(x, y, 0, 0, 0.8)] = BLUE
    img[box(x, y, 0, 0, 0.35)] = YELLOW
    assert judge.check("a yellow square inside a blue circle on a white background", img)["everything"] == 1
    assert judge.check("a blue square inside a yellow circle", img)["colour"] == 0


def test_nothing_but_background(judge: ModuleType) -> None:
    img, _, _ = canvas(BLUE, 64)
    for prompt in ("a red circle", "a red star above a green heart", "a red star inside a green heart"):
        got = judge.check(prompt, img)
        assert got["everything"] == 0 and got["shape"] == 0


def test_other_prompts_are_refused(judge: ModuleType) -> None:
    with pytest.raises(ValueError, match="plain shape"):
        judge.check("a cat in the snow", np.zeros((64, 64, 3), np.uint8))


def test_page_prompts_are_checkable(judge: ModuleType) -> None:
    entries = json.loads((FOLDER / "page_prompts.json").read_text())
    assert len(entries) == 8
    for e in entries:
        assert judge.parse(e["prompt"]).things and isinstance(e["seed"], int)
