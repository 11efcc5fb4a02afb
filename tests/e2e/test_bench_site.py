"""`tinyweb bench SITE`: an exported chat, measured in Chromium."""

import json
from pathlib import Path

import browser as browser_tool  # tools/browser.py
import pytest

from tests.e2e.conftest import ExportedSite
from tests.export.test_profile_option import quiet
from tests.test_cli import run
from tinyweb.errors import TinywebError
from tinyweb.export import export_function
from tinyweb.serve.bench import bench_site
from tinyweb.tensor import Tensor

FAST = ["--prompt-tokens", "16", "--tokens", "8", "--runs", "1", "--json"]


def test_by_threads(exported: ExportedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROME", str(browser_tool.for_tests()))
    done = run("bench", exported("q8"), "--threads", "1", "--threads", "2", *FAST)
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)["results"]
    assert [one["threads"], two["threads"]] == [1, 2] and one["device"] == "browser wasm-single"
    assert two["device"] == "browser wasm" and "2" in two["adapter"]
    for row in (one, two):
        assert row["tokens_per_second"] > 0 and row["first_token_seconds"] > 0 and row["load_seconds"] > 0
        assert row["peak_bytes"] > row["weight_bytes"] > 1e6


def test_what_cannot_be_measured(exported: ExportedSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = exported("q8")
    assert "--quant and --context are those" in run("bench", site, "--quant", "q4").stderr
    assert "a site runs on WASM or WEBGPU" in run("bench", site, "--device", "CPU").stderr
    monkeypatch.setenv("CHROME", "no-such-browser")
    with pytest.raises(TinywebError, match="CHROME=no-such-browser is no program"):
        bench_site(site, "wasm", 1, 16, 8, 1)
    export_function(lambda x: x + 1, {"x": Tensor.zeros(4)}, tmp_path / "f", progress=quiet)
    with pytest.raises(TinywebError, match="is no chat but has the task 'function'"):
        bench_site(tmp_path / "f", "wasm", 1, 16, 8, 1)
