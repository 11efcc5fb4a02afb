"""Tint, Chrome's compiler, takes what is written for adapters with shader-f16 and subgroups: none here has both."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np

from tests.native_runtimes.test_half import CASES, halves
from tests.native_runtimes.test_half import programs as compiled
from tinyweb import Tensor, dtypes
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import Target, webgpu_target
from tinyweb.kinds import ACTIVATIONS
from tinyweb.nn.quantize import QuantizedWeight, quantize
from tinyweb.render_wgsl import render
from tinyweb.tracing import capture


def complaints(modules: list[str]) -> list[str]:
    """What Tint says against each module; nothing where it is right."""
    node = shutil.which("node")
    assert node, "Node is missing"
    done = subprocess.run(
        [node, Path(__file__).with_name("tint.mjs")],
        input=json.dumps(modules),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [str(text) for text in json.loads(done.stdout)]


def test_half_floats_and_subgroups() -> None:
    values = np.array([np.inf, -np.inf, np.nan, -0.0, 2**-24, 65504], np.float16)
    (a,) = halves((64,))
    modules: dict[str, None] = {}
    for subgroups in (False, True):
        target = webgpu_target(subgroups=subgroups, f16=True)
        found = [p for inputs, ours, _ in CASES.values() for p in compiled(ours, *inputs, target=target)]
        for v in values:
            found += compiled(lambda x, v=v: x.maximum(float(v)) + float(v), a, target=target)
        found += compiled(lambda x: (x * x + 1).exp().cast(dtypes.float16), a, target=target)
        modules |= dict.fromkeys(render(p, {}) for p in found)
    for feature in ("f16", "subgroups"):
        assert any(f"enable {feature};" in text for text in modules)
    wrong = [(said, text) for said, text in zip(complaints([*modules]), modules, strict=True) if said]
    assert not wrong, "\n".join(wrong[0])


def products(q: QuantizedWeight, rows: int, activations: str, target: Target) -> list[str]:
    plan = capture(lambda: q.product(Tensor.empty(rows, 256), activations).realize())
    return [render(program_for(call.kernel, target), {}) for call in plan.calls]


def test_words_of_integers() -> None:
    """Products of int8 by words, in numbers and in vectors, and 4-bit integers by masks."""
    modules: dict[str, None] = {}
    values = np.random.default_rng(0).standard_normal((96, 256)).astype(np.float32)
    for q in filter(None, (quantize(values, bits) for bits in (8, 4))):
        for subgroups, rows in ((False, 1), (True, 3), (False, 40)):
            for activations in ACTIVATIONS:
                modules |= dict.fromkeys(products(q, rows, activations, webgpu_target(subgroups=subgroups)))
    assert any("vec4<i32>(dot4I8Packed(" in text for text in modules)
    wrong = [(said, text) for said, text in zip(complaints([*modules]), modules, strict=True) if said]
    assert not wrong, "\n".join(wrong[0])


def test_mistakes_are_found() -> None:
    right = "enable f16;\n@compute @workgroup_size(1) fn main() { let x = 1.0h; _ = x; }"
    first, second, third = complaints([right, right.replace("enable f16;", ""), right.replace("main", "other")])
    assert first == "" and "f16" in second and "main" in third
