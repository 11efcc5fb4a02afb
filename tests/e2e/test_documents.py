"""What documents say of exported sites."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import page_size

from tests.e2e.conftest import ExportedSite
from tests.e2e.pages import EMBED, ExportedPage
from tinyweb.export.inspect import inspect_site

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = "…"


def example() -> Any:
    """The manifest in docs/bundle.md, without comments; LEFT_OUT for what it leaves out."""
    text = (ROOT / "docs/bundle.md").read_text(encoding="utf-8")
    shown = re.search(r"```jsonc\n(.*?)```", text, re.DOTALL)
    assert shown is not None
    plain = re.sub(r"\s//.*", "", shown[1])
    plain = re.sub(r"\{ … \}", '{ "…": 0 }', plain)
    plain = re.sub(r", … \}", ', "…": 0 }', plain)
    return json.loads(re.sub(r'(?<!")…(?!")', '"…"', plain))


def differences(told: Any, real: Any, where: str = "") -> list[str]:
    """Where `told` says something else than `real`; lists of what has a name or an id are compared by it."""
    if told == LEFT_OUT:
        return []
    if isinstance(told, dict) and isinstance(real, dict):
        keys = [k for k in told if k != LEFT_OUT]
        missing = [f"{where}.{k} is not there" for k in keys if k not in real]
        return missing + [d for k in keys if k in real for d in differences(told[k], real[k], f"{where}.{k}")]
    if isinstance(told, list) and isinstance(real, list):
        if told and isinstance(told[0], dict) and "name" in told[0] and told[0]["name"] != LEFT_OUT:
            by_name = {entry["name"]: entry for entry in real}
            return [d for t in told for d in differences(t, by_name.get(t["name"]), f"{where}.{t['name']}")]
        if LEFT_OUT in told:
            told, real = told[: told.index(LEFT_OUT)], real[: told.index(LEFT_OUT)]
        if len(told) != len(real):
            return [f"{where} has {len(real)} entries, not {len(told)}"]
        return [d for i, (t, r) in enumerate(zip(told, real)) for d in differences(t, r, f"{where}[{i}]")]
    return [] if told == real else [f"{where} is {real!r}, not {told!r}"]


def test_manifest_of_the_example(exported: ExportedSite) -> None:
    """docs/bundle.md shows the embedded chat model's manifest, in part."""
    told = example()
    for target in told["targets"].values():  # what a launch looks like, not that of a kernel
        for variant in target["variants"].values():
            variant.get("entry_points", {}).get("decode", {}).pop("dispatches", None)
            variant.pop("kernels", None)
    real = json.loads((exported("q8") / "model/manifest.json").read_text(encoding="utf-8"))
    assert differences(told, real) == []
    assert differences({"a": [1, 2], "b": 3, "c": 4}, {"a": [1, 5], "b": 3}) == [".c is not there", ".a[1] is 5, not 2"]


def test_kernels_of_a_token(exported: ExportedSite) -> None:
    """docs/architecture.md, of the site that is served and not of a plan."""
    text = " ".join((ROOT / "docs/architecture.md").read_text(encoding="utf-8").split())
    told = re.search(
        r"takes (\d+) kernels per sampled token, (\d+) greedily.* and tinychat-7m takes (\d+) and (\d+)", text
    )
    assert told is not None
    by_target = inspect_site(exported("q8"))["kernels_per_token_by_target"]
    assert [int(n) for n in told.groups()] == [
        by_target[target][by] for target in ("webgpu", "wasm") for by in ("sample", "greedy")
    ]


def test_sizes_of_a_site(exported: ExportedSite, exported_page: Callable[[ExportedPage], Path]) -> None:
    """README.md's whole page; downloads of models in their cards."""
    assert not page_size.over_budget("chat site", page_size.exported_files(exported("q8")), page_size.PAGE_BUDGET)
    embed = exported_page(EMBED)
    download = f"{inspect_site(embed)['bytes']['download'] / 1e6:.1f} MB"
    told = {
        "docs/search.md": "{} with 8-bit weights",
        "assets/models/tinyembed/README.md": "weights it is a download of {}",
    }
    for document, sentence in told.items():
        text = " ".join((ROOT / document).read_text(encoding="utf-8").split())
        assert sentence.format(download) in text, document
